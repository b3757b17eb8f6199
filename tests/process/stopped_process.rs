//! A process that is stopped for longer than its limits, and goes on: it takes what is there before it gives up.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::Duration,
};

use rustix::process::Signal;

use crate::{
    running::kinds,
    world::{World, stderr},
};

/// The answer's first piece, and all that follows it.
const FIRST: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"}}]}\n\n";
const REST: &str =
    "data: {\"choices\":[{\"delta\":{\"content\":\"lo\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// Reads a request; whether it asks the model, and not for a list of models.
fn read_request(stream: &mut TcpStream) -> bool {
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&seen).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            if !head.starts_with("post /v1/chat/completions ") {
                return false;
            }
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap() {
                return true;
            }
        }
        let count = stream.read(&mut buffer).unwrap();
        seen.extend_from_slice(&buffer[..count]);
    }
}

/// An endpoint that answers one request: the first piece at once, unless it is told to send nothing yet; the rest when it
/// is told to.
fn endpoint(first: &'static str, rest: String) -> (String, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (begun, has_begun) = mpsc::channel();
    let (goes_on, go_on) = mpsc::channel();
    thread::spawn(move || {
        let mut stream = loop {
            let (mut stream, _) = listener.accept().unwrap();
            if read_request(&mut stream) {
                break stream;
            }
        };
        stream.write_all(first.as_bytes()).unwrap();
        begun.send(()).unwrap();
        go_on.recv().unwrap();
        stream.write_all(rest.as_bytes()).unwrap();
        // Closed by the client, so that the bytes are there when it goes on.
        goes_on_until_closed(&mut stream);
    });
    (base_url, has_begun, goes_on)
}

fn goes_on_until_closed(stream: &mut TcpStream) {
    let mut buffer = [0; 1024];
    while stream.read(&mut buffer).is_ok_and(|count| count > 0) {}
}

#[test]
fn a_stream_that_went_on_meanwhile_is_read() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let begun: &'static str = Box::leak(format!("{HEAD}{FIRST}").into_boxed_str());
    for (first, rest) in [(begun, REST.to_owned()), ("", format!("{HEAD}{FIRST}{REST}"))] {
        let world = World::new();
        let (base_url, has_begun, goes_on) = endpoint(first, rest);
        let limits = ["FIRST_EVENT_TIMEOUT", "GAP_TIMEOUT", "CALL_TIMEOUT"];
        let mut command = world.hermod(&["run", "--model", "m", "hi"]);
        command.envs(limits.map(|limit| (format!("HERMOD_PROVIDER_DEFAULTS__{limit}"), "1s")));
        command.envs([("OPENAI_BASE_URL", base_url.as_str()), ("OPENAI_API_KEY", "sk-secret")]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let running = crate::running::Running::new(command.spawn().unwrap());
        has_begun.recv().unwrap();
        running.signal(Signal::STOP);
        goes_on.send(()).unwrap();
        // All three limits pass while the process does not run.
        thread::sleep(Duration::from_millis(2_500));
        running.signal(Signal::CONT);
        let output = running.end();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "Hello\n", "{}", stderr(&output));
        let journal = world.journal("last");
        assert!(!kinds(&journal).contains(&"model.failed"), "{:?}", kinds(&journal));
    }
}
