//! One connection: greeting, then requests, one at a time.

use std::time::Duration;

use hermod_actors::ActiveDeadline;
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use super::{
    desk::Desk,
    fault::{Fault, FaultKind},
    lines::{LineError, Lines},
    protocol::{Answer, Greeting, Request, line},
    token::Token,
};

/// Bytes in a line from a client.
pub(super) const LINE: usize = 256 << 10;
/// How long a client may take for its greeting, and for the next request.
const GREETING: Duration = Duration::from_secs(2);
const IDLE: Duration = Duration::from_secs(30);
/// How long a client may take nothing of what it asked for.
const TAKING: Duration = Duration::from_secs(10);
/// Answers on their way to a client.
const BUFFER: usize = 16;

/// Why a connection ends before its client ends it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("the client does not take its answers")]
    NotTaken,
    #[error("the client says nothing")]
    Silent,
    #[error("the client is gone: {0}")]
    Gone(#[from] std::io::Error),
    #[error("{0}")]
    Refused(Fault),
    #[error("who could answer has gone")]
    NoAnswer,
}

/// Serves a client until it goes, or breaks a rule; when `closing`, until what it asked for is answered.
pub(super) async fn serve(
    stream: UnixStream,
    desk: Desk,
    token: Token,
    closing: CancellationToken,
) -> Result<(), Ended> {
    let desk = desk.afresh();
    let (from, mut to) = stream.into_split();
    let mut lines = Lines::new(from, LINE);
    let greeting = tokio::select! {
        biased;
        greeting = read(&mut lines, &mut to, GREETING) => greeting?,
        () = closing.cancelled() => return Ok(()),
    };
    let Some(greeting) = greeting else { return Ok(()) };
    if !greets(&greeting, &token) {
        let text = "the first line is not {\"token\": …} with the content of control.token";
        return refuse(&mut to, Fault::new(FaultKind::Denied, text)).await;
    }
    loop {
        let line = tokio::select! {
            biased;
            line = read(&mut lines, &mut to, IDLE) => line?,
            () = closing.cancelled() => return Ok(()),
        };
        let Some(line) = line else { return Ok(()) };
        match Request::parse(&line) {
            Ok(request) => answer(&desk, request, &mut to).await?,
            Err(fault) => write(&mut to, &Answer::Refused(fault)).await?,
        }
    }
}

fn greets(line: &[u8], token: &Token) -> bool {
    serde_json::from_slice::<Greeting>(line).is_ok_and(|greeting| token.is(&greeting.token))
}

async fn read(
    lines: &mut Lines<OwnedReadHalf>,
    to: &mut OwnedWriteHalf,
    limit: Duration,
) -> Result<Option<Vec<u8>>, Ended> {
    match ActiveDeadline::after(limit).bound(lines.next()).await {
        Some(Ok(line)) => Ok(line),
        Some(Err(error @ LineError::TooLong(_))) => {
            refuse(to, Fault::usage(format!("{error}; send less at once"))).await.map(|()| None)
        }
        Some(Err(LineError::Io(error))) => Err(Ended::Gone(error)),
        None => Err(Ended::Silent),
    }
}

async fn answer(desk: &Desk, request: Request, to: &mut OwnedWriteHalf) -> Result<(), Ended> {
    let (sender, mut answers) = mpsc::channel(BUFFER);
    let asked = async move { desk.answer(request, &sender).await };
    // When it ends, whoever answers learns by the closed channel that nobody listens.
    let written = async move {
        let mut last = false;
        while let Some(answer) = answers.recv().await {
            last = answer.is_last();
            write(to, &answer).await?;
        }
        if last { Ok(()) } else { Err(Ended::NoAnswer) }
    };
    let ((), written) = tokio::join!(asked, written);
    written
}

/// Says why, and ends the connection.
async fn refuse(to: &mut OwnedWriteHalf, fault: Fault) -> Result<(), Ended> {
    write(to, &Answer::Refused(fault.clone())).await?;
    Err(Ended::Refused(fault))
}

async fn write(to: &mut OwnedWriteHalf, answer: &Answer) -> Result<(), Ended> {
    let line = line(answer).or_else(|fault| line(&Answer::Refused(fault))).map_err(Ended::Refused)?;
    for part in line.chunks(LINE) {
        ActiveDeadline::after(TAKING).bound(to.write_all(part)).await.ok_or(Ended::NotTaken)??;
    }
    Ok(())
}
