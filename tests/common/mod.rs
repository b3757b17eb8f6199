//! One world for all tests of the real binary: a state directory, a workspace, and processes that do not outlive a test.
#![allow(dead_code, unreachable_pub)] // each test binary has it as its own, and uses a part

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    path::PathBuf,
    process::{Child, ChildStderr, Command, Output, Stdio},
    sync::Arc,
    thread::{self, sleep},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A state directory and a workspace of their own.
#[derive(Debug)]
pub struct World(TempDir);

impl World {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(dir.path().join("work")).expect("a workspace");
        Self(dir)
    }

    pub fn work(&self) -> PathBuf {
        self.0.path().join("work")
    }

    /// The state directory.
    pub fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    /// `hermod` in the workspace, with nothing in its environment that is not here.
    pub fn hermod(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hermod"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.args(args).env_clear().env("PATH", path).env("HERMOD_HOME", self.state());
        command.current_dir(self.work()).stdin(Stdio::null());
        command
    }

    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Output {
        self.hermod(args).output().expect("hermod starts")
    }

    /// Runs to success, and returns standard output.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Runs to failure with `code`, and an error that contains `part`.
    #[track_caller]
    pub fn fails(&self, args: &[&str], code: i32, part: &str) {
        let output = self.run(args);
        let stderr = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(part), "{args:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }

    /// Runs to success, and a warning that contains `part`.
    #[track_caller]
    pub fn warns(&self, args: &[&str], part: &str) {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(part), "{args:?}: {}", stderr(&output));
    }

    /// The records of a session.
    #[track_caller]
    pub fn journal(&self, session: &str) -> Vec<Value> {
        let lines = self.ok(&["journal", session]);
        lines.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
    }

    /// Writes a script, and returns the option that plays it.
    pub fn script(&self, steps: &Value) -> String {
        let path = self.0.path().join("script.json");
        fs::write(&path, json!({ "name": "t", "scripts": [{ "steps": steps }] }).to_string())
            .expect("written");
        format!("--rehearse={}", path.display())
    }

    /// Starts a run whose command waits until it is released, and returns when the command is under way.
    #[track_caller]
    pub fn started(&self, more: &[&str]) -> Running {
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
    pub fn running(&self, args: &[&str]) -> Running {
        let mut command = self.hermod(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running::new(command.spawn().expect("hermod starts"))
    }

    /// Lets the waiting command end.
    pub fn release(&self) {
        fs::write(self.work().join("release"), "").expect("written");
    }

    /// How often the waiting command was started.
    pub fn times_run(&self) -> usize {
        fs::read_to_string(self.work().join("ran")).expect("it ran").lines().count()
    }
}

/// Notes that it runs and waits to be released; ends by itself when the workspace is gone.
pub const WAITING: &str = "echo once >> ran; while [ -e ran ] && [ ! -e release ]; do sleep 0.02; done";

/// A process that does not outlive its test.
pub struct Running(Option<Child>);

impl Running {
    pub fn new(child: Child) -> Self {
        Self(Some(child))
    }

    pub fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("it was not waited for")
    }

    pub fn pid(&self) -> u32 {
        self.0.as_ref().expect("it was not waited for").id()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("it is alive");
    }

    pub fn end(mut self) -> Output {
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
pub struct Lines(std::io::Lines<BufReader<ChildStderr>>);

impl Lines {
    pub fn of(running: &mut Running) -> Self {
        Self(BufReader::new(running.child().stderr.take().expect("it is piped")).lines())
    }

    /// Reads on to a line with this part.
    #[track_caller]
    pub fn until(&mut self, part: &str) -> String {
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

    pub fn rest(self) -> String {
        self.0.map(|line| line.expect("text") + "\n").collect()
    }
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
pub fn until(what: &str, condition: impl Fn() -> bool) {
    let mut left = Duration::from_mins(1);
    while !condition() {
        let step = Duration::from_millis(10);
        left = left.checked_sub(step).unwrap_or_else(|| panic!("waited in vain until {what}"));
        sleep(step);
    }
}

pub fn kinds(records: &[Value]) -> Vec<&str> {
    records.iter().filter_map(|record| record["kind"].as_str()).collect()
}

pub fn object(text: &str) -> Value {
    serde_json::from_str(text).expect("one JSON object")
}

/// What a process wrote, as text.
pub fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// An endpoint that answers every request with the same response, and its base URL.
pub fn endpoint(status: &'static str, content_type: &'static str, body: &'static str) -> String {
    serve(move |_| response(status, content_type, body)) + "/v1"
}

/// A response, after which the connection is closed.
pub fn response(status: &str, content_type: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// A server that answers each request so, and where it is.
pub fn serve(reply: impl Fn(&str) -> String + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let reply = Arc::new(reply);
    // Lives as long as the test's process.
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let reply = Arc::clone(&reply);
            thread::spawn(move || {
                let mut request = Vec::new();
                let mut chunk = [0; 4096];
                while !is_whole(&request) {
                    match stream.read(&mut chunk) {
                        Ok(0) | Err(_) => return,
                        Ok(count) => request.extend_from_slice(&chunk[..count]),
                    }
                }
                let response = reply(&String::from_utf8_lossy(&request));
                // A client that has gone needs no answer.
                stream.write_all(response.as_bytes()).unwrap_or_default();
            });
        }
    });
    format!("http://{address}")
}

/// Whether the head and the body that it announces are there.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    body.len() >= length.unwrap_or(0_usize)
}

/// Kills the only command that runs, whose pid is the last line of `ran`, and its runner before that can see it.
#[allow(clippy::unwrap_used)] // a test ends where it fails
pub fn kill_command(world: &World) {
    let pid = |pid: i64| Pid::from_raw(pid.try_into().unwrap()).unwrap();
    let folders = fs::read_dir(world.state().join("spool")).unwrap().map(|entry| entry.unwrap().path());
    let started: Vec<Value> = folders
        .filter_map(|folder| serde_json::from_slice(&fs::read(folder.join("started")).ok()?).ok())
        .collect();
    assert_eq!(started.len(), 1, "{started:?}");
    let runner = pid(started[0]["pid"].as_i64().unwrap());
    let command =
        pid(fs::read_to_string(world.work().join("ran")).unwrap().lines().last().unwrap().parse().unwrap());
    kill_process(runner, Signal::STOP).unwrap();
    until("the runner is held", || {
        let stat = fs::read_to_string(format!("/proc/{runner}/stat")).unwrap();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    });
    kill_process(command, Signal::KILL).unwrap();
    kill_process(runner, Signal::KILL).unwrap();
}
