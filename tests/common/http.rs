//! A small HTTP client: one request for each connection, and bodies that arrive in pieces.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::Value;

/// Time in which the next bytes of an answer must come.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// The answer to a request, with its body still to be read.
#[derive(Debug)]
pub(crate) struct Answer<S = TcpStream> {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    body: BufReader<S>,
}

impl Answer {
    /// Sends a request and reads the head of its answer.
    #[track_caller]
    pub(crate) fn to(
        address: &str,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: &str,
    ) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(READ_TIMEOUT)).expect("a timeout");
        Self::over(stream, (method, path), &[&[("host", address)], headers].concat(), body)
    }
}

impl<S: Read + Write> Answer<S> {
    /// Sends a request over an open connection, and reads the head of its answer. `host` is among the headers.
    #[track_caller]
    pub(crate) fn over(
        mut stream: S,
        (method, path): (&str, &str),
        headers: &[(&str, &str)],
        body: &str,
    ) -> Self {
        let headers: String =
            headers.iter().flat_map(|(name, value)| [*name, ": ", *value, "\r\n"]).collect();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        Self::read(stream)
    }

    #[track_caller]
    fn read(stream: S) -> Self {
        let mut body = BufReader::new(stream);
        let status = line(&mut body);
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut headers = Vec::new();
        loop {
            let line = line(&mut body);
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Self { status, headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The next piece of a body that comes in chunks; `None` after the last one.
    #[track_caller]
    pub(crate) fn chunk(&mut self) -> Option<String> {
        let size = usize::from_str_radix(&line(&mut self.body), 16).expect("the size of a chunk");
        let mut chunk = vec![0; size];
        self.body.read_exact(&mut chunk).expect("a chunk");
        line(&mut self.body);
        (size > 0).then(|| String::from_utf8(chunk).expect("text"))
    }

    /// The whole body.
    #[track_caller]
    pub(crate) fn text(mut self) -> String {
        if self.header("transfer-encoding") == Some("chunked") {
            return std::iter::from_fn(|| self.chunk()).collect();
        }
        let mut text = String::new();
        self.body.read_to_string(&mut text).expect("text");
        text
    }

    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// The data of all server-sent events.
    #[track_caller]
    pub(crate) fn events(self) -> Vec<String> {
        let text = self.text();
        text.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    }
}

#[track_caller]
fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).expect("a line");
    line.trim_end().to_owned()
}
