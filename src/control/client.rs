use std::{io, path::Path, time::Duration};

use hermod_actors::ActiveDeadline;
use tokio::{
    io::AsyncWriteExt,
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use super::{
    fault::{Fault, FaultKind},
    lines::{LineError, Lines},
    place::{Place, SOCKET},
    protocol::{Answer, Greeting, Request, line},
    token::Token,
};

/// How long the holder may take for a line of its answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes in a line of an answer; a record may be large.
const LINE: usize = 1 << 30;

/// A connection to whoever holds the store.
#[derive(Debug)]
pub struct Client {
    lines: Lines<OwnedReadHalf>,
    to: OwnedWriteHalf,
}

/// Why an answer did not come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The holder has gone: ask again, or open the store.
    #[error("the process that held the store has gone")]
    Gone,
    /// The holder is there, and there is no use in asking again.
    #[error("{0}")]
    Fault(Fault),
}

impl Client {
    /// Connects to whoever holds the store in `state` and greets it; `None` if nobody is there.
    pub async fn connect(state: &Path) -> Result<Option<Self>, Fault> {
        let path = state.join(SOCKET);
        let failed = |error: &io::Error| {
            let (kind, remedy) = if error.kind() == io::ErrorKind::WouldBlock {
                (FaultKind::Busy, "it has too many clients, try again in a moment")
            } else {
                (FaultKind::Denied, "ask as the user who runs the other process")
            };
            Fault::new(kind, format!("{}: {error}; {remedy}", path.display()))
        };
        let place = Place::new(state, SOCKET).map_err(|error| failed(&error))?;
        let stream = match UnixStream::connect(place.path()).await {
            Ok(stream) => stream,
            Err(error) if is_nobody(&error) => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        // Read after connecting: the token is made before the socket, so that this one belongs to it, or to a later one.
        let token = match Token::read(state) {
            Ok(token) => token,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        let (from, to) = stream.into_split();
        let mut client = Self { lines: Lines::new(from, LINE), to };
        let greeting = line(&Greeting { token: token.reveal().to_owned() })?;
        Ok(client.write(&greeting).await.ok().map(|()| client))
    }

    /// Asks, and hands each line of the answer to `each`; the last one is returned.
    pub async fn ask(
        &mut self,
        request: &Request,
        mut each: impl FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Lost> {
        let request = line(request).map_err(Lost::Fault)?;
        // If it does not want to hear more, it has said why.
        let written = self.write(&request).await;
        loop {
            let answer = self.next().await.map_err(|lost| match (lost, &written) {
                (_, Err(lost)) => lost.clone(),
                (lost, Ok(())) => lost,
            })?;
            if let Answer::Refused(fault) = answer {
                return Err(Lost::Fault(fault));
            }
            if answer.is_last() {
                return Ok(answer);
            }
            each(answer).map_err(Lost::Fault)?;
        }
    }

    async fn next(&mut self) -> Result<Answer, Lost> {
        let line = match ActiveDeadline::after(PATIENCE).bound(self.lines.next()).await {
            Some(Ok(Some(line))) => line,
            Some(Ok(None) | Err(LineError::Io(_))) => return Err(Lost::Gone),
            Some(Err(error @ LineError::TooLong(_))) => return Err(internal(&error.to_string())),
            None => return Err(Lost::Fault(silent())),
        };
        serde_json::from_slice(&line)
            .map_err(|error| internal(&format!("its answer is not understood: {error}")))
    }

    async fn write(&mut self, line: &[u8]) -> Result<(), Lost> {
        match ActiveDeadline::after(PATIENCE).bound(self.to.write_all(line)).await {
            Some(written) => written.map_err(|_| Lost::Gone),
            None => Err(Lost::Fault(silent())),
        }
    }
}

/// No socket, or one of a dead process.
fn is_nobody(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn silent() -> Fault {
    let text = format!(
        "the process that holds the store has said nothing for {} s; is it stopped?",
        PATIENCE.as_secs()
    );
    Fault::new(FaultKind::Busy, text)
}

fn internal(error: &str) -> Lost {
    let text = format!("the process that holds the store is of another version: {error}");
    Lost::Fault(Fault::new(FaultKind::Internal, text))
}
