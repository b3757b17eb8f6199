use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    net::{UnixListener, UnixStream},
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    connection,
    error::{RequestError, RequestErrorKind},
    handler::RequestHandler,
    protocol::{ControlResponse, encode_line},
    socket_path::{SOCKET, SocketPath},
    token::{ControlToken, remove},
};

/// Connections at once.
const MAX_CONNECTIONS: usize = 32;
/// How long answers may take when the holder ends.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long to wait when the system has no descriptor left for a client.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Why the socket cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}; other processes can neither ask nor stop this one", path.display())]
pub struct ListenError {
    /// The file.
    pub path: PathBuf,
    /// What the system says.
    pub source: io::Error,
}

/// Serves the socket until it is stopped or dropped; then the socket is gone.
#[derive(Debug)]
pub struct ControlServer {
    serving: JoinHandle<()>,
    closing: DropGuard,
    files: SocketFiles,
}

/// What is removed at the end: while the store is still held, so that no other process can have made it anew.
#[derive(Debug)]
struct SocketFiles(PathBuf);

impl Drop for SocketFiles {
    fn drop(&mut self) {
        for path in [self.0.join(SOCKET), ControlToken::path(&self.0)] {
            if let Err(error) = remove(&path) {
                tracing::warn!(path = %path.display(), %error, "cannot be removed");
            }
        }
    }
}

impl ControlServer {
    /// Listens in the state directory, whose store this process must hold: whatever socket is there is of a dead one.
    pub fn start(state: &Path, desk: RequestHandler) -> Result<Self, ListenError> {
        let socket = state.join(SOCKET);
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ListenError { path, source }
        };
        let token = ControlToken::create(state).map_err(failed(&ControlToken::path(state)))?;
        let files = SocketFiles(state.to_owned());
        let listener = listen(state).map_err(failed(&socket))?;
        let closing = CancellationToken::new();
        let serving = tokio::spawn(accept(listener, desk, token, closing.clone()));
        Ok(Self { serving, closing: closing.drop_guard(), files })
    }

    /// Ends, after what was asked is answered.
    pub async fn stop(self) {
        let Self { serving, closing, files } = self;
        drop(files);
        drop(closing);
        if let Err(error) = serving.await {
            tracing::error!(%error, "the control socket's task died");
        }
    }
}

/// Binds beside and moves into place: nobody connects before only this user may.
fn listen(state: &Path) -> io::Result<UnixListener> {
    const PART: &str = "control.sock.part";
    let part = state.join(PART);
    remove(&part)?;
    let listener = UnixListener::bind(SocketPath::new(state, PART)?.path())?;
    fs::set_permissions(&part, fs::Permissions::from_mode(0o600))?;
    fs::rename(&part, state.join(SOCKET))?;
    Ok(listener)
}

async fn accept(
    listener: UnixListener,
    desk: RequestHandler,
    token: ControlToken,
    closing: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            biased;
            () = closing.cancelled() => break,
            Some(ended) = connections.join_next() => {
                ended.unwrap_or_else(|error| tracing::error!(%error, "a connection's task died"));
                continue;
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "no connection could be accepted");
                    sleep(ACCEPT_RETRY_DELAY).await;
                    continue;
                }
            },
        };
        if connections.len() == MAX_CONNECTIONS {
            reject(&stream);
            continue;
        }
        let served = connection::serve(stream, desk.clone(), token.clone(), closing.clone());
        connections.spawn(async {
            if let Err(ended) = served.await {
                tracing::debug!(%ended, "a control connection ended");
            }
        });
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(CLOSE_TIMEOUT, all).await.is_err() {
        tracing::warn!("a control connection is left without its answer");
    }
}

/// Says that there is no room, if that can be said without waiting.
fn reject(stream: &UnixStream) {
    let text = format!("{MAX_CONNECTIONS} connections are open already; try again in a moment");
    let said = encode_line(&ControlResponse::Refused(RequestError::new(RequestErrorKind::Busy, text)));
    if let Ok(line) = said
        && let Err(error) = stream.try_write(&line)
    {
        tracing::debug!(%error, "turned a client away without a word");
    }
}
