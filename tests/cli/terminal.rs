//! What a person at a terminal sees of `hermod run`: the real binary on a pseudo-terminal.

use std::{
    fs::File,
    io::{Read, Write as _},
    os::fd::{AsFd, OwnedFd},
    process::{Child, Command, Stdio},
    thread,
};

use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use serde_json::{Value, json};

use crate::{
    server::endpoint,
    world::{World, stderr},
};

/// A terminal with so many columns: the end of the program, and of whoever looks at it.
fn terminal(columns: u16) -> (OwnedFd, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&slave, size).unwrap();
    (slave, master)
}

/// What was seen of a program.
struct Seen {
    /// All that was written to the terminal.
    raw: String,
    /// The lines that are left on the screen.
    screen: Vec<String>,
    /// Standard output, if it is not the terminal.
    stdout: String,
    code: Option<i32>,
}

impl Seen {
    fn has(&self, line: &str) -> bool {
        self.screen.iter().any(|seen| seen == line)
    }

    fn count(&self, part: &str) -> usize {
        self.screen.iter().filter(|line| line.contains(part)).count()
    }

    /// Where the first line with this part stands.
    #[track_caller]
    fn at(&self, part: &str) -> usize {
        let at = self.screen.iter().position(|line| line.contains(part));
        at.unwrap_or_else(|| panic!("no line has `{part}`:\n{}", self.screen.join("\n")))
    }
}

/// Reads what a program writes to its terminal, and calls `each` with all that has come so far.
fn read(master: OwnedFd, mut each: impl FnMut(&str)) -> String {
    let (mut master, mut bytes, mut piece) = (File::from(master), Vec::new(), [0; 4096]);
    // The last end that is closed reads as an error.
    while let Ok(count @ 1..) = master.read(&mut piece) {
        bytes.extend_from_slice(&piece[..count]);
        each(&String::from_utf8_lossy(&bytes));
    }
    String::from_utf8(bytes).unwrap()
}

/// Runs on a terminal; with `apart`, standard output is a pipe.
fn see(world: &World, args: &[&str], (set, columns, apart): (&[(&str, &str)], u16, bool)) -> Seen {
    let (slave, master) = terminal(columns);
    let mut command = world.hermod(args);
    let mut child = start(&mut command, set, slave, apart);
    drop(command);
    let stdout = child.stdout.take().map(|mut stdout| {
        thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).map(|_| text)
        })
    });
    let raw = read(master, |_| ());
    let code = child.wait().unwrap().code();
    let stdout = stdout.map_or_else(String::new, |stdout| stdout.join().unwrap().unwrap());
    Seen { screen: screen(&raw), raw, stdout, code }
}

fn start(command: &mut Command, set: &[(&str, &str)], slave: OwnedFd, apart: bool) -> Child {
    command.env("TERM", "xterm-256color").envs(set.iter().copied());
    let stderr = slave.as_fd().try_clone_to_owned().unwrap();
    command.stdout(if apart { Stdio::piped() } else { slave.into() }).stderr(stderr);
    command.spawn().unwrap()
}

/// The lines that a terminal shows in the end: it knows the few sequences that are written.
fn screen(raw: &str) -> Vec<String> {
    let (mut lines, mut row, mut column) = (vec![Vec::new()], 0_usize, 0_usize);
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        match c {
            '\r' => column = 0,
            '\n' => {
                row += 1;
                if row == lines.len() {
                    lines.push(Vec::new());
                }
            }
            '\x1b' => {
                assert_eq!(chars.next(), Some('['), "another sequence");
                let (mut number, mut end) = (String::new(), ' ');
                for c in chars.by_ref() {
                    if c.is_ascii_alphabetic() {
                        end = c;
                        break;
                    }
                    number.push(c);
                }
                match end {
                    'A' => row -= number.parse::<usize>().unwrap(),
                    'J' => {
                        lines.truncate(row + 1);
                        lines[row].truncate(column);
                    }
                    'K' => lines[row].truncate(column),
                    'm' => {}
                    other => panic!("the sequence {number}{other}"),
                }
            }
            c => {
                let line: &mut Vec<char> = &mut lines[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                column += 1;
            }
        }
    }
    lines.into_iter().map(|line| line.into_iter().collect::<String>()).collect()
}

