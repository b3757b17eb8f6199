//! `hermod acp`, as an editor drives it: lines of JSON at its standard input and output, a service beside it.

use std::{
    io::{BufRead, BufReader, Write},
    process::{ChildStdin, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    running::{Lines, Running, until},
    world::World,
};

/// A service whose model plays these scripts, with a person as approver.
fn service(world: &World, scripts: &Value) -> Running {
    world.configure("[approvals]\napprover = \"person\"\n[policy]\nask = [\"shell(touch *)\"]\n[agents.reviewer]\ndescription = \"Reads\"\n");
    let path = world.state().with_file_name("script.json");
    let text = json!({ "name": "acp", "nudges": ["/^Please/"], "scripts": scripts }).to_string();
    std::fs::write(&path, text).unwrap();
    let script = format!("--rehearse={}", path.display());
    let mut service = world.running(&["serve", &script, "--listen", "127.0.0.1:0"]);
    Lines::of(&mut service).until("serving");
    service
}

/// An editor.
struct Editor {
    agent: Running,
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<Value>,
    requests: u64,
    /// What the agent has sent since the last request.
    seen: Vec<Value>,
    work: String,
}

impl Editor {
    fn start(world: &World) -> Self {
        Self::with(world, &json!({}))
    }

    /// An editor with these capabilities.
    fn with(world: &World, can: &Value) -> Self {
        let mut command = world.hermod(&["acp"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut agent = Running::new(command.spawn().unwrap());
        let (input, output) = (agent.child().stdin.take(), agent.child().stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                // Whatever is no JSON fails here, and the test with it.
                let line = serde_json::from_str(&line.unwrap()).expect("only protocol lines");
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let work = world.work().to_str().unwrap().to_owned();
        let mut editor = Self { agent, input, lines, requests: 0, seen: Vec::new(), work };
        let answer = editor.call("initialize", json!({ "protocolVersion": 1, "clientCapabilities": can }));
        assert_eq!(answer["result"]["protocolVersion"], 1);
        assert_eq!(answer["result"]["agentCapabilities"]["loadSession"], true);
        editor
    }

    fn write(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.requests += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.requests, "method": method, "params": params });
        self.write(&request.to_string());
        self.requests
    }

    #[track_caller]
    fn next(&mut self) -> Value {
        let line = self.lines.recv_timeout(Duration::from_mins(1)).expect("a line of the agent");
        self.seen.push(line.clone());
        line
    }

    /// Reads on to a line for which this holds.
    #[track_caller]
    fn until(&mut self, holds: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.next();
            if holds(&line) {
                return line;
            }
        }
    }

    /// Reads on to the answer to a request.
    #[track_caller]
    fn answer(&mut self, id: u64) -> Value {
        self.until(|line| line["id"] == id && line.get("method").is_none())
    }

    #[track_caller]
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.seen.clear();
        let id = self.send(method, params);
        self.answer(id)
    }

    #[track_caller]
    fn new_session(&mut self) -> String {
        let answer = self.call("session/new", json!({ "cwd": self.work, "mcpServers": [] }));
        answer["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    fn send_prompt(&mut self, session: &str, text: &str) -> u64 {
        self.seen.clear();
        let prompt = json!([{ "type": "text", "text": text }]);
        self.send("session/prompt", json!({ "sessionId": session, "prompt": prompt }))
    }

    fn cancel(&mut self, session: &str) {
        let params = json!({ "sessionId": session });
        let line = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params });
        self.write(&line.to_string());
    }

    /// Reads on to a question, and chooses an option.
    #[track_caller]
    fn choose(&mut self, option: &str) -> Value {
        let asked = self.until(|line| line["method"] == "session/request_permission");
        let outcome = json!({ "outcome": "selected", "optionId": option });
        let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "outcome": outcome } });
        self.write(&answer.to_string());
        asked
    }

    #[track_caller]
    fn load(&mut self, session: &str) -> Value {
        let params = json!({ "sessionId": session, "cwd": self.work, "mcpServers": [] });
        self.call("session/load", params)
    }

    /// The updates of one kind since the last request.
    fn updates(&self, kind: &str) -> Vec<&Value> {
        let updates = self.seen.iter().map(|line| &line["params"]["update"]);
        updates.filter(|update| update["sessionUpdate"] == kind).collect()
    }

    /// The chunks of one kind since the last request, joined.
    fn text(&self, kind: &str) -> String {
        self.updates(kind).iter().filter_map(|update| update["content"]["text"].as_str()).collect()
    }

    /// Closes the input; returns the exit code and standard error.
    fn end(mut self) -> (Option<i32>, String) {
        drop(self.input.take());
        let output = self.agent.end();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[track_caller]
fn check_stopped(answer: &Value, reason: &str) {
    assert_eq!(answer["result"]["stopReason"], reason, "{answer}");
}

#[track_caller]
fn check_error(answer: &Value, code: i64, part: &str) {
    let error = &answer["error"];
    assert_eq!(error["code"], code, "{answer}");
    assert!(error["message"].as_str().unwrap().contains(part), "{answer}");
}

const SAYS: &str = "[rehearsal] Hello, this comes in pieces.";

fn greeting() -> Value {
    let say = SAYS.strip_prefix("[rehearsal] ").unwrap();
    json!([{ "steps": [{ "think": "I ponder", "say": say, "chunk": 5, "chunk_delay": "5ms" }] }])
}

#[test]
fn a_prompt_is_answered_in_pieces() {
    let world = World::new();
    let _service = service(&world, &greeting());
    let mut editor = Editor::start(&world);
    let session = editor.new_session();
    let id = editor.send_prompt(&session, "Say hello");
    let end = editor.answer(id);
    check_stopped(&end, "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), SAYS);
    assert!(editor.updates("agent_message_chunk").len() > 1, "it is streamed");
    assert_eq!(editor.text("agent_thought_chunk"), "I ponder");
    assert!(editor.updates("user_message_chunk").is_empty(), "the editor shows its own prompt");
    let (code, stderr) = editor.end();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
}

#[test]
fn tool_calls_are_shown_with_differences_output_and_plan() {
    let world = World::new();
    let todo = json!([{ "id": "1", "content": "Write", "status": "in_progress" },
        { "id": "2", "content": "Rest", "status": "cancelled" }]);
    let steps = json!([
        { "call": [{ "tool": "todo", "arguments": { "todos": todo } }] },
        { "call": [{ "tool": "write_file", "arguments": { "path": "a.txt", "content": "one\n" } },
            { "tool": "read_file", "arguments": { "path": "none.txt" } }] },
        { "call": [{ "tool": "edit_file", "arguments": { "path": "a.txt", "edits": [{ "old": "one", "new": "two" }] } }] },
        { "call": [{ "tool": "shell", "arguments": { "command": "cat a.txt; exit 3" } }] },
        { "say": "Done." },
    ]);
    let _service = service(&world, &json!([{ "steps": steps }]));
    let mut editor = Editor::start(&world);
    let session = editor.new_session();
    let id = editor.send_prompt(&session, "Work");
    check_stopped(&editor.answer(id), "end_turn");
    let plan = editor.updates("plan");
    let entry = json!({ "content": "Write", "priority": "medium", "status": "in_progress" });
    assert_eq!(plan[0]["entries"], json!([entry]));
    let calls = editor.updates("tool_call");
    let titles: Vec<&str> = calls.iter().filter_map(|call| call["title"].as_str()).collect();
    assert_eq!(
        titles,
        ["Update the plan", "Write a.txt", "Read none.txt", "Edit a.txt", "cat a.txt; exit 3"]
    );
    let file = world.work().join("a.txt");
    let diff = json!({ "type": "diff", "path": file, "oldText": "one", "newText": "two" });
    assert_eq!(calls[3]["content"], json!([diff]));
    assert_eq!(calls[3]["locations"], json!([{ "path": file }]));
    let updates = editor.updates("tool_call_update");
    let end = |n: usize| {
        let is_end = |update: &&&Value| {
            update["toolCallId"] == calls[n]["toolCallId"] && update.get("rawOutput").is_some()
        };
        *updates.iter().find(is_end).unwrap()
    };
    assert_eq!(end(1)["status"], "completed");
    assert_eq!(end(2)["status"], "failed");
    assert_eq!(end(4)["rawOutput"]["exit_code"], 3);
    let shown = end(4)["content"][0]["content"]["text"].as_str().unwrap();
    assert_eq!(shown, "```\ntwo\n```\nexit 3");
}

fn asking() -> Value {
    let touch = |name: &str| json!({ "tool": "shell", "arguments": { "command": format!("touch {name}") } });
    json!([{ "steps": [{ "call": [touch("made")] }, { "say": "After: {{result:1.1}}" }] }])
}

#[test]
fn a_call_is_made_if_the_user_allows_it() {
    let world = World::new();
    let _service = service(&world, &asking());
    let mut editor = Editor::start(&world);
    let session = editor.new_session();
    for (option, is_made) in [("deny", false), ("allow", true)] {
        let id = editor.send_prompt(&session, "Make it");
        let asked = editor.choose(option);
        let options: Vec<&str> = asked["params"]["options"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|o| o["optionId"].as_str())
            .collect();
        assert_eq!((options[0], options[options.len() - 1]), ("allow", "deny"));
        assert_eq!(asked["params"]["toolCall"]["title"], "touch made");
        check_stopped(&editor.answer(id), "end_turn");
        assert_eq!(world.work().join("made").exists(), is_made);
    }
    assert!(world.ok(&["approvals", "list", "--json"]).trim() == "[]");
}

#[test]
fn an_approval_for_the_run_and_a_client_that_cannot_ask() {
    let world = World::new();
    let touch = |name: &str| json!({ "tool": "shell", "arguments": { "command": format!("touch {name}") } });
    let steps = json!([{ "call": [touch("one")] }, { "call": [touch("one")] }, { "say": "Twice." }]);
    let _service = service(&world, &json!([{ "steps": steps }]));
    let mut editor = Editor::start(&world);
    let session = editor.new_session();
    let id = editor.send_prompt(&session, "Make it");
    editor.choose("allow_run");
    check_stopped(&editor.answer(id), "end_turn");
    let is_question = |line: &&Value| line["method"] == "session/request_permission";
    assert_eq!(editor.seen.iter().filter(is_question).count(), 1, "the second call is like the first");
    // A client without the method.
    let id = editor.send_prompt(&session, "Make it");
    let mut asked = 0;
    let end = loop {
        let line = editor.next();
        if line["method"] == "session/request_permission" {
            asked += 1;
            let error = json!({ "code": -32601, "message": "no such method" });
            editor.write(&json!({ "jsonrpc": "2.0", "id": line["id"], "error": error }).to_string());
        } else if line["id"] == id {
            break line;
        }
    };
    check_stopped(&end, "end_turn");
    assert!(asked > 0 && editor.text("agent_message_chunk").contains("so it is denied: no such method"));
}

#[test]
fn a_question_of_the_model_is_answered_by_a_choice_or_by_the_next_prompt() {
    let world = World::new();
    let ask = |arguments: Value| json!([{ "call": [{ "tool": "clarify", "arguments": arguments }] }, { "say": "{{result:1.1}}" }]);
    let _service = service(
        &world,
        &json!([
            { "when": "colour", "steps": ask(json!({ "question": "Which?", "choices": ["red", "blue"] })) },
            { "when": "branch", "steps": ask(json!({ "question": "Which branch?" })) },
        ]),
    );
    let mut editor = Editor::start(&world);
    let session = editor.new_session();
    let id = editor.send_prompt(&session, "colour");
    editor.choose("choice:1");
    check_stopped(&editor.answer(id), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "[rehearsal] blue");
    let id = editor.send_prompt(&session, "branch");
    check_stopped(&editor.answer(id), "end_turn");
    assert!(editor.text("agent_message_chunk").contains("Which branch?"));
    let id = editor.send_prompt(&session, "main");
    check_stopped(&editor.answer(id), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "[rehearsal] main");
}

const WAITING: &str = "echo once >> ran; while [ -e ran ] && [ ! -e release ]; do sleep 0.02; done";

fn waiting() -> Value {
    let call = json!({ "tool": "shell", "arguments": { "command": WAITING } });
    json!([{ "when": "wait", "steps": [{ "call": [call] }, { "say": "It ended." }] }, { "steps": [{ "say": "You said {{user}}" }] }])
}

#[test]
fn a_cancelled_prompt_ends_as_such_and_the_session_goes_on() {
    let world = World::new();
    let _service = service(&world, &waiting());
    let mut editor = Editor::start(&world);
    let session = editor.new_session();
    let id = editor.send_prompt(&session, "wait");
    until("the command runs", || world.work().join("ran").exists());
    editor.cancel(&session);
    check_stopped(&editor.answer(id), "cancelled");
    let id = editor.send_prompt(&session, "Hi");
    check_stopped(&editor.answer(id), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "[rehearsal] You said Hi");
    // A prompt and its cancellation right behind it.
    let id = editor.send_prompt(&session, "wait");
    editor.cancel(&session);
    check_stopped(&editor.answer(id), "cancelled");
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
fn servers_of_the_editor_are_ignored_and_named() {
    let world = World::new();
    let _service = service(&world, &greeting());
    let mut editor = Editor::start(&world);
    let server = json!({ "name": "files", "command": "/bin/files", "args": [], "env": [] });
    let answer = editor.call("session/new", json!({ "cwd": editor.work, "mcpServers": [server] }));
    assert_eq!(answer["result"]["_meta"]["hermod"]["ignored"]["mcpServers"], 1, "{answer}");
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
fn an_editor_with_forms_answers_in_its_own_words() {
    let world = World::new();
    let ask = json!({ "tool": "clarify", "arguments": { "question": "Which?", "choices": ["red", "blue"] } });
    let _service = service(&world, &json!([{ "steps": [{ "call": [ask] }, { "say": "{{result:1.1}}" }] }]));
    // As Zed 1.20 presents itself.
    let can = json!({ "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true,
        "session": { "configOptions": { "boolean": {} } }, "auth": { "terminal": true },
        "elicitation": { "form": {}, "url": {} }, "_meta": { "terminal_output": true } });
    let mut editor = Editor::with(&world, &can);
    let session = editor.new_session();
    let id = editor.send_prompt(&session, "Ask me");
    let asked = editor.until(|line| line["method"] == "elicitation/create");
    assert_eq!(asked["params"]["requestedSchema"]["properties"]["choice"]["enum"], json!(["red", "blue"]));
    let content = json!({ "choice": "red", "own_words": "green" });
    let result = json!({ "action": "accept", "content": content });
    editor.write(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result }).to_string());
    check_stopped(&editor.answer(id), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "[rehearsal] green");
}

#[test]
fn options_are_those_of_the_configuration() {
    let world = World::new();
    let _service = service(&world, &greeting());
    let mut editor = Editor::start(&world);
    let answer = editor.call("session/new", json!({ "cwd": editor.work, "mcpServers": [] }));
    let options = answer["result"]["configOptions"].as_array().unwrap();
    let ids: Vec<&str> = options.iter().filter_map(|option| option["id"].as_str()).collect();
    assert_eq!(ids, ["agent", "thinking"]);
    let session = &answer["result"]["sessionId"];
    let choose = |id: &str, value: &str| json!({ "sessionId": session, "configId": id, "value": value });
    let chosen = editor.call("session/set_config_option", choose("agent", "reviewer"));
    assert_eq!(chosen["result"]["configOptions"][0]["currentValue"], "reviewer", "{chosen}");
    check_error(
        &editor.call("session/set_config_option", choose("agent", "none")),
        -32602,
        "`none` is no value",
    );
    let id = editor.send_prompt(session.as_str().unwrap(), "Say hello");
    check_stopped(&editor.answer(id), "end_turn");
    let runs: Value = serde_json::from_str(&world.ok(&["runs", "list", "--json"])).unwrap();
    assert_eq!(runs[0]["agent"], "reviewer");
    check_error(
        &editor.call("session/set_config_option", choose("agent", "default")),
        -32602,
        "no option `agent` now",
    );
}
