//! What black-box tests of the binary share.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread,
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A state directory and a workspace of their own.
#[derive(Debug)]
pub(crate) struct World(TempDir);

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(dir.path().join("work")).expect("a workspace");
        Self(dir)
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.0.path().join("work")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    /// `hermod` in the workspace, with nothing in its environment that is not here.
    pub(crate) fn hermod(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hermod"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.args(args).env_clear().env("PATH", path).env("HERMOD_HOME", self.state());
        command.current_dir(self.work()).stdin(Stdio::null());
        command
    }

    /// Writes a script, and returns the option that plays it.
    pub(crate) fn script(&self, steps: &Value) -> String {
        let path = self.0.path().join("script.json");
        let script = json!({ "name": "t", "scripts": [{ "steps": steps }] });
        fs::write(&path, script.to_string()).expect("written");
        format!("--rehearse={}", path.display())
    }
}

/// What a process wrote, as text.
pub(crate) fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// An endpoint that answers every request with the same response, and its base URL.
pub(crate) fn endpoint(status: &'static str, content_type: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let response = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    // Lives as long as the test's process.
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let response = response.clone();
            thread::spawn(move || {
                let mut request = Vec::new();
                let mut chunk = [0; 4096];
                while !is_whole(&request) {
                    match stream.read(&mut chunk) {
                        Ok(0) | Err(_) => return,
                        Ok(count) => request.extend_from_slice(&chunk[..count]),
                    }
                }
                // A client that has gone needs no answer.
                stream.write_all(response.as_bytes()).unwrap_or_default();
            });
        }
    });
    format!("http://{address}/v1")
}

/// Whether the head and the body that it announces are there.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    body.len() >= length.unwrap_or(0_usize)
}
