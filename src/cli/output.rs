//! Standard output and standard error, for a world in which either may be closed. Nothing that a model or a tool says
//! reaches a terminal as a control sequence: what is written here stands as visible text.

use std::{
    fmt::{Display, Write as _},
    io::{self, ErrorKind, Write},
};

use hermod_actors::{Visible, model::EventBody};
use serde_json::Value;
use tokio::time::Instant;
use tracing::level_filters::LevelFilter;

use super::{
    exit::{Exit, Failure},
    live::{FRAME, Live},
    terminal::{Terminal, Tone, cut, stderr_columns},
};
use crate::environment::Variables;

/// Writes `text` to standard output, with a line break behind it if it has none. A reader that has gone has seen
/// enough.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_over("", text).map(drop)
}

/// Who reads standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Somebody does.
    There,
    /// Nobody does any more.
    Gone,
}

/// Likewise, behind control sequences of ours; says whether somebody reads it.
pub(crate) fn print_over(over: &str, text: &str) -> Result<Audience, Failure> {
    let mut text = over.to_owned() + &visible(text);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(Audience::There),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Audience::Gone),
        Err(error) => {
            Err(Failure { exit: Exit::Store, text: format!("standard output cannot be written: {error}") })
        }
    }
}

/// Writes a JSON value as one line to standard output. What would hide in a terminal is escaped, so a program reads
/// exactly what there is.
pub(crate) fn print_json(value: &Value) -> Result<(), Failure> {
    print_escaped(&value.to_string())
}

/// Writes a JSON text likewise.
pub(crate) fn print_escaped(json: &str) -> Result<(), Failure> {
    print(&escaped(json))
}

/// Writes a line to standard error. If that is closed, nobody is there to be told.
pub(crate) fn say(line: impl Display) {
    write_stderr(&format!("{}\n", visible(&line.to_string())));
}

// In one piece, so that lines of other processes do not come in between.
fn write_stderr(text: &str) {
    let _nobody_listens = io::stderr().write_all(text.as_bytes());
}

fn visible(text: &str) -> String {
    Visible::of(text.replace("\r\n", "\n").as_bytes()).text
}

/// JSON in which no character hides: they can stand in strings only, where an escape means the same.
pub(crate) fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        let hides = c.is_control() || Visible::of(c.encode_utf8(&mut [0; 4]).as_bytes()).controls > 0;
        if !hides {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            write!(escaped, "\\u{unit:04x}").expect("writing to a string does not fail");
        }
    }
    escaped
}

/// Tells at standard error what a run does: on a terminal with what is under way below the lines, else line by line.
#[derive(Debug)]
pub(crate) struct Teller {
    screen: Option<Screen>,
}

#[derive(Debug)]
struct Screen {
    terminal: Terminal,
    live: Live,
    began: Instant,
    /// Lines that are drawn and will be drawn over.
    drawn: usize,
    /// When they were drawn.
    at: Instant,
}

impl Teller {
    /// On a terminal, unless logs are written there too.
    pub(crate) fn new(variables: &Variables) -> Self {
        let quiet = LevelFilter::current() == LevelFilter::OFF;
        let terminal = Terminal::at_stderr(variables).filter(|_| quiet);
        let now = Instant::now();
        let screen = |terminal| Screen { terminal, live: Live::default(), began: now, drawn: 0, at: now };
        Self { screen: terminal.map(screen) }
    }

    /// When it is to be drawn again; never, if it only writes lines.
    pub(crate) async fn frame(&self) {
        match &self.screen {
            Some(screen) => tokio::time::sleep_until(screen.at + FRAME).await,
            None => std::future::pending().await,
        }
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, tone: Tone, line: &str) {
        match &mut self.screen {
            None => say(line),
            Some(screen) => {
                let line = screen.terminal.palette.paint(tone, &visible(line));
                screen.draw(&format!("{line}\n"));
            }
        }
    }

    /// Takes in what happened.
    pub(crate) fn take(&mut self, body: &EventBody) {
        if let Some(screen) = &mut self.screen {
            screen.live.take(body, screen.began.elapsed());
            if screen.at.elapsed() >= FRAME {
                screen.draw("");
            }
        }
    }

    /// Draws what is under way.
    pub(crate) fn draw(&mut self) {
        if let Some(screen) = &mut self.screen {
            screen.draw("");
        }
    }
}

impl Screen {
    /// Draws what is under way below `above`.
    fn draw(&mut self, above: &str) {
        let lines = self.live.lines(self.began.elapsed(), stderr_columns());
        let frame = format!("{}{above}{}", self.erased(), lines.join("\n"));
        (self.drawn, self.at) = (lines.len(), Instant::now());
        if !frame.is_empty() {
            write_stderr(&frame);
        }
    }

    /// What erases the drawn lines: the cursor stands at the end of the last.
    fn erased(&self) -> String {
        match self.drawn {
            0 => String::new(),
            1 => "\r\x1b[J".into(),
            n => format!("\r\x1b[{}A\x1b[J", n - 1),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        write_stderr(&self.erased());
    }
}

/// One line at standard error that says how far something is. On a terminal it is written over and over.
#[derive(Debug)]
pub(crate) struct Status {
    terminal: Option<Terminal>,
}

impl Status {
    /// None yet.
    pub(crate) fn new(variables: &Variables) -> Self {
        Self { terminal: Terminal::at_stderr(variables) }
    }

    /// Whether there is a terminal to show each change on.
    pub(crate) const fn is_live(&self) -> bool {
        self.terminal.is_some()
    }

    /// Says how far it is now.
    pub(crate) fn show(&self, line: &str) {
        match &self.terminal {
            None => say(line),
            Some(terminal) => {
                let line = terminal.palette.paint(Tone::Quiet, &cut(&visible(line), stderr_columns() - 1));
                write_stderr(&format!("\r\x1b[K{line}"));
            }
        }
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        if self.is_live() {
            write_stderr("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_hides_in_what_is_written() {
        assert_eq!(visible("a\x1b[2J\r\nb\u{202e}"), "a␛[2J\nb<U+202E>");
        let value = json!({ "text": "a\x1b\u{7f}\u{9b}\u{202e}\u{e0041}漢\n" });
        let line = escaped(&value.to_string());
        assert_eq!(line, r#"{"text":"a\u001b\u007f\u009b\u202e\udb40\udc41漢\n"}"#);
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }
}
