//! The chat: plain over pipes, and on the whole screen of a pseudo-terminal.

use std::{
    fs::File,
    io::{Read as _, Write},
    num::NonZero,
    os::fd::{AsFd as _, OwnedFd},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use rustix::{
    fs::{Mode, OFlags},
    process::Signal,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};
use serde_json::{Value, json};

use crate::{
    running::{Running, texts, until},
    served::Served,
};

/// A command that waits, a question of the model, and an echo of anything else.
fn scripts() -> Value {
    json!([
        { "when": "ask me", "steps": [
            { "call": [{ "tool": "clarify", "arguments": { "question": "Which branch?" } }] },
            { "say": "So {{result:1.1}}." },
        ] },
        { "when": "wait", "steps": [
            { "call": [{ "tool": "shell", "arguments": { "command": "touch began; sleep 60" } }] },
            { "say": "It is over." },
        ] },
        { "steps": [{ "say": "You said **{{user}}**." }] },
    ])
}

fn served() -> Served {
    Served::start_with((crate::world::World::new(), &scripts()), |_| {
        vec![("HERMOD_APPROVALS__APPROVER", "person".into())]
    })
}

/// The output of a plain chat with these lines.
#[track_caller]
fn plain(served: &Served, args: &[&str], lines: &str) -> (String, Option<i32>) {
    let mut command = served.world.hermod(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running::new(command.spawn().unwrap());
    running.child().stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = running.end();
    let (stdout, stderr) = texts(&output);
    (format!("{stdout}{stderr}"), output.status.code())
}

#[test]
fn lines_are_answered_over_pipes_and_found_again() {
    let served = served();
    let (told, code) = plain(&served, &["chat", "--plain"], "hello\n");
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("answer:\n[rehearsal] You said **hello**.\ndone: completed\n"), "{told}");
    let (told, _) = plain(&served, &["attach"], "/help\nagain\n");
    assert!(told.contains("you: hello\n") && told.contains("You said **again**"), "{told}");
    assert!(told.contains("/resume [ID]"), "{told}");
    assert_eq!(served.runs(), 2);
}

#[test]
fn a_question_is_left_to_others_at_the_end_of_the_input() {
    let served = served();
    let (told, code) = plain(&served, &["chat", "--plain"], "ask me\n");
    assert!(told.contains("question: Which branch?") && told.contains("hermod attach"), "{told}");
    assert_eq!(code, Some(6), "{told}");
    served.world.ok(&["approvals", "answer", "last", "main"]);
    until("the run goes on", || served.world.ok(&["runs", "list", "--json"]).contains("completed"));
}

#[test]
fn without_a_terminal_and_without_arguments_there_is_the_help() {
    let served = served();
    served.world.fails(&[], 2, "Usage: hermod");
}

/// The size of the terminal.
const ROWS: NonZero<u16> = NonZero::new(24).unwrap();
const COLUMNS: NonZero<u16> = NonZero::new(80).unwrap();

/// A chat on a pseudo-terminal.
struct Screen {
    running: Running,
    keys: File,
    terminal: OwnedFd,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Screen {
    fn open(served: &Served, args: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let terminal = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let size = Winsize { ws_row: ROWS.get(), ws_col: COLUMNS.get(), ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let end = || terminal.as_fd().try_clone_to_owned().unwrap();
        let mut command: Command = served.world.hermod(args);
        command.env("TERM", "xterm-256color").stdin(end()).stdout(end()).stderr(end());
        let running = Running::new(command.spawn().unwrap());
        let (keys, mut output) = (File::from(master.try_clone().unwrap()), File::from(master));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&seen);
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut piece) {
                to.lock().unwrap().extend_from_slice(&piece[..count]);
            }
        });
        Self { running, keys, terminal, seen }
    }

    fn press(&self, keys: &str) {
        (&self.keys).write_all(keys.as_bytes()).unwrap();
    }

    /// What the terminal shows.
    fn text(&self) -> String {
        let mut terminal = vt100::Parser::new(ROWS, COLUMNS, 0);
        terminal.process(&self.seen.lock().unwrap());
        terminal.screen().contents()
    }

    /// Waits until the terminal shows a text.
    #[track_caller]
    fn shows(&self, part: &str) {
        until(part, || self.text().contains(part));
    }

    /// Leaves the chat; the terminal is as it was.
    #[track_caller]
    fn leave(self) -> String {
        self.press("\x15\x04");
        let (seen, terminal) = (Arc::clone(&self.seen), self.terminal.as_fd().try_clone_to_owned().unwrap());
        assert_eq!(self.running.end().status.code(), Some(0));
        is_restored(&terminal);
        String::from_utf8_lossy(&seen.lock().unwrap()).into_owned()
    }
}

#[track_caller]
fn is_restored(terminal: &OwnedFd) {
    let modes = tcgetattr(terminal).unwrap().local_modes;
    assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
}

#[test]
fn a_conversation_on_the_screen_outlives_the_service_and_the_terminal() {
    let mut served = served();
    let screen = Screen::open(&served, &["chat"]);
    screen.shows("new conversation");
    screen.press("hello\r");
    screen.shows("[rehearsal] You said hello.");
    served.kill();
    served.start_again();
    screen.press("once more\r");
    screen.shows("[rehearsal] You said once more.");
    assert_eq!(served.runs(), 2, "no message was sent twice");
    // The terminal is gone.
    screen.running.signal(Signal::KILL);
    screen.running.end();
    let screen = Screen::open(&served, &["attach"]);
    screen.shows("[rehearsal] You said once more.");
    let told = screen.leave();
    assert!(told.contains("Come back with: hermod attach"), "{told:?}");
}

#[test]
fn escape_stops_the_run_and_questions_are_answered() {
    let served = served();
    let screen = Screen::open(&served, &[]);
    screen.shows("new conversation");
    screen.press("wait\r");
    until("the command runs", || served.world.work().join("began").exists());
    screen.press("look here\r");
    screen.shows("look here");
    screen.press("\x1b");
    // Bytes that follow at once would make another key of it.
    until("the run is stopped", || served.world.ok(&["runs", "list", "--json"]).contains("\"stopped\""));
    screen.shows("stopped");
    screen.press("ask me\r");
    screen.shows("Which branch?");
    screen.press("main\r");
    screen.shows("So main.");
    screen.leave();
}

#[test]
fn a_signal_restores_the_terminal() {
    let served = served();
    for signal in [Signal::TERM, Signal::HUP] {
        let screen = Screen::open(&served, &["chat"]);
        screen.shows("new conversation");
        let terminal = screen.terminal.as_fd().try_clone_to_owned().unwrap();
        assert!(!tcgetattr(&terminal).unwrap().local_modes.contains(LocalModes::ICANON));
        screen.running.signal(signal);
        screen.running.end();
        is_restored(&terminal);
    }
}
