//! Lines of JSON over standard input and output. Standard output has nothing else. Two threads do the blocking reads and
//! writes, so that an editor that stops reading, or never writes, holds up no task.
//!
//! Everything that waits is bounded. Updates wait in a [`Window`] until the editor has read earlier ones, and requests beyond
//! [`MAX_UNANSWERED`] and [`MAX_UNANSWERED_BYTES`] are refused at once.

use std::{
    collections::HashMap,
    io::{self, BufRead, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use agent_client_protocol::{Channel, Error, ErrorCode, RawJsonRpcId, RawJsonRpcMessage, TransportFrame};
use futures::StreamExt;
use tokio::{
    sync::{Notify, Semaphore, mpsc, oneshot},
    task::yield_now,
    time::timeout,
};

/// Most bytes of a line: a prompt may have pictures.
const MAX_LINE_BYTES: usize = 64 << 20;
/// Most requests of the editor without an answer, and most bytes of them.
const MAX_UNANSWERED: usize = 256;
const MAX_UNANSWERED_BYTES: usize = 256 << 20;
/// Most updates that are not written yet.
const MAX_UPDATES: usize = 256;
/// The notifications that are updates.
const SESSION_UPDATE: &str = "session/update";
/// Lines between a thread and the connection.
const MAX_WAITING_LINES: usize = 1;
/// Time in which the last lines must be written.
const END_TIME: Duration = Duration::from_millis(500);

/// What may wait to be written.
#[derive(Debug)]
pub(super) struct Window {
    updates: Semaphore,
    /// The bytes of each request without an answer.
    unanswered: Mutex<HashMap<RawJsonRpcId, usize>>,
    answered: Notify,
}

impl Window {
    fn new() -> Self {
        Self { updates: Semaphore::new(MAX_UPDATES), unanswered: Mutex::default(), answered: Notify::new() }
    }

    /// Waits until one more update may wait to be written.
    pub(super) async fn reserve_update(&self) {
        // It is returned when an update is written.
        if let Ok(permit) = self.updates.acquire().await {
            permit.forget();
        }
    }

    /// Waits a moment until every request has its answer.
    pub(super) async fn wait_until_answered(&self) {
        let answered = async {
            loop {
                let notified = self.answered.notified();
                if self.unanswered().is_empty() {
                    return;
                }
                notified.await;
            }
        };
        // A prompt that is under way has no answer yet: its run goes on without this process.
        if timeout(END_TIME, answered).await.is_err() {
            tracing::debug!("requests are left without an answer at the end of the input");
        }
    }

    /// A request of so many bytes waits for its answer; an error if too many do.
    fn take_request(&self, id: &RawJsonRpcId, bytes: usize) -> Result<(), String> {
        let mut unanswered = self.unanswered();
        if unanswered.len() >= MAX_UNANSWERED {
            return Err(format!("{MAX_UNANSWERED} requests wait for their answers; send this one later"));
        }
        if unanswered.values().sum::<usize>() + bytes > MAX_UNANSWERED_BYTES {
            let text = "of the requests that wait for their answers; send this one later";
            return Err(format!("{} MiB is the limit {text}", MAX_UNANSWERED_BYTES >> 20));
        }
        unanswered.insert(id.clone(), bytes);
        Ok(())
    }

    /// Ignores poisoning: each change is one call.
    fn unanswered(&self) -> MutexGuard<'_, HashMap<RawJsonRpcId, usize>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_written(&self, message: &RawJsonRpcMessage) {
        match message {
            RawJsonRpcMessage::Notification(notification) if &*notification.method == SESSION_UPDATE => {
                self.updates.add_permits(1);
            }
            RawJsonRpcMessage::Response(_) => {
                if let Some(id) = message.response_id() {
                    self.unanswered().remove(id);
                }
                self.answered.notify_waiters();
            }
            RawJsonRpcMessage::Notification(_) | RawJsonRpcMessage::Request(_) => {}
        }
    }
}

/// Standard input and output.
#[derive(Debug)]
pub(super) struct Transport {
    input: mpsc::Receiver<InputLine>,
    output: mpsc::Sender<String>,
    /// Answered when the last line is written.
    written: oneshot::Receiver<()>,
    window: Arc<Window>,
}

/// A line of the editor.
#[derive(Debug, PartialEq, Eq)]
enum InputLine {
    Text(Vec<u8>),
    TooLong,
}

impl Transport {
    /// Starts the threads.
    pub(super) fn start() -> io::Result<Self> {
        let (to_input, input) = mpsc::channel(MAX_WAITING_LINES);
        let (output, from_output) = mpsc::channel(MAX_WAITING_LINES);
        let (on_written, written) = oneshot::channel();
        thread::Builder::new().name("acp-input".into()).spawn(move || read_lines(&to_input))?;
        thread::Builder::new().name("acp-output".into()).spawn(move || {
            write_lines(from_output);
            // The receiver is gone if the process does not wait.
            on_written.send(()).ok();
        })?;
        Ok(Self { input, output, written, window: Arc::new(Window::new()) })
    }

    /// The window of this transport.
    pub(super) fn window(&self) -> Arc<Window> {
        Arc::clone(&self.window)
    }

    /// Carries frames between `channel` and the threads until either the connection or the output is closed.
    pub(super) async fn carry(self, channel: Channel) {
        let Self { mut input, output, written, window } = self;
        let (mut from_agent, to_agent) = channel.into_parts();
        let incoming = async {
            while let Some(line) = input.recv().await {
                match read_frame(line, &window) {
                    Ok(Some(frame)) => {
                        if to_agent.unbounded_send(frame).is_err() {
                            return;
                        }
                    }
                    Ok(None) => {}
                    Err(refusal) => {
                        let line = match refusal.line() {
                            Ok(line) => line,
                            Err(error) => {
                                tracing::error!(error = error.message, "a refusal is no JSON");
                                continue;
                            }
                        };
                        if output.send(line).await.is_err() {
                            return;
                        }
                    }
                }
                // The connection takes the frame before the next line is read.
                yield_now().await;
            }
            drop(to_agent);
            futures::future::pending::<()>().await;
        };
        let outgoing = async {
            while let Some(frame) = from_agent.next().await {
                if let (Ok(line), TransportFrame::Single(message)) = (frame.to_json(), &frame) {
                    if output.send(line).await.is_err() {
                        return;
                    }
                    window.on_written(message);
                }
            }
        };
        tokio::select! {
            () = outgoing => {}
            () = incoming => {}
        }
        drop(output);
        if timeout(END_TIME, written).await.is_err() {
            tracing::debug!("the editor does not read the last lines");
        }
    }
}

/// Why a line does not reach the connection.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    /// The id of the request, as far as it can be read.
    id: RawJsonRpcId,
    code: ErrorCode,
    text: String,
}

