//! The service in a process of its own, and clients of it.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use hermod::access::{NewToken, Scope, TokenFile};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::usage::Cost;

/// Ticks of a second in `/proc/PID/stat`.
const TICKS: f64 = 100.0;
/// Bytes of an answer that are read at once.
const CHUNK: usize = 16 * 1024;

/// Folders of a service, its configuration and a token.
pub(crate) struct Installation {
    dir: TempDir,
    token: String,
}

impl Installation {
    /// An installation whose model is at this URL. `settings` are further lines of its configuration.
    pub(crate) fn new(base_url: &str, settings: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let installation = Self { dir, token: String::new() };
        for name in ["state", "work"] {
            fs::create_dir(installation.path(name)).expect("a folder");
        }
        installation.configure(base_url, settings);
        let scopes = [Scope::Read, Scope::Submit].into();
        let new = NewToken { name: "bench".into(), scopes, agents: None, expires_at: None };
        let (_, token) = TokenFile::new(&installation.path("state")).create(new).expect("a token");
        Self { token: token.reveal().to_owned(), ..installation }
    }

    /// Sets where its model is, and further lines of its configuration, for the next start.
    pub(crate) fn configure(&self, base_url: &str, settings: &str) {
        let text = format!(
            "model = \"bench/load\"\n[providers.bench]\nbase_url = \"{base_url}\"\ncalls = 20000\n{settings}"
        );
        fs::write(self.path("config.toml"), text).expect("a configuration");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Serves it until the returned value is dropped.
    pub(crate) fn serve(&self) -> Served {
        let started = Cost::now();
        let mut process = Command::new(env!("CARGO_BIN_EXE_hermod"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .env("HERMOD_HOME", self.path("state"))
            .env("HERMOD_CONFIG", self.path("config.toml"))
            .current_dir(self.path("work"))
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
        let ready_after = started.spent().wall;
        thread::spawn(move || lines.for_each(drop));
        Served { process, address, token: self.token.clone(), ready_after }
    }
}

/// A running service, which is killed when this is dropped.
pub(crate) struct Served {
    process: Child,
    address: String,
    token: String,
    /// From its start until it said that it serves.
    pub(crate) ready_after: Duration,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.process.kill().expect("the service can be ended");
        self.process.wait().expect("the service ends");
    }
}

impl Served {
    /// Seconds of the processor so far.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).expect("its figures");
        let fields: Vec<&str> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
        let ticks = |n: usize| fields[n].parse::<f64>().expect("a number");
        (ticks(11) + ticks(12)) / TICKS
    }

    /// KiB of memory: now, and at most so far.
    pub(crate) fn memory(&self) -> (usize, usize) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("its figures");
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            line.trim().trim_end_matches(" kB").parse().expect("a number")
        };
        (kib("VmRSS:"), kib("VmHWM:"))
    }
}

/// A client with one connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    head: String,
}

impl Client {
    pub(crate) async fn connect(served: &Served) -> Self {
        let stream = TcpStream::connect(&served.address).await.expect("a connection");
        stream.set_nodelay(true).expect("an option");
        Self {
            stream,
            head: format!("Host: {}\r\nAuthorization: Bearer {}\r\n", served.address, served.token),
        }
    }

    pub(crate) async fn send(&mut self, method: &str, path: &str, body: &str) {
        let head = &self.head;
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await.expect("a request");
    }

    /// The JSON that answers a request.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, body: &str) -> Value {
        serde_json::from_str(&self.text(method, path, body).await).expect("JSON")
    }

    /// The body of the answer to a request, which has a length.
    pub(crate) async fn text(&mut self, method: &str, path: &str, body: &str) -> String {
        self.send(method, path, body).await;
        let mut answer = Vec::with_capacity(CHUNK);
        loop {
            let text = String::from_utf8_lossy(&answer);
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.expect("a length").parse().expect("a number");
                if body.len() >= length {
                    assert!(head.starts_with("HTTP/1.1 20"), "{text}");
                    return body.to_owned();
                }
            }
            let read = self.stream.read_buf(&mut answer).await.expect("an answer");
            assert!(read > 0, "the service closed the connection");
        }
    }

    /// Submits a run and waits for its end. Returns how long that took.
    pub(crate) async fn run(&mut self) -> Duration {
        let started = Cost::now();
        let accepted = self.ask("POST", "/v1/runs", r#"{"input":"go"}"#).await;
        let path = format!("/v1/runs/{}/wait?timeout=10m", accepted["run"].as_str().expect("an id"));
        let ended = self.ask("GET", &path, "").await;
        assert_eq!(ended["outcome"], "completed", "{ended}");
        started.spent().wall
    }
}