const PLAIN: (&[(&str, &str)], u16, bool) = (&[], 120, false);

fn shell(command: &str) -> Value {
    json!({ "call": [{ "tool": "shell", "arguments": { "command": command } }] })
}

/// An answer that comes in small pieces.
fn slow(text: &str) -> Value {
    json!({ "say": text, "chunk": 4, "chunk_delay": "10ms" })
}

#[test]
fn the_answer_is_shown_as_it_comes_and_once() {
    let world = World::new();
    let script = world.script(&json!([shell("echo printed"), slow("the answer 👩\u{200d}💻 is\nthis one")]));
    let seen = see(&world, &["run", &script, "hi"], PLAIN);
    assert_eq!(seen.code, Some(0));
    assert_eq!(seen.count("the answer"), 1, "{:#?}", seen.screen);
    assert!(seen.has("[rehearsal] the answer 👩\u{200d}💻 is") && seen.has("this one"), "{:#?}", seen.screen);
    // It came before the end of the call was known.
    assert!(seen.at("this one") < seen.at("model 2   answered"), "{:#?}", seen.screen);
    assert!(seen.at("  | printed") > seen.at("shell ok in"), "{:#?}", seen.screen);
    assert!(seen.raw.contains("\x1b[2mmodel 2   answered"), "{:?}", seen.raw);
}

#[test]
fn a_pipe_gets_the_answer_alone_and_the_terminal_the_progress() {
    let world = World::new();
    let script = world.script(&json!([slow("the answer")]));
    let seen = see(&world, &["run", &script, "hi"], (&[], 80, true));
    assert_eq!((seen.stdout.as_str(), seen.code), ("[rehearsal] the answer\n", Some(0)));
    assert_eq!(seen.count("[rehearsal] the answer"), 0, "{:#?}", seen.screen);
    assert!(seen.count("ended     completed") == 1, "{:#?}", seen.screen);
}

#[test]
fn what_does_not_count_is_said_to_be_void() {
    let world = World::new();
    let fault = json!({ "cut_after": 6, "cut": "reset", "times": 1 });
    let mut step = slow("a long answer that is cut once");
    step["fault"] = fault;
    let script = world.script(&json!([step]));
    let seen = see(&world, &["run", &script, "hi"], PLAIN);
    assert_eq!(seen.code, Some(0), "{:#?}", seen.screen);
    let void = seen.at("void      the text above does not count");
    let whole = seen.screen.iter().rposition(|line| line == "[rehearsal] a long answer that is cut once");
    assert!(whole.is_some_and(|whole| whole > void), "{:#?}", seen.screen);
    assert_eq!(seen.count("that is cut once"), 1, "{:#?}", seen.screen);
}

#[test]
fn commands_that_fail_are_red_where_there_is_colour() {
    let world = World::new();
    for (command, shown) in [
        ("false", "shell exit 1 in"),
        ("echo why >&2; exit 3", "shell exit 3 in"),
        ("kill -9 $$", "shell killed by SIGKILL in"),
        ("no-such-command", "shell exit 127 (command not found) in"),
    ] {
        let script = world.script(&json!([shell(command), { "say": "done" }]));
        let seen = see(&world, &["run", &script, "hi"], PLAIN);
        assert!(seen.raw.contains(&format!("\x1b[31mtool 1.1  {shown}")), "{command}: {:#?}", seen.screen);
        let plain = see(&world, &["run", &script, "hi"], (&[("NO_COLOR", "1")], 120, false));
        assert!(plain.count(&format!("tool 1.1  {shown}")) == 1, "{command}: {:#?}", plain.screen);
        assert!(!plain.raw.contains("\x1b[31m") && !plain.raw.contains("\x1b[2m"), "{:?}", plain.raw);
    }
}

