//! Client of the control socket, for processes that are not the owner: connects, sends one request at a time, reads the
//! answer. `host/store_client.rs` chooses between the owner and the store.

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
    error::{RequestError, RequestErrorKind},
    lines::{LineError, LineReader},
    protocol::{ControlRequest, ControlResponse, Greeting, encode_line},
    socket_path::{SOCKET, SocketPath},
    token::ControlToken,
};

/// Time limit for one line of the owner's answer.
const LINE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes of an answer's line. The limit is large because a record may be.
const MAX_LINE_BYTES: usize = 1 << 30;

/// A connection to the owner of the store.
#[derive(Debug)]
pub struct ControlClient {
    lines: LineReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    /// When the owner must have sent the next line.
    deadline: ActiveDeadline,
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The owner has ended. The caller asks again or opens the store.
    #[error("the process that held the store has gone")]
    Disconnected,
    /// The owner refused the request, does not answer, or speaks another version. A repeat does not help.
    #[error(transparent)]
    Rejected(#[from] RequestError),
}

impl ControlClient {
    /// Connects to the owner of the store in `state` and sends the greeting; `None` without an owner.
    pub async fn connect(state: &Path) -> Result<Option<Self>, RequestError> {
        let path = state.join(SOCKET);
        let connect_error = |error: &io::Error| {
            let (kind, remedy) = if error.kind() == io::ErrorKind::WouldBlock {
                (RequestErrorKind::Crowded, "it has too many clients, try again in a moment")
            } else {
                (RequestErrorKind::Denied, "ask as the user who runs the other process")
            };
            RequestError::new(kind, format!("{}: {error}; {remedy}", path.display()))
        };
        let socket = SocketPath::new(state, SOCKET).map_err(|error| connect_error(&error))?;
        let stream = match UnixStream::connect(socket.path()).await {
            Ok(stream) => stream,
            Err(error) if is_without_listener(&error) => return Ok(None),
            Err(error) => return Err(connect_error(&error)),
        };
        // Read after connecting: the token is made before the socket, so it belongs to this socket or to a later one.
        let token = match ControlToken::read(state) {
            Ok(token) => token,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(connect_error(&error)),
        };
        let (reader, writer) = stream.into_split();
        let deadline = ActiveDeadline::after(LINE_TIMEOUT);
        let mut client = Self { lines: LineReader::new(reader, MAX_LINE_BYTES), writer, deadline };
        let greeting = encode_line(&Greeting { token: token.reveal().to_owned() })?;
        Ok(client.write(&greeting).await.ok().map(|()| client))
    }

    /// Sends a request and passes each line of the answer but the last to `each`; returns the last line.
    pub async fn request(
        &mut self,
        request: &ControlRequest,
        mut each: impl FnMut(ControlResponse) -> Result<(), RequestError>,
    ) -> Result<ControlResponse, AskError> {
        let request = encode_line(request)?;
        self.deadline = ActiveDeadline::after(LINE_TIMEOUT);
        // A failed write is reported only after reading: an owner that refuses the request has sent the reason.
        let written = self.write(&request).await;
        loop {
            let answer = self.next_response().await.map_err(|disconnect| match (disconnect, &written) {
                (_, Err(disconnect)) => disconnect.clone(),
                (disconnect, Ok(())) => disconnect,
            })?;
            if let ControlResponse::Refused(error) = answer {
                return Err(error.into());
            }
            if answer.is_last() {
                return Ok(answer);
            }
            each(answer)?;
        }
    }

    /// Sends a request whose answer has many lines; [`Self::next_line`] reads them.
    pub async fn start(&mut self, request: &ControlRequest) -> Result<(), AskError> {
        let request = encode_line(request)?;
        self.deadline = ActiveDeadline::after(LINE_TIMEOUT);
        self.write(&request).await
    }

    /// The next line of the answer to [`Self::start`]. May be cancelled at any time.
    pub async fn next_line(&mut self) -> Result<ControlResponse, AskError> {
        let line = self.next_response().await?;
        if let ControlResponse::Refused(error) = line {
            return Err(error.into());
        }
        Ok(line)
    }

    async fn next_response(&mut self) -> Result<ControlResponse, AskError> {
        let line = tokio::select! {
            biased;
            line = self.lines.next() => Some(line),
            () = self.deadline.over() => None,
        };
        self.deadline = ActiveDeadline::after(LINE_TIMEOUT);
        let line = match line {
            Some(Ok(Some(line))) => line,
            Some(Ok(None) | Err(LineError::Io(_))) => return Err(AskError::Disconnected),
            Some(Err(error @ LineError::TooLong(_))) => return Err(version_mismatch(&error.to_string())),
            None => return Err(silent_owner().into()),
        };
        serde_json::from_slice(&line)
            .map_err(|error| version_mismatch(&format!("its answer is not understood: {error}")))
    }

    async fn write(&mut self, line: &[u8]) -> Result<(), AskError> {
        match ActiveDeadline::after(LINE_TIMEOUT).bound(self.writer.write_all(line)).await {
            Some(written) => written.map_err(|_| AskError::Disconnected),
            None => Err(silent_owner().into()),
        }
    }
}

/// True if there is no socket, or only that of a process that has ended, perhaps while the connection waited.
fn is_without_listener(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
    )
}

fn silent_owner() -> RequestError {
    let text = format!(
        "the process that holds the store has said nothing for {} s; is it stopped?",
        LINE_TIMEOUT.as_secs()
    );
    RequestError::new(RequestErrorKind::Busy, text)
}

fn version_mismatch(error: &str) -> AskError {
    let text = format!("the process that holds the store is of another version: {error}");
    RequestError::internal(text).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn an_owner_that_ends_while_a_client_connects_is_none() {
        let state = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(state.path().join(SOCKET)).unwrap();
        let mut connecting = std::pin::pin!(ControlClient::connect(state.path()));
        // The connection waits to be accepted.
        assert!(poll!(&mut connecting).is_pending());
        drop(listener);
        assert!(connecting.await.unwrap().is_none());
    }
}
