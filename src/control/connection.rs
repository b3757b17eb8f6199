//! The owner's side of one connection to the control socket: checks the token of the greeting, then answers requests,
//! one at a time.

use std::{sync::Arc, time::Duration};

use hermod_actors::ActiveDeadline;
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Semaphore, mpsc},
};
use tokio_util::sync::CancellationToken;

use super::{
    error::{RequestError, RequestErrorKind},
    handler::RequestHandler,
    lines::{LineError, LineReader},
    protocol::{ControlRequest, ControlResponse, Greeting, encode_line},
    token::ControlToken,
};

/// Maximum bytes of a line from a client.
pub const MAX_LINE_BYTES: usize = 256 << 10;
/// Time limits for the greeting and for the next request.
const GREETING_TIMEOUT: Duration = Duration::from_secs(2);
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for the client to take the next part of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Answer lines queued for a client. A line may have a whole record, and many clients may be slow.
const MAX_QUEUED_RESPONSES: usize = 4;

/// Why the server ends a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionEnd {
    #[error("the client does not take its answers")]
    WriteTimeout,
    #[error("the client says nothing")]
    Silent,
    #[error("the client is gone: {0}")]
    Gone(#[from] std::io::Error),
    #[error(transparent)]
    Refused(#[from] RequestError),
    #[error("who could answer has gone")]
    NoAnswer,
}

/// Serves a client until it disconnects or breaks a rule. When `closing`, the request under way is still answered.
pub(super) async fn serve(
    stream: UnixStream,
    (handler, followers): (RequestHandler, Arc<Semaphore>),
    token: ControlToken,
    closing: CancellationToken,
) -> Result<(), ConnectionEnd> {
    let handler = handler.for_client();
    let (reader, mut writer) = stream.into_split();
    let mut lines = LineReader::new(reader, MAX_LINE_BYTES);
    let greeting = tokio::select! {
        biased;
        greeting = read(&mut lines, &mut writer, GREETING_TIMEOUT) => greeting?,
        () = closing.cancelled() => return Ok(()),
    };
    let Some(greeting) = greeting else { return Ok(()) };
    if !is_valid_greeting(&greeting, &token) {
        let text = "the first line is not {\"token\": …} with the content of control.token";
        return refuse(&mut writer, RequestError::new(RequestErrorKind::Denied, text)).await;
    }
    loop {
        let line = tokio::select! {
            biased;
            line = read(&mut lines, &mut writer, IDLE_TIMEOUT) => line?,
            () = closing.cancelled() => return Ok(()),
        };
        let Some(line) = line else { return Ok(()) };
        let request = ControlRequest::parse(&line);
        let is_follower = request.as_ref().is_ok_and(ControlRequest::follows);
        let place = is_follower.then(|| followers.try_acquire());
        if let Some(Err(_)) = place {
            let text = "too many clients follow runs; the run goes on, try again in a moment";
            let refusal = RequestError::new(RequestErrorKind::Crowded, text);
            write(&mut writer, &ControlResponse::Refused(refusal)).await?;
            continue;
        }
        match request {
            Ok(request) => respond(&handler, request, &mut writer).await?,
            Err(error) => write(&mut writer, &ControlResponse::Refused(error)).await?,
        }
    }
}

fn is_valid_greeting(line: &[u8], token: &ControlToken) -> bool {
    serde_json::from_slice::<Greeting>(line).is_ok_and(|greeting| token.is(&greeting.token))
}

async fn read(
    lines: &mut LineReader<OwnedReadHalf>,
    writer: &mut OwnedWriteHalf,
    limit: Duration,
) -> Result<Option<Vec<u8>>, ConnectionEnd> {
    match ActiveDeadline::after(limit).bound(lines.next()).await {
        Some(Ok(line)) => Ok(line),
        Some(Err(error @ LineError::TooLong(_))) => {
            refuse(writer, RequestError::usage(format!("{error}; send less at once"))).await.map(|()| None)
        }
        Some(Err(LineError::Io(error))) => Err(ConnectionEnd::Gone(error)),
        None => Err(ConnectionEnd::Silent),
    }
}

async fn respond(
    handler: &RequestHandler,
    request: ControlRequest,
    writer: &mut OwnedWriteHalf,
) -> Result<(), ConnectionEnd> {
    let (sender, mut answers) = mpsc::channel(MAX_QUEUED_RESPONSES);
    let answering = async move { handler.answer(request, &sender).await };
    // When this future ends, the closed channel tells the handler that the client is gone.
    let written = async move {
        let mut is_last = false;
        while let Some(answer) = answers.recv().await {
            is_last = answer.is_last();
            write(writer, &answer).await?;
        }
        if is_last { Ok(()) } else { Err(ConnectionEnd::NoAnswer) }
    };
    let ((), written) = tokio::join!(answering, written);
    written
}

/// Sends the reason and ends the connection.
async fn refuse(writer: &mut OwnedWriteHalf, error: RequestError) -> Result<(), ConnectionEnd> {
    write(writer, &ControlResponse::Refused(error.clone())).await?;
    Err(error.into())
}

async fn write(writer: &mut OwnedWriteHalf, answer: &ControlResponse) -> Result<(), ConnectionEnd> {
    let line = encode_line(answer).or_else(|error| encode_line(&ControlResponse::Refused(error)))?;
    for chunk in line.chunks(MAX_LINE_BYTES) {
        ActiveDeadline::after(WRITE_TIMEOUT)
            .bound(writer.write_all(chunk))
            .await
            .ok_or(ConnectionEnd::WriteTimeout)??;
    }
    Ok(())
}
