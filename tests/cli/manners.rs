//! How the program behaves towards terminals, pipes and other programs.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, Output, Stdio},
};

use hermod_actors::{SanitizedText, model::Kind};
use serde_json::{Value, json};

use crate::{running::texts, server::endpoint, world::World};

#[track_caller]
fn output(command: &mut Command) -> Output {
    let output = command.output().expect("hermod starts");
    assert_eq!(output.status.code(), Some(0), "{}", texts(&output).1);
    output
}

/// A script that says and does things that no terminal should be told.
fn nasty(world: &World) -> String {
    fs::write(world.work().join("\x1b[31mred"), "").expect("written");
    world.script(&json!([
        { "say": "\x1b]0;owned\x07 looking", "call": [{ "tool": "list_files", "arguments": {} }] },
        { "call": [{ "tool": "shell", "arguments": { "command": "printf '\\033[2J' >&2; exit 3" } }] },
        { "say": "done\x1b[2J \u{202e}reversed \u{200b}\u{2028}👩\u{200d}💻" },
    ]))
}

#[test]
fn a_pipe_gets_plain_lines_and_no_control_sequence_of_others() {
    let world = World::new();
    let script = nasty(&world);
    let output = output(world.hermod(&["run", &script, "hi"]).env("TERM", "xterm-256color"));
    let (stdout, stderr) = texts(&output);
    assert_eq!(stdout, "[rehearsal] done␛[2J <U+202E>reversed <U+200B><U+2028>👩\u{200d}💻\n");
    assert!(!stderr.contains(|c: char| c != '\n' && SanitizedText::hides(c)), "{stderr:?}");
    assert!(!stderr.contains('\x1b') && !stderr.contains('\r'), "{stderr:?}");
    for start in [
        "accepted  ",
        "model 1   asks ",
        "tool 1.1  list_files ok in ",
        "tool 2.1  shell exit 3 in ",
        "ended     completed",
    ] {
        assert!(stderr.lines().any(|line| line.starts_with(start)), "no `{start}` in {stderr}");
    }
}

#[test]
fn json_says_exactly_what_there_is_and_hides_nothing() {
    let world = World::new();
    let output = output(&mut world.hermod(&["run", &nasty(&world), "--json", "hi"]));
    let (stdout, _) = texts(&output);
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    let hidden = |c: char| c != '\n' && SanitizedText::hides(c);
    assert!(!stdout.contains(hidden), "{stdout:?}");
    let result: Value = serde_json::from_str(&stdout).expect("one JSON object");
    let answer = "[rehearsal] done\x1b[2J \u{202e}reversed \u{200b}\u{2028}👩\u{200d}💻";
    assert_eq!(result["answer"], answer);
    assert_eq!(result["answer_source"], "final");
    let roles: Vec<_> = result["messages"].as_array().expect("messages").iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant", "tool", "assistant"]);
}

/// Every kind of record that `hermod journal` prints is described in `docs/json.md`.
#[test]
fn every_kind_of_record_is_described() {
    let docs = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/json.md")).expect("docs");
    let described = |kind: &&Kind| docs.contains(&format!("`{}`", kind.name()));
    let missing: Vec<_> = Kind::ALL.iter().filter(|kind| !described(kind)).collect();
    assert!(missing.is_empty(), "{missing:?} are not in docs/json.md");
}

/// Every field of a JSON object that a command prints is described in `docs/json.md`.
#[test]
fn what_is_printed_as_json_is_documented() {
    let world = World::new();
    let script = world.script(&json!([
        { "call": [{ "tool": "list_files", "arguments": {} }] },
        { "say": "done" },
    ]));
    let docs = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/json.md")).expect("docs");
    for args in [
        &["run", &script, "--json", "hi"][..],
        &["runs", "list", "--json"],
        &["runs", "show", "last", "--json"],
        &["sessions", "list", "--json"],
        &["sessions", "show", "last", "--json"],
        &["journal", "last"],
    ] {
        let (stdout, _) = texts(&output(&mut world.hermod(args)));
        for line in stdout.lines() {
            let value: Value = serde_json::from_str(line).expect("JSON");
            let first = value.as_array().map_or(&value, |array| &array[0]);
            for field in first.as_object().expect("an object").keys() {
                assert!(docs.contains(&format!("`{field}`")), "{args:?}: `{field}` is not in docs/json.md");
            }
        }
    }
}

