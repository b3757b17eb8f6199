//! Lines of JSON over standard input and output. Standard output has nothing else. Two threads do the blocking reads and
//! writes, so that an editor that stops reading, or never writes, holds up no task.
//!
//! Everything that waits is bounded. Updates wait in a [`Window`] until the editor has read earlier ones, and a request beyond
//! [`MAX_UNANSWERED`] is refused at once.

use std::{
    io::{self, BufRead, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use agent_client_protocol::{
    Channel, Error, ErrorCode, RawJsonRpcId, RawJsonRpcMessage, TransportFrame,
};
use futures::StreamExt;
use tokio::{
    sync::{Notify, Semaphore, mpsc, oneshot},
    task::yield_now,
    time::timeout,
};

/// Most bytes of a line: a prompt may have pictures.
const MAX_LINE_BYTES: usize = 64 << 20;
/// Most requests of the editor without an answer.
const MAX_UNANSWERED: usize = 256;
/// Most updates that are not written yet.
const MAX_UPDATES: usize = 256;
/// Lines between a thread and the connection.
const MAX_WAITING_LINES: usize = 1;
/// Time in which the last lines must be written.
const END_TIME: Duration = Duration::from_millis(500);

/// What may wait to be written.
#[derive(Debug)]
pub(super) struct Window {
    updates: Semaphore,
    unanswered: AtomicUsize,
    answered: Notify,
}

impl Window {
    /// Waits until one more update may wait to be written.
    pub(super) async fn reserve_update(&self) {
        // It is returned when a notification is written.
        if let Ok(permit) = self.updates.acquire().await {
            permit.forget();
        }
    }

    /// Waits a moment until every request has its answer.
    pub(super) async fn wait_until_answered(&self) {
        let answered = async {
            loop {
                let notified = self.answered.notified();
                if self.unanswered.load(Ordering::Acquire) == 0 {
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

    fn on_written(&self, message: &RawJsonRpcMessage) {
        match message {
            RawJsonRpcMessage::Notification(_) => self.updates.add_permits(1),
            RawJsonRpcMessage::Response(_) => {
                let one_less = |count: usize| Some(count.saturating_sub(1));
                // The closure always gives a value, so this cannot fail.
                self.unanswered.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).ok();
                self.answered.notify_waiters();
            }
            RawJsonRpcMessage::Request(_) => {}
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
        let window = Window {
            updates: Semaphore::new(MAX_UPDATES),
            unanswered: AtomicUsize::new(0),
            answered: Notify::new(),
        };
        Ok(Self { input, output, written, window: Arc::new(window) })
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
                    Err((id, error)) => {
                        if output.send(refusal(id, error)).await.is_err() {
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

/// The frame of a line; `None` of one without meaning, or the error with which it is answered.
fn read_frame(line: InputLine, window: &Window) -> Result<Option<TransportFrame>, (RawJsonRpcId, Error)> {
    let refused = |code: ErrorCode, text: &str| Err((RawJsonRpcId::Null, Error::new(code, text)));
    let InputLine::Text(line) = line else {
        let text = format!("a line has more than {} MiB; attach smaller files", MAX_LINE_BYTES >> 20);
        return refused(ErrorCode::INVALID_REQUEST, &text);
    };
    let Ok(text) = str::from_utf8(&line) else {
        return refused(ErrorCode::PARSE_ERROR, "a line is not UTF-8");
    };
    if text.trim().is_empty() {
        return Ok(None);
    }
    match TransportFrame::parse_json(text) {
        TransportFrame::Single(message) => {
            if let RawJsonRpcMessage::Request(request) = &message {
                if window.unanswered.load(Ordering::Acquire) >= MAX_UNANSWERED {
                    let text = format!("{MAX_UNANSWERED} requests wait for their answers; send this one later");
                    return Err((request.id.clone(), Error::new(ErrorCode::INVALID_REQUEST, text)));
                }
                window.unanswered.fetch_add(1, Ordering::AcqRel);
            }
            Ok(Some(TransportFrame::Single(message)))
        }
        // An answer is never answered, not even one that is malformed.
        TransportFrame::Malformed { .. } if is_response(text) => Ok(None),
        TransportFrame::Malformed { error, .. } => refused(error.code, &error.message),
        _ => Ok(None),
    }
}

fn is_response(text: &str) -> bool {
    let value = serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
    value.get("method").is_none() && (value.get("result").is_some() || value.get("error").is_some())
}

/// The answer to a line that the connection does not get.
fn refusal(id: RawJsonRpcId, error: Error) -> String {
    let response = TransportFrame::Single(RawJsonRpcMessage::response(id, Err(error)));
    response.to_json().unwrap_or_default()
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
    let whole = |line, is_too_long| Some(if is_too_long { InputLine::TooLong } else { InputLine::Text(line) });
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