#[test]
fn nothing_hides_wherever_it_comes_from() {
    let world = World::new();
    let hidden = "\u{200b}\u{2028}\u{202e}\u{feff}\u{ad}\u{e0041}";
    let shown = "<U+200B><U+2028><U+202E><U+FEFF><U+00AD><U+E0041>";
    std::fs::write(world.work().join(format!("name{hidden}")), "x").unwrap();
    // The policy denies a command that has such characters itself.
    std::fs::write(world.work().join("out"), format!("tool{hidden}\n")).unwrap();
    std::fs::write(world.work().join("err"), format!("why{hidden}\n")).unwrap();
    let print = "cat out; ls; cat err >&2; exit 1";
    let script = world.script(&json!([
        shell(print),
        { "call": [{ "tool": "read_file", "arguments": { "path": format!("no{hidden}") } }] },
        slow(&format!("model{hidden}")),
    ]));
    let seen = see(&world, &["run", &script, &format!("input{hidden}")], PLAIN);
    let is_hidden = |c: char| hidden.contains(c);
    assert!(!seen.raw.contains(is_hidden), "{:#?}", seen.screen);
    for part in ["  | tool", "  | name", ": why", "no", "[rehearsal] model"] {
        assert!(seen.count(&format!("{part}{shown}")) > 0, "{part}: {:#?}", seen.screen);
    }
    for args in [&["runs", "show", "last"][..], &["show", "last"], &["tree", "last"], &["runs", "list"]] {
        let text = world.ok(args);
        assert!(!text.contains(is_hidden), "{args:?}: {text:?}");
    }
    assert!(world.ok(&["runs", "show", "last"]).contains(&format!("input{shown}")));
}

/// The terminal's bytes without the sequences that Hermod writes itself.
fn without_own_sequences(raw: &str) -> String {
    let (mut rest, mut foreign) = (raw, String::new());
    while let Some(at) = rest.find('\x1b') {
        foreign.push_str(&rest[..at]);
        let sequence = &rest[at + 1..];
        let end = sequence.find(|c: char| c.is_ascii_alphabetic()).filter(|_| sequence.starts_with('['));
        let end = end.filter(|end| matches!(sequence.as_bytes()[*end], b'm' | b'A' | b'J' | b'K'));
        rest = if let Some(end) = end {
            &sequence[end + 1..]
        } else {
            foreign.push('\x1b');
            sequence
        };
    }
    foreign + rest
}

#[test]
fn control_sequences_of_models_and_tools_reach_no_terminal() {
    let world = World::new();
    // A title, the clipboard, another screen, a request for the position, C1 codes, and a reversal.
    let hostile =
        "\x1b]0;title\x07\x1b]52;c;eA==\x1b\\\x1b[?1049h\x1b[6n\u{9b}5n\u{9d}0;x\u{9c}\u{202e}\u{8}\x0c";
    let print = "printf 'tool\\033]0;title\\007\\033[?1049h\\302\\233'; printf 'why\\033[6n' >&2; exit 1";
    let script = world.script(&json!([
        {
            "think": format!("thought{hostile}"),
            "say": format!("model{hostile}"),
            "call": [
                { "tool": "shell", "arguments": { "command": print } },
                { "tool": "read_file", "arguments": { "path": format!("no{hostile}") } },
                { "tool": format!("unknown{hostile}"), "arguments": {} },
                { "tool": "todo", "arguments": { "todos": [{ "content": format!("item{hostile}"), "status": "pending" }] } },
            ],
        },
        slow(&format!("answer{hostile}")),
    ]));
    let input = format!("input{hostile}");
    let run = ["run", "--verbose", "full", "--session", "s", &script, &input];
    let commands: [&[&str]; 15] = [
        &run,
        &[&run[..], &["--json"]].concat(),
        &["runs", "show", "last"],
        &["runs", "show", "last", "--json"],
        &["runs", "list"],
        &["tree", "last"],
        &["sessions", "list"],
        &["sessions", "show", "s"],
        &["journal", "last"],
        &["runs", "show", hostile],
        &["show", "last", "--full"],
        &["show", "last", "--format", "markdown"],
        &["show", "last", "--json"],
        &["report"],
        &["approvals", "list"],
    ];
    let logged: &[(&str, &str)] = &[("HERMOD_LOG", "trace")];
    for (args, set) in commands.into_iter().flat_map(|args| [(args, &[][..]), (args, logged)]) {
        let seen = see(&world, args, (set, 200, false));
        let foreign = without_own_sequences(&seen.raw).replace("\r\n", "\n").replace('\r', "");
        let found = foreign.find(|c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}');
        assert_eq!(found.map(|at| foreign[at..].chars().take(40).collect::<String>()), None, "{args:?}");
    }
}