impl Refusal {
    fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self { id: RawJsonRpcId::Null, code, text: text.into() }
    }

    /// The line that answers it.
    fn line(self) -> Result<String, Error> {
        let error = Error::new(self.code, self.text);
        let response = TransportFrame::Single(RawJsonRpcMessage::response(self.id, Err(error)));
        response.to_json()
    }
}

/// The frame of a line; `None` of one without meaning, or the error with which it is answered.
fn read_frame(line: InputLine, window: &Window) -> Result<Option<TransportFrame>, Refusal> {
    let InputLine::Text(line) = line else {
        let text = format!("a line has more than {} MiB; attach smaller files", MAX_LINE_BYTES >> 20);
        return Err(Refusal::new(ErrorCode::INVALID_REQUEST, text));
    };
    let Ok(text) = str::from_utf8(&line) else {
        return Err(Refusal::new(ErrorCode::PARSE_ERROR, "a line is not UTF-8"));
    };
    if text.trim().is_empty() {
        return Ok(None);
    }
    match TransportFrame::parse_json(text) {
        TransportFrame::Single(message) => {
            if let RawJsonRpcMessage::Request(request) = &message
                && let Err(text) = window.take_request(&request.id, line.len())
            {
                return Err(Refusal { id: request.id.clone(), code: ErrorCode::INVALID_REQUEST, text });
            }
            Ok(Some(TransportFrame::Single(message)))
        }
        // An answer is never answered, not even one that is malformed.
        TransportFrame::Malformed { .. } if is_response(text) => Ok(None),
        TransportFrame::Malformed { error, .. } => Err(Refusal::new(error.code, error.message)),
        _ => Ok(None),
    }
}

fn is_response(text: &str) -> bool {
    let Ok(value) = serde_json::from_str::<serde_json::Value>(text) else { return false };
    value.get("method").is_none() && (value.get("result").is_some() || value.get("error").is_some())
}

fn read_lines(lines: &mpsc::Sender<InputLine>) {
    let mut input = io::stdin().lock();
    loop {
        match read_line(&mut input, MAX_LINE_BYTES) {
            Ok(Some(line)) => {
                if lines.blocking_send(line).is_err() {
                    return;
                }
            }
            Ok(None) => return,
            Err(error) => return tracing::warn!(%error, "standard input cannot be read"),
        }
    }
}

