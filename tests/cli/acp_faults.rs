//! `hermod acp` where something goes wrong: editors and owners that are killed, services that are not there, lines that are no
//! requests.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{
    editor::{Editor, SAYS, asking, check_error, check_stopped, greeting, service, waiting},
    running::{Running, until},
    world::World,
};

/// Ends the service in the background, also after a test that fails.
struct Background<'a>(&'a World);

impl Drop for Background<'_> {
    fn drop(&mut self) {
        // There may be none.
        self.0.run(&["drain", "--timeout", "0s"]);
    }
}

/// A scripted model at an endpoint that the configuration names.
fn configured_model(world: &World, scripts: &Value) -> Running {
    let path = world.state().with_file_name("script.json");
    std::fs::write(&path, json!({ "name": "acp", "scripts": scripts }).to_string()).unwrap();
    let mut command = world.hermod(&["rehearse", path.to_str().unwrap()]);
    let mut model = Running::new(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut address = String::new();
    BufReader::new(model.child().stdout.take().unwrap()).read_line(&mut address).unwrap();
    let provider = format!("[providers.mock]\nbase_url = \"{}\"\n", address.trim());
    world.configure(&format!("model = \"mock/rehearsal\"\n{provider}"));
    model
}

fn owner_of(world: &World) -> Pid {
    let status: Value = serde_json::from_str(&world.ok(&["status", "--json"])).unwrap();
    Pid::from_raw(i32::try_from(status["pid"].as_i64().unwrap()).unwrap()).unwrap()
}

#[test]
fn an_editor_that_dies_loses_nothing() {
    let world = World::new();
    let _service = service(&world, &waiting());
    let mut editor = Editor::start(&world);
    let session = editor.new_session();
    editor.send_prompt(&session, "wait");
    until("the command runs", || world.work().join("ran").exists());
    editor.agent.signal(Signal::KILL);
    let mut next = Editor::start(&world);
    let answer = next.load(&session);
    assert!(answer.get("result").is_some(), "{answer}");
    assert_eq!(next.text("user_message_chunk"), "wait");
    assert_eq!(next.updates("tool_call").len(), 1);
    world.release();
    // The run goes on, and the session is followed: its end is shown without a prompt.
    next.until(|line| line["params"]["update"]["content"]["text"] == "[rehearsal] It ended.");
    until("the run ends", || world.ok(&["runs", "list", "--json"]).contains("\"completed\""));
    // Once more: the whole is there.
    next.load(&session);
    assert_eq!(next.text("agent_message_chunk"), "[rehearsal] It ended.");
    let listed = next.call("session/list", json!({ "cwd": next.work }));
    assert_eq!(listed["result"]["sessions"][0]["sessionId"], session, "{listed}");
    assert!(listed["result"]["sessions"].as_array().unwrap().len() == 1);
    let none = next.call("session/list", json!({ "cwd": "/" }));
    assert_eq!(none["result"]["sessions"], json!([]));
    // A resumed session shows nothing of before.
    let mut third = Editor::start(&world);
    let params = json!({ "sessionId": session, "cwd": third.work, "mcpServers": [] });
    assert!(third.call("session/resume", params).get("result").is_some());
    assert!(third.updates("agent_message_chunk").is_empty());
    let id = third.send_prompt(&session, "Hi");
    check_stopped(&third.answer(id), "end_turn");
    assert_eq!(third.text("agent_message_chunk"), "[rehearsal] You said Hi");
}

#[test]
fn a_question_waits_for_the_next_editor() {
    let world = World::new();
    let _service = service(&world, &asking());
    let mut editor = Editor::start(&world);
    let session = editor.new_session();
    editor.send_prompt(&session, "Make it");
    editor.until(|line| line["method"] == "session/request_permission");
    let (code, _) = editor.end();
    assert_eq!(code, Some(0));
    let mut next = Editor::start(&world);
    let params = json!({ "sessionId": session, "cwd": next.work, "mcpServers": [] });
    next.seen.clear();
    next.send("session/load", params);
    next.choose("allow");
    next.until(|line| line["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
    assert!(world.work().join("made").exists());
}

#[test]
fn an_owner_that_is_killed_is_followed_by_the_next_one() {
    let world = World::new();
    let first = service(&world, &waiting());
    let mut editor = Editor::start(&world);
    let session = editor.new_session();
    let id = editor.send_prompt(&session, "wait");
    until("the command runs", || world.work().join("ran").exists());
    first.signal(Signal::KILL);
    drop(first);
    world.release();
    let _second = service(&world, &waiting());
    check_stopped(&editor.answer(id), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "[rehearsal] It ended.");
    assert_eq!(editor.updates("tool_call").len(), 1, "nothing is shown twice");
    assert_eq!(world.times_run(), 1);
}

#[test]
fn what_is_wrong_is_answered_with_an_error() {
    let world = World::new();
    let _service = service(&world, &greeting());
    let mut editor = Editor::start(&world);
    for (line, code, part) in [
        ("{", -32700, ""),
        ("\u{1}", -32700, ""),
        ("[]", -32600, ""),
        ("17", -32600, ""),
        (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, -32600, ""),
    ] {
        editor.write(line);
        let answer = editor.next();
        assert_eq!(answer["id"], Value::Null);
        check_error(&answer, code, part);
    }
    // Neither of these is answered.
    for line in ["", "  ", r#"{"jsonrpc":"2.0","id":99,"result":{}}"#, r#"{"id":98,"result":{}}"#] {
        editor.write(line);
    }
    editor.write(r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"none"}}"#);
    editor.write(r#"{"jsonrpc":"2.0","method":"unknown/notice","params":{}}"#);
    check_error(&editor.call("no/such", json!({})), -32601, "");
    check_error(&editor.call("session/prompt", json!({ "sessionId": 1 })), -32602, "");
    let prompt = json!([{ "type": "text", "text": "hi" }]);
    let unknown = json!({ "sessionId": "none", "prompt": prompt });
    check_error(&editor.call("session/prompt", unknown), -32002, "session `none` is not open");
    for name in ["none", "last", "../x"] {
        check_error(&editor.load(name), -32002, &format!("there is no session `{name}`"));
    }
    let relative = json!({ "cwd": "here", "mcpServers": [] });
    check_error(&editor.call("session/new", relative), -32602, "cwd: `here` is no folder");
    let session = editor.new_session();
    let blank = json!({ "sessionId": session, "prompt": [] });
    check_error(&editor.call("session/prompt", blank), -32602, "neither text nor a picture");
    let image = json!([{ "type": "image", "mimeType": "image/png", "data": "AAAA" }, { "type": "text", "text": "?" }]);
    let damaged = json!({ "sessionId": session, "prompt": image });
    check_error(&editor.call("session/prompt", damaged), -32602, "image");
    // After all that it works.
    let id = editor.send_prompt(&session, "Say hello");
    check_stopped(&editor.answer(id), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), SAYS);
}

#[test]
fn a_closed_session_is_stopped_and_may_be_loaded_again() {
    let world = World::new();
    let _service = service(&world, &waiting());
    let mut editor = Editor::start(&world);
    let session = editor.new_session();
    let id = editor.send_prompt(&session, "wait");
    until("the command runs", || world.work().join("ran").exists());
    let close = editor.send("session/close", json!({ "sessionId": session }));
    let (mut ends, mut reason) = (0, Value::Null);
    while ends < 2 {
        let line = editor.next();
        if line["id"] == id {
            reason = line["result"]["stopReason"].clone();
        }
        ends += usize::from((line["id"] == id || line["id"] == close) && line.get("method").is_none());
    }
    assert_eq!(reason, "cancelled");
    let prompt = json!([{ "type": "text", "text": "hi" }]);
    let closed = editor.call("session/prompt", json!({ "sessionId": session, "prompt": prompt }));
    check_error(&closed, -32002, "is not open");
    assert!(editor.load(&session).get("result").is_some());
    assert_eq!(editor.text("user_message_chunk"), "wait");
}

#[test]
fn without_a_service_one_is_started_and_again_after_a_kill() {
    let world = World::new();
    let _model = configured_model(&world, &waiting());
    let _background = Background(&world);
    let mut editor = Editor::start(&world);
    let session = editor.new_session();
    let id = editor.send_prompt(&session, "wait");
    until("the command runs", || world.work().join("ran").exists());
    kill_process(owner_of(&world), Signal::KILL).unwrap();
    world.release();
    check_stopped(&editor.answer(id), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "[rehearsal] It ended.");
    assert_eq!(world.times_run(), 1);
    assert_eq!(editor.end().0, Some(0));
}

#[test]
fn a_service_that_cannot_be_started_is_an_error() {
    let world = World::new();
    world.configure("model = \"rehearsal/none\"\n");
    std::fs::create_dir_all(world.state()).unwrap();
    std::fs::write(world.state().join("hermod.redb"), "no store").unwrap();
    let mut editor = Editor::start(&world);
    let answer = editor.call("session/new", json!({ "cwd": editor.work, "mcpServers": [] }));
    check_error(&answer, -32603, "the service in the background has ended at its start");
}
