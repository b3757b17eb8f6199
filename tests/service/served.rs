//! A service of the real binary that plays a script, until the end of a test.

use std::{ffi::OsString, fs, process::Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    http::Answer,
    running::{Lines, Running},
    world::World,
};

/// A service with a state of its own.
pub(crate) struct Served {
    // Ends before its folders are removed.
    service: Option<(Running, Lines)>,
    pub(crate) world: World,
    script: String,
    settings: Vec<(&'static str, OsString)>,
    address: String,
    /// The token of the requests, which may do everything.
    pub(crate) token: String,
}

impl Served {
    /// Starts a service that plays these scripts; see `docs/rehearsal.md`.
    #[track_caller]
    pub(crate) fn start(scripts: &Value) -> Self {
        Self::start_in(World::new(), scripts)
    }

    /// Starts a service in this world.
    #[track_caller]
    pub(crate) fn start_in(world: World, scripts: &Value) -> Self {
        Self::start_with((world, scripts), |_| Vec::new())
    }

    /// Starts it with these variables.
    #[track_caller]
    pub(crate) fn start_with(
        (world, scripts): (World, &Value),
        settings: impl FnOnce(&World) -> Vec<(&'static str, OsString)>,
    ) -> Self {
        let settings = settings(&world);
        let path = world.state().with_file_name("script.json");
        fs::write(&path, json!({ "name": "t", "scripts": scripts }).to_string()).expect("written");
        let script = format!("--rehearse={}", path.display());
        let mut served =
            Self { world, script, settings, service: None, address: String::new(), token: String::new() };
        served.token = served.new_token("test", "admin");
        served.start_again();
        served
    }

    /// Makes a token, as a person does.
    #[track_caller]
    pub(crate) fn new_token(&self, name: &str, scopes: &str) -> String {
        let told = self.world.ok(&["tokens", "create", "--name", name, "--scopes", scopes]);
        told.split_whitespace().last().expect("a token").to_owned()
    }

    /// Ends it with SIGKILL.
    #[track_caller]
    pub(crate) fn kill(&mut self) {
        let (running, _lines) = self.service.take().expect("it runs");
        running.signal(Signal::KILL);
        running.end();
    }

    /// Starts it on the same state.
    #[track_caller]
    pub(crate) fn start_again(&mut self) {
        self.start_noting(None);
    }

    /// Starts it on the same state. Before it serves, it says a line with `note`.
    #[track_caller]
    pub(crate) fn start_noting(&mut self, note: Option<&str>) {
        self.start_as(&["--listen", "127.0.0.1:0"], note);
    }

    /// Starts it in the background: it ends when it was idle for this time.
    #[track_caller]
    pub(crate) fn start_in_background(&mut self, idle: &str) {
        self.start_as(&[&format!("--background={idle}")], None);
    }

    #[track_caller]
    fn start_as(&mut self, options: &[&str], note: Option<&str>) {
        let mut command = self.world.hermod(&[&["serve", &self.script], options].concat());
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running::new(command.spawn().expect("hermod starts"));
        let mut lines = Lines::of(&mut running);
        note.into_iter().for_each(|note| drop(lines.until(note)));
        let line = lines.until("serving");
        line.split("://").nth(1).expect("an address").trim().clone_into(&mut self.address);
        // The lines are kept, so that the pipe has a reader.
        self.service = Some((running, lines));
    }

    /// Reads on to a note with this part.
    #[track_caller]
    pub(crate) fn noted(&mut self, part: &str) -> String {
        self.service.as_mut().expect("it runs").1.until(part)
    }

    /// Stops it with SIGTERM.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        let (running, lines) = self.service.take().expect("it runs");
        running.signal(Signal::TERM);
        let status = running.end().status;
        assert_eq!(status.code(), Some(0), "{}", lines.rest());
    }

    /// The option that plays its script.
    #[cfg(feature = "otlp")]
    pub(crate) fn script(&self) -> &str {
        &self.script
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Waits until it has ended by itself, with success.
    #[track_caller]
    pub(crate) fn has_ended(&mut self) {
        let (running, lines) = self.service.take().expect("it runs");
        let status = running.end().status;
        assert_eq!(status.code(), Some(0), "{}", lines.rest());
    }

    /// Starts another service in its place, which ends it with success.
    #[track_caller]
    pub(crate) fn replace(&mut self) {
        let (running, lines) = self.service.take().expect("it runs");
        self.start_again();
        let status = running.end().status;
        assert_eq!(status.code(), Some(0), "{}", lines.rest());
    }

    #[track_caller]
    pub(crate) fn signal(&self, signal: Signal) {
        self.service.as_ref().expect("it runs").0.signal(signal);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.service.as_ref().expect("it runs").0.pid()
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(("GET", path), &[], "")
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(("POST", path), &[("content-type", "application/json")], &body.to_string())
    }

    /// Sends a request with the token and further headers.
    #[track_caller]
    pub(crate) fn send(&self, operation: (&str, &str), headers: &[(&str, &str)], body: &str) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        let headers = [&[("authorization", bearer.as_str())], headers].concat();
        self.send_plain(operation, &headers, body)
    }

    /// Sends a request with another token.
    #[track_caller]
    pub(crate) fn send_as(&self, token: &str, operation: (&str, &str), body: &Value) -> Answer {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send_plain(operation, &headers, &body)
    }

    /// Sends a request without a token.
    #[track_caller]
    pub(crate) fn send_plain(&self, operation: (&str, &str), headers: &[(&str, &str)], body: &str) -> Answer {
        Answer::to(&self.address, operation, headers, body)
    }

    /// The session of the run that an id of OpenAI's form ends with.
    #[track_caller]
    pub(crate) fn session_of(&self, id: &str) -> String {
        let run = &id[id.len() - 26..];
        self.get(&format!("/v1/runs/{run}")).json()["session"].as_str().expect("a session").to_owned()
    }

    /// The texts of a run's conversation, imported history first.
    #[track_caller]
    pub(crate) fn messages_of(&self, id: &str) -> Vec<String> {
        let run = &id[id.len() - 26..];
        let result = self.get(&format!("/v1/runs/{run}/result")).json();
        let messages = result["messages"].as_array().expect("messages").iter();
        messages.map(|message| message["content"].as_str().expect("text").to_owned()).collect()
    }

    /// Number of runs.
    #[track_caller]
    pub(crate) fn runs(&self) -> usize {
        self.get("/v1/runs").json()["items"].as_array().expect("a list").len()
    }
}

/// The scripts of most tests: an echo, and words for what goes wrong.
pub(crate) fn scripts() -> Value {
    let waiting = json!([{ "tool": "shell", "arguments": { "command": crate::running::WAITING } }]);
    json!([
        { "when": "wait", "steps": [{ "call": waiting }, { "say": "waited" }] },
        { "when": "refuse", "steps": [{ "say": "I will not", "finish": "refused" }] },
        { "when": "fail", "steps": [{ "say": "x", "fault": { "status": 400, "times": "forever" } }] },
        { "when": "long", "steps": [{ "say": "ä".repeat(500), "chunk": 7 }] },
        { "steps": [{ "say": "You said: {{user}}" }] },
    ])
}