#[test]
fn a_secret_in_a_streamed_answer_is_redacted_before_it_is_whole() {
    let world = World::new();
    let secret = "dpl-7f3a91c2e84b4d06b5";
    let mut answer = slow(&format!("it is {secret}, dpl-7f3a: {secret}"));
    answer["think"] = json!(format!("so {secret}"));
    let script = world.script(&json!([answer]));
    let args = ["run", "--show-reasoning", &script, "hi"];
    let seen = see(&world, &args, (&[("DEPLOY_TOKEN", secret)], 120, false));
    let mark = "[redacted:DEPLOY_TOKEN]";
    assert!(seen.has(&format!("[rehearsal] it is {mark}, dpl-7f3a: {mark}")), "{:#?}", seen.screen);
    assert!(seen.has(&format!("> so {mark}")), "{:#?}", seen.screen);
    // Neither whole nor as a beginning that the next frame replaced.
    assert_eq!(seen.raw.matches("dpl-7f3a").count(), 1, "{:?}", seen.raw);
}

#[test]
fn what_a_vendor_says_hides_nothing() {
    let world = World::new();
    let body = "{\"error\":{\"message\":\"vendor\u{200b}\u{2028}\x1b[2J\"}}";
    let base = endpoint("400 Bad Request", "application/json", body);
    let set = [("OPENAI_BASE_URL", base.as_str()), ("OPENAI_API_KEY", "k")];
    let seen = see(&world, &["run", "--model", "m", "hi"], (&set, 120, false));
    assert_eq!(seen.code, Some(1), "{:#?}", seen.screen);
    assert!(seen.count("vendor<U+200B>") > 0, "{:#?}", seen.screen);
    assert!(!seen.raw.contains(['\u{200b}', '\u{2028}']), "{:?}", seen.raw);
}

#[test]
fn a_terminal_that_cannot_move_its_cursor_gets_plain_lines() {
    let world = World::new();
    let mut answer = slow("the answer");
    answer["think"] = json!("let me see");
    let script = world.script(&json!([shell("echo printed"), answer]));
    let args = ["run", "--show-reasoning", &script, "hi"];
    let seen = see(&world, &args, (&[("TERM", "dumb")], 120, false));
    assert!(!seen.raw.contains('\x1b'), "{:?}", seen.raw);
    assert_eq!(seen.count("the answer"), 1, "{:#?}", seen.screen);
    assert!(seen.has("> let me see") && seen.has("[rehearsal] the answer"), "{:#?}", seen.screen);
    assert!(seen.has("  | printed"), "{:#?}", seen.screen);
}

#[test]
fn a_locale_without_utf_8_gets_ascii() {
    let world = World::new();
    let script = world.script(&json!([shell("sleep 0.3"), { "say": "x".repeat(200) }]));
    let seen = see(&world, &["run", &script, &"x".repeat(200)], (&[("LC_ALL", "C")], 40, false));
    assert!(seen.raw.is_ascii(), "{:?}", seen.raw);
    assert!(seen.raw.contains("...") && ["- ", "\\ ", "| ", "/ "].iter().any(|sign| seen.raw.contains(sign)));
}

