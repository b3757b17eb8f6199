//! An editor that drives `hermod acp`: lines of JSON at its standard input and output, a service beside it.

use std::{
    io::{BufRead, BufReader, Write},
    process::{ChildStdin, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    running::{Lines, Running, WAITING},
    world::World,
};

/// A service whose model plays these scripts, with a person as approver.
pub(crate) fn service(world: &World, scripts: &Value) -> Running {
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
pub(crate) struct Editor {
    pub(crate) agent: Running,
    pub(crate) input: Option<ChildStdin>,
    lines: mpsc::Receiver<Value>,
    requests: u64,
    /// What the agent has sent since the last request.
    pub(crate) seen: Vec<Value>,
    pub(crate) work: String,
}

impl Editor {
    pub(crate) fn start(world: &World) -> Self {
        Self::with(world, &json!({}))
    }

    /// An editor with these capabilities.
    pub(crate) fn with(world: &World, can: &Value) -> Self {
        let mut editor = Self::spawn(world);
        let answer = editor.call("initialize", json!({ "protocolVersion": 1, "clientCapabilities": can }));
        assert_eq!(answer["result"]["protocolVersion"], 1);
        assert_eq!(answer["result"]["agentCapabilities"]["loadSession"], true);
        editor
    }

    /// An editor that has said nothing yet.
    pub(crate) fn spawn(world: &World) -> Self {
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
        Self { agent, input, lines, requests: 0, seen: Vec::new(), work }
    }

    pub(crate) fn write(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        self.requests += 1;
        let request = json!({ "jsonrpc": "2.0", "id": self.requests, "method": method, "params": params });
        self.write(&request.to_string());
        self.requests
    }

    #[track_caller]
    pub(crate) fn next(&mut self) -> Value {
        let line = self.lines.recv_timeout(Duration::from_mins(1)).expect("a line of the agent");
        self.seen.push(line.clone());
        line
    }

    /// Reads on to a line for which this holds.
    #[track_caller]
    pub(crate) fn until(&mut self, holds: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.next();
            if holds(&line) {
                return line;
            }
        }
    }

    /// Reads on to the answer to a request.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        self.until(|line| line["id"] == id && line.get("method").is_none())
    }

    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.seen.clear();
        let id = self.send(method, params);
        self.answer(id)
    }

    #[track_caller]
    pub(crate) fn new_session(&mut self) -> String {
        let answer = self.call("session/new", json!({ "cwd": self.work, "mcpServers": [] }));
        answer["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    pub(crate) fn send_prompt(&mut self, session: &str, text: &str) -> u64 {
        self.seen.clear();
        let prompt = json!([{ "type": "text", "text": text }]);
        self.send("session/prompt", json!({ "sessionId": session, "prompt": prompt }))
    }

    pub(crate) fn cancel(&mut self, session: &str) {
        let params = json!({ "sessionId": session });
        let line = json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params });
        self.write(&line.to_string());
    }

    /// Reads on to a question, and chooses an option.
    #[track_caller]
    pub(crate) fn choose(&mut self, option: &str) -> Value {
        let asked = self.until(|line| line["method"] == "session/request_permission");
        let outcome = json!({ "outcome": "selected", "optionId": option });
        let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "outcome": outcome } });
        self.write(&answer.to_string());
        asked
    }

    #[track_caller]
    pub(crate) fn load(&mut self, session: &str) -> Value {
        let params = json!({ "sessionId": session, "cwd": self.work, "mcpServers": [] });
        self.call("session/load", params)
    }

    /// The updates of one kind since the last request.
    pub(crate) fn updates(&self, kind: &str) -> Vec<&Value> {
        let updates = self.seen.iter().map(|line| &line["params"]["update"]);
        updates.filter(|update| update["sessionUpdate"] == kind).collect()
    }

    /// The chunks of one kind since the last request, joined.
    pub(crate) fn text(&self, kind: &str) -> String {
        self.updates(kind).iter().filter_map(|update| update["content"]["text"].as_str()).collect()
    }

    /// Closes the input; returns the exit code and standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        drop(self.input.take());
        let output = self.agent.end();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[track_caller]
pub(crate) fn check_stopped(answer: &Value, reason: &str) {
    assert_eq!(answer["result"]["stopReason"], reason, "{answer}");
}

#[track_caller]
pub(crate) fn check_error(answer: &Value, code: i64, part: &str) {
    let error = &answer["error"];
    assert_eq!(error["code"], code, "{answer}");
    assert!(error["message"].as_str().unwrap().contains(part), "{answer}");
}

/// What the greeting is.
pub(crate) const SAYS: &str = "[rehearsal] Hello, this comes in pieces.";

/// Says hello in pieces.
pub(crate) fn greeting() -> Value {
    let say = SAYS.strip_prefix("[rehearsal] ").unwrap();
    json!([{ "steps": [{ "think": "I ponder", "say": say, "chunk": 5, "chunk_delay": "5ms" }] }])
}

/// Makes a call that is asked about.
pub(crate) fn asking() -> Value {
    let touch = |name: &str| json!({ "tool": "shell", "arguments": { "command": format!("touch {name}") } });
    json!([{ "steps": [{ "call": [touch("made")] }, { "say": "After: {{result:1.1}}" }] }])
}

/// Waits for its release, or repeats what it was told.
pub(crate) fn waiting() -> Value {
    let call = json!({ "tool": "shell", "arguments": { "command": WAITING } });
    json!([{ "when": "wait", "steps": [{ "call": [call] }, { "say": "It ended." }] }, { "steps": [{ "say": "You said {{user}}" }] }])
}
