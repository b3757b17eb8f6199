//! The service under load: runs submitted and waited for over HTTP by clients with a connection each, against a scripted
//! model with a delay. Of the service: iterations a second, added latency, memory, processor time; and what it costs at rest.
//!
//! `cargo bench --bench service -- [--sessions N] [--iterations N] [--delay MS] [--watchers N]`
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unchecked_time_subtraction
)] // figures are read to three digits

mod common;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use common::{
    is_measured, option,
    usage::{Cost, quantile},
};
use futures::future::join_all;
use hermod::{
    access::{NewToken, Scope, TokenFile},
    rehearsal::{Rehearsal, RehearsalHandle, Script},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Ticks of a second in `/proc/PID/stat`.
const TICKS: f64 = 100.0;
/// Bytes of an answer that are read at once.
const CHUNK: usize = 16 * 1024;

/// A running service with its model.
struct Served {
    process: Child,
    address: String,
    token: String,
    _model: RehearsalHandle,
    _dir: TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.process.kill().expect("the service can be ended");
        self.process.wait().expect("the service ends");
    }
}

impl Served {
    async fn start(script: &Value) -> Self {
        let script = Script::parse(script.to_string().as_bytes()).expect("a script");
        let model = Rehearsal::start("127.0.0.1:0", Arc::new(script)).await.expect("a model");
        let dir = tempfile::tempdir().expect("a folder");
        let (state, work, config) =
            (dir.path().join("state"), dir.path().join("work"), dir.path().join("config.toml"));
        fs::create_dir_all(&state).expect("a state directory");
        fs::create_dir(&work).expect("a workspace");
        let text = format!(
            "model = \"bench/load\"\n[providers.bench]\nbase_url = \"{}\"\ncalls = 20000\n[tools]\ncalls = 10000\n[agent]\nloop_guard = false\n",
            model.base_url
        );
        fs::write(&config, text).expect("a configuration");
        let scopes = [Scope::Read, Scope::Submit].into();
        let new = NewToken { name: "bench".into(), scopes, agents: None, expires_at: None };
        let (_, token) = TokenFile::new(&state).create(new).expect("a token");
        let mut process = Command::new(env!("CARGO_BIN_EXE_hermod"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .env("HERMOD_HOME", &state)
            .env("HERMOD_CONFIG", &config)
            .current_dir(&work)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the service starts");
        let mut lines = BufReader::new(process.stderr.take().expect("a pipe")).lines();
        let address = loop {
            let line = lines.next().expect("a line").expect("a text");
            if let Some((_, address)) = line.split_once("http://") {
                break address.to_owned();
            }
        };
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address, token: token.reveal().to_owned(), _model: model, _dir: dir }
    }

    /// Seconds of the processor so far.
    fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).expect("its figures");
        let fields: Vec<&str> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
        let ticks = |n: usize| fields[n].parse::<f64>().expect("a number");
        (ticks(11) + ticks(12)) / TICKS
    }

    /// KiB of memory: now, and at most so far.
    fn memory(&self) -> (usize, usize) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("its figures");
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            line.trim().trim_end_matches(" kB").parse().expect("a number")
        };
        (kib("VmRSS:"), kib("VmHWM:"))
    }
}

/// A client with one connection.
struct Client {
    stream: TcpStream,
    head: String,
}

impl Client {
    async fn connect(served: &Served) -> Self {
        let stream = TcpStream::connect(&served.address).await.expect("a connection");
        stream.set_nodelay(true).expect("an option");
        Self {
            stream,
            head: format!("Host: {}\r\nAuthorization: Bearer {}\r\n", served.address, served.token),
        }
    }

    async fn send(&mut self, method: &str, path: &str, body: &str) {
        let head = &self.head;
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await.expect("a request");
    }

    /// The answer to a request, which has a length.
    async fn ask(&mut self, method: &str, path: &str, body: &str) -> Value {
        self.send(method, path, body).await;
        let mut answer = Vec::with_capacity(CHUNK);
        loop {
            let text = String::from_utf8_lossy(&answer);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.expect("a length").parse().expect("a number");
                if body.len() >= length {
                    assert!(head.starts_with("HTTP/1.1 20"), "{text}");
                    return serde_json::from_str(body).expect("JSON");
                }
            }
            let read = self.stream.read_buf(&mut answer).await.expect("an answer");
            assert!(read > 0, "the service closed the connection");
        }
    }

    /// Submits a run and waits for its end. Returns how long that took.
    async fn run(&mut self) -> Duration {
        let started = Cost::now();
        let accepted = self.ask("POST", "/v1/runs", r#"{"input":"go"}"#).await;
        let path = format!("/v1/runs/{}/wait?timeout=10m", accepted["run"].as_str().expect("an id"));
        let ended = self.ask("GET", &path, "").await;
        assert_eq!(ended["outcome"], "completed", "{ended}");
        started.spent().wall
    }
}

fn script(iterations: usize, delay: usize) -> Value {
    let call = json!({ "call": [{ "tool": "todo", "arguments": {} }] });
    let mut steps = vec![call; iterations - 1];
    steps.push(json!({ "say": "done" }));
    json!({ "name": "load", "delay": format!("{delay}ms"), "scripts": [{ "steps": steps }] })
}

#[tokio::main]
async fn main() {
    let full = is_measured();
    let sessions = option("--sessions", if full { 1_000 } else { 3 });
    let iterations = option("--iterations", if full { 10 } else { 2 });
    let delay = option("--delay", if full { 200 } else { 1 });
    let watchers = option("--watchers", if full { 1_000 } else { 3 });
    let served = Served::start(&script(iterations, delay)).await;
    println!("at rest: {} KiB", served.memory().0);
    let mut clients = join_all((0..sessions).map(|_| Client::connect(&served))).await;
    println!("{sessions} idle connections: {} KiB", served.memory().0);
    let (started, cpu) = (Cost::now(), served.cpu());
    let took = join_all(clients.iter_mut().map(Client::run)).await;
    let (wall, cpu) = (started.spent().wall.as_secs_f64(), served.cpu() - cpu);
    let total = (sessions * iterations) as f64;
    let ideal = Duration::from_millis((iterations * delay) as u64);
    let added = || took.iter().map(|took| took.saturating_sub(ideal).as_secs_f64() * 1e3);
    println!(
        "{sessions} sessions of {iterations} iterations, {delay} ms each: {:.0} iterations/s (ideal {:.0}); added to a run p50 \
         {:.0} ms, p99 {:.0} ms; {:.0} us CPU an iteration; {} KiB, at most {} KiB",
        total / wall,
        sessions as f64 / (delay as f64 / 1e3),
        quantile(added(), 0.5),
        quantile(added(), 0.99),
        cpu * 1e6 / total,
        served.memory().0,
        served.memory().1,
    );
    let (before, (memory, _)) = (served.cpu(), served.memory());
    let mut watching = join_all((0..watchers).map(|_| Client::connect(&served))).await;
    for watcher in &mut watching {
        watcher.send("GET", "/v1/events", "").await;
        let mut head = vec![0; 512];
        assert!(watcher.stream.read(&mut head).await.expect("an answer") > 0);
    }
    println!(
        "{watchers} idle watchers: {} KiB more, {:.0} us CPU each",
        served.memory().0.saturating_sub(memory),
        (served.cpu() - before) * 1e6 / watchers.max(1) as f64
    );
    let before = served.cpu();
    let took = Client::connect(&served).await.run().await;
    println!("a run beside them: {} ms, {:.0} ms CPU", took.as_millis(), (served.cpu() - before) * 1e3);
}