#[test]
fn nothing_that_is_drawn_over_is_wider_than_the_terminal() {
    let world = World::new();
    let script =
        world.script(&json!([shell(&format!("echo {}; sleep 0.4", "漢".repeat(90))), { "say": "ok" }]));
    let seen = see(&world, &["run", &script, "hi"], (&[], 40, true));
    // A frame stands between two places where the one before is erased.
    let frames = seen.raw.split("\x1b[J").filter_map(|frame| Some(frame.rsplit_once('\r')?.0));
    let drawn: Vec<&str> = frames.flat_map(str::lines).filter(|line| !line.contains("\x1b[2m")).collect();
    let is_drawn =
        |line: &&&str| line.starts_with(|c| ('⠀'..='⣿').contains(&c)) || line.starts_with("           |");
    let drawn: Vec<_> = drawn.iter().filter(is_drawn).collect();
    for line in &drawn {
        let columns: usize = line.trim_end().chars().map(|c| if c == '漢' { 2 } else { 1 }).sum();
        assert!(columns < 40, "{columns}: {line:?}");
    }
    assert!(drawn.len() > 2, "{:?}", seen.raw);
    assert!(seen.raw.contains("           | 漢"), "{:?}", seen.raw);
}

#[test]
fn who_wants_quiet_gets_the_answer_alone() {
    let world = World::new();
    let script = world.script(&json!([shell("exit 3"), { "say": "the answer" }]));
    let seen = see(&world, &["run", "--quiet", &script, "hi"], PLAIN);
    assert_eq!((seen.raw.as_str(), seen.code), ("[rehearsal] the answer\r\n", Some(0)));
}

#[test]
fn thoughts_are_shown_to_who_asks_for_them() {
    let world = World::new();
    let script = world.script(&json!([{ "think": "let me see\u{200b}\nyes", "say": "the answer" }]));
    let thought = |seen: &Seen| seen.has("> let me see<U+200B>") && seen.has("> yes");
    let seen = see(&world, &["run", &script, "hi"], PLAIN);
    assert!(!thought(&seen), "{:#?}", seen.screen);
    for args in
        [&["run", "--show-reasoning", &script, "hi"][..], &["run", "--verbose", "full", &script, "hi"]]
    {
        let seen = see(&world, args, PLAIN);
        assert!(thought(&seen) && seen.at("> yes") < seen.at("[rehearsal] the answer"), "{:#?}", seen.screen);
    }
    let piped = world.run(&["run", "--show-reasoning", &script, "hi"]);
    assert!(stderr(&piped).contains("> let me see<U+200B>\n> yes\n"), "{}", stderr(&piped));
}

#[test]
fn ctrl_c_says_how_to_go_on() {
    let world = World::new();
    let script = world.script(&json!([shell("sleep 30"), { "say": "done" }]));
    let (slave, master) = terminal(120);
    let mut command = world.hermod(&["run", &script, "hi"]);
    let mut child = start(&mut command, &[], slave, false);
    drop(command);
    let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    let mut sent = false;
    let raw = read(master, |so_far| {
        if !sent && so_far.contains("tool 1.1  shell") {
            sent = true;
            kill_process(pid, Signal::INT).unwrap();
        }
    });
    assert_eq!(child.wait().unwrap().code(), Some(130), "{raw:?}");
    let lines = screen(&raw);
    let has = |part: &str| lines.iter().any(|line| line.starts_with(part));
    assert!(has("interrupt the run is being stopped; again leaves it unfinished"), "{lines:#?}");
    assert!(has("continue  `hermod run --resume "), "{lines:#?}");
}