#[test]
fn a_reader_that_leaves_after_the_first_line_ends_it_quietly() {
    let world = World::new();
    output(&mut world.hermod(&["run", &nasty(&world), "hi"]));
    let mut command = world.hermod(&["journal", "last"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("hermod starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.contains("session.opened"), "{line}");
    let mut stderr = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("text");
    assert_eq!((child.wait().expect("it ends").code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn shells_get_their_completions() {
    let world = World::new();
    for (shell, part) in
        [("bash", "complete -F _hermod"), ("zsh", "#compdef hermod"), ("fish", "complete -c hermod")]
    {
        let (script, _) = texts(&output(&mut world.hermod(&["completions", shell])));
        assert!(script.contains(part), "{shell}: {script}");
        assert!(script.contains("journal") && script.contains("rehearse"), "{shell}");
    }
}

#[test]
fn logs_are_written_when_asked_for_with_the_ids_of_what_they_speak_of() {
    let world = World::new();
    let script = world.script(&json!([
        { "call": [{ "tool": "list_files", "arguments": {} }] },
        { "say": "done" },
    ]));
    let (_, quiet) = texts(&output(&mut world.hermod(&["run", &script, "hi"])));
    assert!(!quiet.contains("DEBUG"), "{quiet}");
    let args = ["run", &script, "-vv", "--log-format", "json", "hi"];
    let (stdout, stderr) = texts(&output(&mut world.hermod(&args)));
    assert_eq!(stdout, "[rehearsal] done\n");
    let logs: Vec<Value> =
        stderr.lines().map(|line| serde_json::from_str(line).expect("JSON alone")).collect();
    let said = logs.iter().find(|log| log["target"] == "hermod::cli").expect("progress is logged too");
    let fields = ["timestamp", "level", "message"].map(|field| said[field].is_string());
    assert_eq!(fields, [true; 3], "{said}");
    let recorded = logs.iter().find(|log| log["kind"] == "call.ended").expect("a record is logged");
    assert!(recorded["session"].is_string() && recorded["run"].is_string(), "{recorded}");
    let span = |name: &str| {
        let of = |log: &&Value| log["span"]["name"] == name;
        let log = logs.iter().find(of).unwrap_or_else(|| panic!("no {name} in {stderr}"));
        log["span"].clone()
    };
    for span in [span("tool_call"), span("model_call")] {
        for field in ["session", "run", "call"] {
            assert!(span[field].as_str().is_some_and(|id| id.len() >= 26), "{span}");
        }
    }
}

#[test]
fn where_logs_are_json_everything_at_standard_error_is() {
    let world = World::new();
    let script = world.script(&json!([
        { "call": [{ "tool": "shell", "arguments": { "command": "echo out; exit 3" } }] },
        { "say": "done" },
    ]));
    for (args, code) in [
        (&["run", &script, "hi"][..], 0),
        (&["run", "--verbose", "full", "--show-reasoning", &script, "hi"], 0),
        (&["run", &script, "hi", "--budget", "iterations=1"], 3),
        (&["run", "--resume", "no such"], 2),
        (&["run", "--resume"], 2),
        (&["rum"], 2),
        (&["runs", "resume", "--all", "--wait"], 0),
        (&["journal", "no such"], 2),
    ] {
        let args = [&["--log-format", "json"], args].concat();
        let output = world.run(&args);
        let (_, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(!stderr.is_empty(), "{args:?}");
        for line in stderr.lines() {
            let log: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{args:?}: {line}"));
            assert!(log["message"].is_string() && log["level"].is_string(), "{args:?}: {line}");
        }
    }
}

#[test]
fn quiet_leaves_the_answer_and_errors() {
    let world = World::new();
    let script = world.script(&json!([
        { "call": [{ "tool": "shell", "arguments": { "command": "exit 3" } }] },
        { "say": "done" },
    ]));
    let (stdout, stderr) = texts(&output(&mut world.hermod(&["run", "-q", &script, "hi"])));
    assert_eq!((stdout.as_str(), stderr.as_str()), ("[rehearsal] done\n", ""));
    let budget = world.run(&["run", "-q", &script, "hi", "--budget", "iterations=1"]);
    assert!(texts(&budget).1.starts_with("ended     budget_exhausted"), "{}", texts(&budget).1);
    world.fails(&["run", "-q", "--verbose", "on", "hi"], 2, "cannot be used with");
}

#[test]
fn commands_have_examples() {
    let world = World::new();
    for args in [
        &["--help"][..],
        &["run", "--help"],
        &["runs", "resume", "--help"],
        &["tree", "--help"],
        &["budget", "--help"],
    ] {
        let (help, _) = texts(&output(&mut world.hermod(args)));
        let examples = help.split("Examples:\n").nth(1).unwrap_or_else(|| panic!("{args:?}: {help}"));
        for example in examples.lines().filter(|line| line.contains("hermod ")) {
            assert!(example.len() <= 100, "{example}");
        }
    }
}

/// All bytes below a folder.
fn bytes_below(folder: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        if entry.path().is_dir() {
            bytes.extend(bytes_below(&entry.path()));
        } else if entry.path().is_file() {
            bytes.extend(fs::read(entry.path()).expect("readable"));
        }
    }
    bytes
}

#[test]
fn a_key_is_neither_logged_nor_stored() {
    const KEY: &str = "sk-this-is-the-secret-0123456789";
    let world = World::new();
    let script = world.script(&json!([
        { "call": [{ "tool": "shell", "arguments": { "command": "env" } }] },
        { "say": "done" },
    ]));
    let file = script.strip_prefix("--rehearse=").expect("a file");
    let mut command = world.hermod(&["rehearse", file]);
    let mut model = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("hermod starts");
    let mut base_url = String::new();
    BufReader::new(model.stdout.take().expect("a pipe")).read_line(&mut base_url).expect("a line");
    let refused = endpoint("401 Unauthorized", "application/json", r#"{"error":{"message":"no"}}"#);
    for (base_url, code) in [(base_url.trim(), 0), (&refused, 69)] {
        let mut command = world.hermod(&["run", "--model", "m", "--json", "a task to be found again"]);
        command.envs([("OPENAI_BASE_URL", base_url), ("OPENAI_API_KEY", KEY), ("HERMOD_LOG", "trace")]);
        let output = command.output().expect("hermod starts");
        let (stdout, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains("TRACE"), "everything is logged");
        for (place, text) in [("stdout", stdout.as_bytes()), ("stderr", stderr.as_bytes())] {
            assert!(!contains(text, KEY), "the key is in {place}");
        }
    }
    model.kill().and_then(|()| model.wait()).expect("it ends");
    let state = bytes_below(&world.state());
    assert!(contains(&state, "a task to be found again"), "what is stored can be found");
    assert!(!contains(&state, KEY), "the key is in the state directory");
}

fn contains(bytes: &[u8], part: &str) -> bool {
    bytes.windows(part.len()).any(|window| window == part.as_bytes())
}
