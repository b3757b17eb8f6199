//! Server of the control socket: creates the token, binds the socket, accepts connections, and removes both files at
//! the end. `connection.rs` serves each client.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    net::{UnixListener, UnixStream},
    sync::Semaphore,
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
    token::ControlToken,
};
use crate::files::{self, IoResult as _, PathError};

/// Limit of concurrent connections.
const MAX_CONNECTIONS: usize = 256;
/// Limit of those that follow a run, each for as long as the run takes. The others are left for commands such as `stop`.
const MAX_FOLLOWERS: usize = 192;
/// Time that pending answers get when the server stops.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Pause after a failed accept, for example without a free file descriptor.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves the socket until it is stopped or dropped; both remove the socket.
#[derive(Debug)]
pub struct ControlServer {
    task: JoinHandle<()>,
    closing: DropGuard,
    files: SocketFiles,
    clients: Arc<AtomicUsize>,
}

/// Removes the socket and the token at the end. The store is still open then, so no other process can have recreated
/// them.
#[derive(Debug)]
struct SocketFiles(PathBuf);

impl Drop for SocketFiles {
    fn drop(&mut self) {
        for path in [self.0.join(SOCKET), ControlToken::path(&self.0)] {
            if let Err(error) = files::remove(&path) {
                tracing::warn!(path = %path.display(), %error, "cannot be removed");
            }
        }
    }
}

impl ControlServer {
    /// Listens in the state directory. This process must have its store open: an existing socket is then of a dead
    /// process.
    pub fn start(state: &Path, handler: RequestHandler) -> Result<Self, PathError> {
        let token = ControlToken::create(state).at(ControlToken::path(state))?;
        let files = SocketFiles(state.to_owned());
        let listener = listen(state).at(state.join(SOCKET))?;
        let closing = CancellationToken::new();
        let clients = Arc::<AtomicUsize>::default();
        let task = tokio::spawn(accept(listener, handler, (token, Arc::clone(&clients)), closing.clone()));
        Ok(Self { task, closing: closing.drop_guard(), files, clients })
    }

    /// The number of open connections.
    pub fn clients(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.clients)
    }

    /// Stops the server. Requests under way get `CLOSE_TIMEOUT` for their answers.
    pub async fn stop(self) {
        let Self { task, closing, files, .. } = self;
        drop(files);
        drop(closing);
        if let Err(error) = task.await {
            tracing::error!(%error, "the control socket's task died");
        }
    }
}

/// Binds to a temporary name, restricts the mode and renames: no other user can connect in between.
fn listen(state: &Path) -> io::Result<UnixListener> {
    const PART: &str = "control.sock.part";
    let part = state.join(PART);
    files::remove(&part)?;
    let listener = UnixListener::bind(SocketPath::new(state, PART)?.path())?;
    fs::set_permissions(&part, fs::Permissions::from_mode(0o600))?;
    fs::rename(&part, state.join(SOCKET))?;
    Ok(listener)
}

async fn accept(
    listener: UnixListener,
    handler: RequestHandler,
    (token, clients): (ControlToken, Arc<AtomicUsize>),
    closing: CancellationToken,
) {
    let (mut connections, followers) = (JoinSet::new(), Arc::new(Semaphore::new(MAX_FOLLOWERS)));
    loop {
        clients.store(connections.len(), Ordering::Relaxed);
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
        let followers = Arc::clone(&followers);
        let connection =
            connection::serve(stream, (handler.clone(), followers), token.clone(), closing.clone());
        connections.spawn(async {
            if let Err(ended) = connection.await {
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

/// Refuses a connection above the limit, if the line can be written without waiting.
fn reject(stream: &UnixStream) {
    let text = format!("{MAX_CONNECTIONS} connections are open already; try again in a moment");
    let encoded = encode_line(&ControlResponse::Refused(RequestError::new(RequestErrorKind::Crowded, text)));
    if let Ok(line) = encoded
        && let Err(error) = stream.try_write(&line)
    {
        tracing::debug!(%error, "turned a client away without a word");
    }
}