#[test]
fn subagents_stand_in_the_progress_of_their_run() {
    let world = World::new();
    let task = json!({ "tool": "delegate_task", "arguments": { "goal": "child's work" } });
    let script = json!({ "name": "t", "scripts": [
        { "when": "child's work", "steps": [shell("sleep 1.2"), { "say": "child done" }] },
        { "steps": [{ "call": [task] }, { "say": "parent done" }] },
    ] });
    let path = world.work().join("../two.json");
    std::fs::write(&path, script.to_string()).unwrap();
    let rehearse = format!("--rehearse={}", path.display());
    let seen = see(&world, &["run", &rehearse, "hi"], PLAIN);
    assert_eq!(seen.code, Some(0), "{:#?}", seen.screen);
    assert!(seen.raw.contains("└─ ") && seen.raw.contains("\"child's work\""), "{:?}", seen.raw);
    assert!(seen.raw.contains("runs shell"), "{:?}", seen.raw);
    assert!(seen.count("└─") == 0, "what is drawn over is gone: {:#?}", seen.screen);
    assert!(seen.at("subagent  ") > seen.at(", subagent "), "{:#?}", seen.screen);
}

#[test]
fn a_transcript_is_coloured_on_a_terminal_only() {
    let world = World::new();
    let script = world.script(&json!([
        { "call": [{ "tool": "read_file", "arguments": { "path": "absent" } }] },
        { "say": "漢字 done" },
    ]));
    world.ok(&["run", &script, "the task 漢字漢字漢字漢字漢字漢字漢字漢字漢字"]);
    let seen = see(&world, &["show"], PLAIN);
    assert!(seen.raw.contains("\x1b[31mtool 1.1  read_file error"), "{:?}", seen.raw);
    assert!(seen.has("answer    [rehearsal] 漢字 done"), "{:#?}", seen.screen);
    let seen = see(&world, &["show"], (&[("NO_COLOR", "1")], 200, false));
    assert!(!seen.raw.contains('\x1b'), "{:?}", seen.raw);
    assert!(!world.ok(&["show"]).contains('\x1b'));
    // The most important columns stay on a narrow terminal, and no line is longer than it.
    let seen = see(&world, &["runs", "list"], (&[], 60, false));
    assert!(seen.screen[1].contains("completed") && seen.screen[1].contains('…'), "{:#?}", seen.screen);
    let columns =
        |line: &String| line.chars().map(|c| if ('一'..='龥').contains(&c) { 2 } else { 1 }).sum::<usize>();
    assert!(seen.screen.iter().all(|line| columns(line) <= 60), "{:#?}", seen.screen);
}

#[test]
fn a_first_configuration_is_asked_for() {
    let world = World::new();
    let config = world.work().join("../asked.toml");
    let key = "sk-live-typed-by-mistake";
    let set = [("HERMOD_CONFIG", config.to_str().unwrap()), ("HERMOD_OLLAMA__ADDRESS", "127.0.0.1:1")];
    let (slave, master) = terminal(200);
    let mut command = world.hermod(&["init"]);
    command.stdin(slave.as_fd().try_clone_to_owned().unwrap());
    let mut child = start(&mut command, &set, slave, false);
    drop(command);
    let mut keyboard = File::from(master.try_clone().unwrap());
    // What is asked, and what is typed then.
    let mut answers = vec![
        ("Which provider [1]?", "9"),
        ("give a number from 1 to 3", "anthropic"),
        ("Which model [", ""),
        ("Where is its key read from", key),
        ("the key itself does not belong into the file", "env:MY_KEY"),
    ]
    .into_iter();
    let mut next = answers.next();
    let raw = read(master, |seen| {
        while let Some((_, answer)) = next.filter(|(question, _)| seen.contains(question)) {
            writeln!(keyboard, "{answer}").unwrap();
            next = answers.next();
        }
    });
    assert_eq!(child.wait().unwrap().code(), Some(0), "{raw}");
    assert_eq!(next, None, "{raw}");
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(text.contains("model = \"anthropic/") && text.contains("credential = \"env:MY_KEY\""), "{text}");
    assert!(!text.contains(key), "{text}");
}
