//! Runs of the real binary: scripts, processes that do not outlive a test, and what they wrote.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, ChildStderr, Output, Stdio},
    thread::sleep,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::world::World;

impl World {
    /// The records of a session.
    #[track_caller]
    pub(crate) fn journal(&self, session: &str) -> Vec<Value> {
        let lines = self.ok(&["journal", session]);
        lines.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
    }

    /// Writes a script, and returns the option that plays it.
    pub(crate) fn script(&self, steps: &Value) -> String {
        let path = self.state().with_file_name("script.json");
        fs::write(&path, json!({ "name": "t", "scripts": [{ "steps": steps }] }).to_string())
            .expect("written");
        format!("--rehearse={}", path.display())
    }

    /// Starts a run whose command waits until it is released, and returns when the command is under way.
    #[track_caller]
    pub(crate) fn started(&self, more: &[&str]) -> Running {
        let script = self.script(&json!([
            { "call": [{ "tool": "shell", "arguments": { "command": WAITING } }] },
            { "say": "result: {{result:1.1}}" },
        ]));
        let running = self.running(&[&["run", &script, "wait"], more].concat());
        until("the command runs", || self.work().join("ran").exists());
        running
    }

    /// Starts `hermod`.
    #[track_caller]
    pub(crate) fn running(&self, args: &[&str]) -> Running {
        let mut command = self.hermod(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::new(command.spawn().expect("hermod starts"))
    }

    /// Lets the waiting command end.
    pub(crate) fn release(&self) {
        fs::write(self.work().join("release"), "").expect("written");
    }

    /// How often the waiting command was started.
    pub(crate) fn times_run(&self) -> usize {
        fs::read_to_string(self.work().join("ran")).expect("it ran").lines().count()
    }
}

/// Notes that it runs and waits to be released; ends by itself when the workspace is gone.
pub(crate) const WAITING: &str =
    "echo once >> ran; while [ -e ran ] && [ ! -e release ]; do sleep 0.02; done";

/// A process that does not outlive its test.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn new(child: Child) -> Self {
        Self(Some(child))
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("it was not waited for")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.as_ref().expect("it was not waited for").id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("it is alive");
    }

    pub(crate) fn end(mut self) -> Output {
        self.0.take().expect("it was not waited for").wait_with_output().expect("it ends")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It may have ended already; waiting for it is all that is left then.
            child.kill().and_then(|()| child.wait()).expect("a child that can be waited for");
        }
    }
}

/// The lines of a process's progress, as they come.
#[derive(Debug)]
pub(crate) struct Lines(std::io::Lines<BufReader<ChildStderr>>);

impl Lines {
    pub(crate) fn of(running: &mut Running) -> Self {
        Self(BufReader::new(running.child().stderr.take().expect("it is piped")).lines())
    }

    /// Reads on to a line with this part.
    #[track_caller]
    pub(crate) fn until(&mut self, part: &str) -> String {
        let mut read = String::new();
        for line in &mut self.0 {
            let line = line.expect("text");
            if line.contains(part) {
                return line;
            }
            read += &(line + "\n");
        }
        panic!("no line has `{part}`:\n{read}");
    }

    pub(crate) fn rest(self) -> String {
        self.0.map(|line| line.expect("text") + "\n").collect()
    }
}

#[track_caller]
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    let mut left = Duration::from_mins(1);
    while !condition() {
        let step = Duration::from_millis(10);
        left = left.checked_sub(step).unwrap_or_else(|| panic!("waited in vain until {what}"));
        sleep(step);
    }
}

pub(crate) fn kinds(records: &[Value]) -> Vec<&str> {
    records.iter().filter_map(|record| record["kind"].as_str()).collect()
}

/// What a process wrote, as text.
pub(crate) fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}
