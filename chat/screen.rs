//! The terminal: its modes, what is read from it and what is written to it. It is as it was before when a [`Screen`] is
//! dropped or left, also while a panic unwinds.

use std::{
    io::{self, BufWriter, Stdout, Write as _, stdout},
    panic, thread,
};

use crossterm::{
    cursor::{SetCursorStyle, Show},
    event::{DisableBracketedPaste, EnableBracketedPaste, EventStream},
    execute, queue,
    terminal::{
        BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
        LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
    },
};
use futures::StreamExt as _;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;

use crate::{input::Input, keys, state::ChatState};

/// Bytes of the buffer of a frame; most take less.
const FRAME_BYTES: usize = 64 << 10;

/// A terminal in the modes of the chat.
pub struct Screen {
    /// A frame is one write.
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    /// `None` while another program has the terminal.
    events: Option<EventStream>,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen").finish_non_exhaustive()
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste)
}

/// Restores the terminal. Does nothing harmful if it is as it was.
pub fn restore_terminal() {
    // Nothing can be done about a terminal that has gone.
    let _ = execute!(
        stdout(),
        EndSynchronizedUpdate,
        DisableBracketedPaste,
        LeaveAlternateScreen,
        SetCursorStyle::DefaultUserShape,
        Show
    );
    let _ = disable_raw_mode();
}

/// Lets a panic of the main thread restore the terminal before it is printed; others are caught by their tasks.
fn restore_at_panic() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if thread::current().name() == Some("main") {
            restore_terminal();
        }
        print(info);
    }));
}

fn terminal() -> io::Result<Terminal<CrosstermBackend<BufWriter<Stdout>>>> {
    Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(FRAME_BYTES, stdout())))
}

impl Screen {
    /// Takes the terminal at standard input and output.
    pub fn open() -> io::Result<Self> {
        restore_at_panic();
        let opened = enter().and_then(|()| terminal());
        match opened {
            Ok(terminal) => Ok(Self { terminal, events: None }),
            Err(error) => {
                restore_terminal();
                Err(error)
            }
        }
    }

    /// Draws the state: only cells that have changed are written, at once.
    pub fn draw(&mut self, state: &mut ChatState, now_ms: u64) -> io::Result<()> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(|frame| {
            let cursor = state.draw(frame.buffer_mut(), now_ms);
            frame.set_cursor_position(cursor);
        })?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)
    }

    /// Writes every cell at the next [`Screen::draw`].
    pub fn redraw(&mut self) -> io::Result<()> {
        // `Terminal::clear` asks the terminal where the cursor is, and waits for the answer behind the keys.
        self.terminal = terminal()?;
        execute!(self.terminal.backend_mut(), Clear(ClearType::All))
    }

    /// The next input; an error if the terminal has gone. May be cancelled at any time.
    pub async fn next(&mut self) -> io::Result<Input> {
        let events = self.events.get_or_insert_with(EventStream::new);
        loop {
            match events.next().await {
                Some(event) => {
                    if let Some(input) = keys::input(event?) {
                        return Ok(input);
                    }
                }
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Gives the terminal to another program, until [`Screen::resume`].
    pub fn suspend(&mut self) -> io::Result<()> {
        self.events = None;
        restore_terminal();
        stdout().flush()
    }

    /// Takes the terminal again.
    pub fn resume(&mut self) -> io::Result<()> {
        enter()?;
        self.redraw()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.events = None;
        restore_terminal();
    }
}