/// The next line without its end; `None` at the end of the input. Of a line that is too long nothing is kept.
fn read_line(input: &mut impl BufRead, max: usize) -> io::Result<Option<InputLine>> {
    let (mut line, mut is_too_long) = (Vec::new(), false);
    let whole =
        |line, is_too_long| Some(if is_too_long { InputLine::TooLong } else { InputLine::Text(line) });
    loop {
        let available = match input.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if available.is_empty() {
            let is_end = line.is_empty() && !is_too_long;
            return Ok(if is_end { None } else { whole(line, is_too_long) });
        }
        let end = memchr::memchr(b'\n', available);
        let piece = &available[..end.unwrap_or(available.len())];
        is_too_long = is_too_long || line.len() + piece.len() > max;
        if is_too_long {
            line = Vec::new();
        } else {
            line.extend_from_slice(piece);
        }
        let taken = piece.len() + usize::from(end.is_some());
        input.consume(taken);
        if end.is_some() {
            return Ok(whole(line, is_too_long));
        }
    }
}

fn write_lines(mut lines: mpsc::Receiver<String>) {
    let mut output = io::stdout().lock();
    while let Some(mut line) = lines.blocking_recv() {
        line.push('\n');
        if let Err(error) = output.write_all(line.as_bytes()).and_then(|()| output.flush()) {
            return tracing::warn!(%error, "standard output cannot be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[track_caller]
    fn check_lines(input: &[u8], max: usize, expect: &[Option<&str>]) {
        // Each size of the buffer finds the ends of lines elsewhere.
        for capacity in 1..8 {
            let mut input = io::BufReader::with_capacity(capacity, input);
            let mut lines = Vec::new();
            while let Some(line) = read_line(&mut input, max).unwrap() {
                lines.push(line);
            }
            let whole = |text: &str| InputLine::Text(text.as_bytes().to_vec());
            let expect: Vec<_> = expect.iter().map(|text| text.map_or(InputLine::TooLong, whole)).collect();
            assert_eq!(lines, expect, "{input:?}");
        }
    }

    #[test]
    fn lines_are_read_up_to_their_limit() {
        check_lines(b"", 4, &[]);
        check_lines(b"ab\n\ncd", 4, &[Some("ab"), Some(""), Some("cd")]);
        check_lines(b"abcd\nabcde\nab\n", 4, &[Some("abcd"), None, Some("ab")]);
        check_lines(b"abcdefghijklm", 4, &[None]);
    }

    /// Checks what becomes of a line: `Ok(true)` goes to the connection, `Ok(false)` is left out.
    #[track_caller]
    fn check(window: &Window, line: &str, expect: Result<bool, (Value, i32)>) {
        let read = read_frame(InputLine::Text(line.as_bytes().to_vec()), window);
        let got = read.map(|frame| frame.is_some());
        let got = got.map_err(|refusal| (serde_json::to_value(refusal.id).unwrap(), refusal.code.value()));
        assert_eq!(got, expect, "{line}");
    }

    #[test]
    fn only_messages_reach_the_connection() {
        let window = Window::new();
        check(&window, r#"{"jsonrpc":"2.0","method":"a"}"#, Ok(true));
        check(&window, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, Ok(true));
        check(&window, r#"{"id":1,"result":{}}"#, Ok(false));
        check(&window, "  ", Ok(false));
        check(&window, "{", Err((Value::Null, -32700)));
        check(&window, "[]", Err((Value::Null, -32600)));
        check(&window, &"[".repeat(100_000), Err((Value::Null, -32700)));
        let not_text = read_frame(InputLine::Text(vec![0xff]), &window).unwrap_err();
        assert_eq!(not_text.code, ErrorCode::PARSE_ERROR);
        let too_long = read_frame(InputLine::TooLong, &window).unwrap_err();
        assert!(too_long.text.contains("64 MiB"), "{}", too_long.text);
    }

    #[test]
    fn requests_beyond_the_limit_are_refused() {
        let window = Window::new();
        let request = |id: usize| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"a"}}"#);
        (0..MAX_UNANSWERED).for_each(|id| check(&window, &request(id), Ok(true)));
        check(&window, &request(999), Err((Value::from(999), -32600)));
        // Cancellations and answers still get through.
        check(&window, r#"{"jsonrpc":"2.0","method":"a"}"#, Ok(true));
        let id: RawJsonRpcId = serde_json::from_value(Value::from(7)).unwrap();
        window.on_written(&RawJsonRpcMessage::response(id, Ok(Value::Null)));
        check(&window, &request(999), Ok(true));
        let other = Window::new();
        other.unanswered().insert(RawJsonRpcId::Null, MAX_UNANSWERED_BYTES);
        check(&other, &request(1), Err((Value::from(1), -32600)));
    }
}
