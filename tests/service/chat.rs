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
    world::object,
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
fn a_message_is_sent_or_said_not_to_be_whatever_is_shown_then() {
    let served = served();
    let (told, code) = plain(&served, &["chat", "--plain"], "hello\n/new\n");
    assert_eq!((code, served.runs()), (Some(0), 1), "{told}");
    let (told, _) = plain(&served, &["chat", "--plain", "--agent", "nope"], "lost words\n/new\n");
    assert!(told.contains("not sent to the conversation before: lost words: "), "{told}");
    assert_eq!(served.runs(), 1);
    let (told, _) = plain(&served, &["chat", "--plain"], "/agent nope\n/agent\n/stop now\n");
    assert!(told.contains("not opened: there is no agent `nope`; there are: default\n"), "{told}");
    assert!(told.contains("AGENT") && told.contains("/stop takes no argument"), "{told}");
    let (told, code) = plain(&served, &["chat", "--plain"], &"x".repeat((1 << 20) + 1));
    assert!(told.contains("a line of standard input has more than"), "{told}");
    assert_eq!((code, served.runs()), (Some(2), 1));
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

/// The last characters of an id.
fn end_of(id: &str) -> String {
    id[id.len() - 8..].to_owned()
}

#[test]
fn what_waits_elsewhere_is_listed_and_answered() {
    let served = served();
    let (told, _) = plain(&served, &["chat", "--plain"], "/approvals\n/runs\n/tree\n/approve\n");
    assert_eq!(told.matches("note: nothing waits for you\n").count(), 2, "{told}");
    assert!(told.contains("note: there is no run yet\n") && !told.contains("overview:"), "{told}");
    assert!(told.contains("failure: this conversation has no run yet\n"), "{told}");
    plain(&served, &["chat", "--plain"], "ask me\n");
    let listed = object(&served.world.ok(&["approvals", "list", "--json"]));
    let call = listed[0]["call"].as_str().unwrap();
    let (run, place) = call.split_once('.').unwrap();
    let short = format!("{}.{place}", end_of(run));

    let (told, code) = plain(&served, &["chat", "--plain"], "/approvals\n/runs\n/report\n/usage\n/tree\n");
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("overview: 1 waits for you (/approvals)\n"), "{told}");
    assert!(told.contains(&format!("{short}  ask me\n  Which branch?\n")), "{told}");
    assert!(told.contains(&format!("/approve {short} ANSWER\n")), "{told}");
    assert!(told.contains(&format!("{}  waits for you", end_of(run))), "{told}");
    assert!(
        told.contains("\nwaits for you: 1\n") && told.contains("no limits for all runs together"),
        "{told}"
    );
    assert!(
        told.contains("this conversation has no run yet"),
        "another conversation's run is not shown: {told}"
    );

    let wrong = "/approve nonsense\n/deny nonsense\n/approve ZZZZZZZZ.1.1\n/approve 7NA7B9MX\n";
    let (told, _) = plain(&served, &["chat", "--plain"], wrong);
    assert!(told.contains("failure: this conversation asks nothing, and `nonsense` is no id"), "{told}");
    assert_eq!(told.matches("`nonsense` is no id").count(), 2, "{told}");
    assert_eq!(told.matches("there is no run or session").count(), 2, "{told}");
    let (told, _) = plain(&served, &["chat", "--plain"], &format!("/approve {short} main\n"));
    assert!(told.contains(&format!("note: call {call} is answered\n")), "{told}");
    until("the run goes on", || served.world.ok(&["show", "last"]).contains("So main."));
}

#[test]
fn a_conversation_is_named_by_a_part_of_its_id_and_a_wrong_name_keeps_the_present_one() {
    let served = served();
    let session = |served: &Served| {
        let listed = object(&served.world.ok(&["sessions", "list", "--json"]));
        listed.as_array().unwrap().last().unwrap()["id"].as_str().unwrap().to_owned()
    };
    plain(&served, &["chat", "--plain"], "the first\n");
    let first = session(&served);
    plain(&served, &["chat", "--plain"], "the second\n");
    let second = session(&served);
    let order = |served: &Served| {
        let table = served.world.ok(&["sessions", "list"]);
        assert!(table.contains("  the first\n") && table.contains("  the second\n"), "{table}");
        table.find(&first) < table.find(&second)
    };
    assert!(!order(&served), "the one with the latest run comes first");
    let (told, code) = plain(&served, &["attach", &end_of(&first).to_lowercase()], "again\n");
    assert!(code == Some(0) && told.contains("you: the first\n"), "{told}");
    assert!(order(&served));
    for name in [&first, &first.to_lowercase(), &end_of(&first), &first[20..], &first[..24]] {
        let shown = object(&served.world.ok(&["sessions", "show", name, "--json"]));
        assert_eq!(shown["id"], first, "{name}");
    }
    let (told, code) = plain(&served, &["attach", "zzz"], "hello\n");
    assert!(code == Some(2) && told.contains("there is no run or session `zzz`"), "{told}");

    let lines = format!("one\n/resume zzz\ntwo\n/resume {}\nthree\n/resume\n", end_of(&second));
    let (told, code) = plain(&served, &["chat", "--plain"], &lines);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("failure: not opened: there is no run or session `zzz`"), "{told}");
    assert!(told.contains(&format!("conversation: {}  ", end_of(&first))), "{told}");
    let has = |session: &str, text: &str| served.world.ok(&["journal", session]).contains(text);
    let third = session(&served);
    until("the second message is there", || has(&third, "\"two\""));
    until("the third message is there", || has(&second, "\"three\""));
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
    // The call is seen before its question.
    screen.shows("Enter sends what you write as the answer");
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
