//! Whatever is wrong outside: a message that says what, the exit code that says whose fault it is, and no panic.

use std::{fs, io::Read as _, net::TcpListener, path::Path, process::Command};

use serde_json::{Value, json};

use crate::{running::texts, server::endpoint, world::World};

/// What is done, that it is told with `part`, and that it ends with `code`.
#[track_caller]
fn check(command: &mut Command, part: &str, code: i32) {
    let output = command.output().expect("hermod starts");
    let (_, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(part), "no `{part}` in: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

/// Asks the endpoint at `base_url`.
#[track_caller]
fn check_endpoint(base_url: &str, part: &str, code: i32) {
    let world = World::new();
    let mut command = world.hermod(&["run", "--model", "nope", "hi"]);
    check(command.envs([("OPENAI_BASE_URL", base_url), ("OPENAI_API_KEY", "sk-wrong")]), part, code);
    // What went wrong is on disk with the run, and nothing is half-written.
    let shown = world.hermod(&["runs", "show", "last", "--json"]).output().expect("hermod starts");
    let row: Value = serde_json::from_slice(&shown.stdout).expect("one JSON object");
    assert_eq!(row["outcome"], "failed", "{row}");
}

#[test]
fn a_key_that_is_not_accepted() {
    let body = r#"{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}"#;
    check_endpoint(&endpoint("401 Unauthorized", "application/json", body), "auth: ", 69);
}

#[test]
fn an_endpoint_that_is_down() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    check_endpoint(&format!("http://{address}/v1"), "network: ", 69);
}

#[test]
fn a_page_instead_of_an_answer() {
    let page = "<!doctype html><html><title>Welcome</title>";
    check_endpoint(&endpoint("200 OK", "text/html", page), "not_an_api: ", 69);
}

#[test]
fn an_unknown_model() {
    let body = r#"{"error":{"message":"The model `nope` does not exist","code":"model_not_found"}}"#;
    check_endpoint(&endpoint("404 Not Found", "application/json", body), "model_not_found: ", 69);
}

#[test]
fn an_unknown_provider() {
    let world = World::new();
    check(&mut world.hermod(&["run", "--provider", "acme", "hi"]), "there is no provider `acme`", 78);
    let mut command = world.hermod(&["run", "--provider", "openai/", "hi"]);
    check(command.env("OPENROUTER_API_KEY", "sk-1"), "configured are: openrouter", 78);
}

#[test]
fn an_empty_task() {
    let world = World::new();
    for text in ["", " \n\t"] {
        check(&mut world.hermod(&["run", "--rehearse", text]), "TEXT is empty; say what is to be done", 2);
    }
    check(&mut world.hermod(&["run", "--rehearse", "-"]), "TEXT is empty; say what is to be done", 2);
    assert!(!world.state().exists(), "nothing was begun");
}

#[test]
fn a_missing_workspace() {
    let world = World::new();
    check(&mut world.hermod(&["run", "--rehearse", "--workspace", "nowhere", "hi"]), "--create makes it", 2);
    fs::write(world.work().join("file"), "").expect("written");
    check(&mut world.hermod(&["run", "--rehearse", "--workspace", "file", "hi"]), "file", 2);
}

#[test]
fn a_state_directory_that_cannot_be_written() {
    let world = World::new();
    let file = world.work().join("file");
    fs::write(&file, "").expect("written");
    // The first is in nobody's power, not even the superuser's.
    for place in [Path::new("/proc/hermod"), &file.join("below")] {
        for args in [&["run", "--rehearse", "hi"][..], &["runs", "list"]] {
            let part = format!("{}: ", place.display());
            check(world.hermod(args).env("HERMOD_HOME", place), &part, 74);
        }
    }
}

#[test]
fn a_corrupt_store() {
    let world = World::new();
    let script = world.script(&json!([{ "say": "done" }]));
    let run = world.hermod(&["run", &script, "hi"]).output().expect("hermod starts");
    assert_eq!(run.status.code(), Some(0), "{}", texts(&run).1);
    let stores = fs::read_dir(world.state()).expect("a state directory").flatten();
    let store = stores.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "redb"));
    let store = store.expect("a store");
    fs::write(&store, "this is no store ".repeat(1000)).expect("written");
    for args in [&["run", &script, "hi"][..], &["runs", "list"], &["journal", "last"]] {
        check(&mut world.hermod(args), &store.display().to_string(), 74);
    }
}

#[test]
fn a_closed_standard_error_loses_nothing_but_the_log() {
    let world = World::new();
    let script = world.script(&json!([{ "say": "hello" }]));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = world.hermod(&["-vv", "run", &script, "hi"]).stderr(writer).output().expect("it starts");
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"[rehearsal] hello\n"[..]));
}

#[test]
fn a_reader_that_waits_keeps_nobody_from_the_store() {
    let world = World::new();
    let long = "x".repeat(10_000);
    let say = |n| {
        let command = format!("echo {n} {long}");
        json!({ "call": [{ "tool": "shell", "arguments": { "command": command } }] })
    };
    let steps: Vec<_> = (0..20).map(say).chain([json!({ "say": "hello" })]).collect();
    let script = world.script(&json!(steps));
    check(&mut world.hermod(&["run", &script, "hi"]), "ended     completed", 0);
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let mut waiting = world.hermod(&["journal", "last"]).stdout(writer).spawn().expect("it starts");
    let mut begun = [0];
    reader.read_exact(&mut begun).expect("the first record");
    check(&mut world.hermod(&["run", &script, "again"]), "ended     completed", 0);
    drop(reader);
    assert_eq!(waiting.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_closed_standard_output() {
    let world = World::new();
    let script = world.script(&json!([{ "say": "hello" }]));
    let closed = |args: &[&str]| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = world.hermod(args);
        command.stdout(writer);
        command
    };
    check(&mut closed(&["run", &script, "hi"]), "ended     completed", 0);
    for args in [
        &["run", &script, "--json", "hi"][..],
        &["runs", "list"],
        &["runs", "show", "last", "--json"],
        &["sessions", "list", "--json"],
        &["journal", "last"],
        &["completions", "bash"],
        &["--help"],
    ] {
        check(&mut closed(args), "", 0);
    }
}
