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
    desk::Desk,
    fault::{Fault, FaultKind},
    place::{Place, SOCKET},
    protocol::{Answer, line},
    token::{Token, remove},
};

/// Connections at once.
const CONNECTIONS: usize = 32;
/// How long answers may take when the holder ends.
const CLOSING: Duration = Duration::from_millis(500);
/// How long to wait when the system has no descriptor left for a client.
const PAUSE: Duration = Duration::from_millis(100);

/// Why the socket cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}; other processes can neither ask nor stop this one", path.display())]
pub struct ControlError {
    /// The file.
    pub path: PathBuf,
    /// What the system says.
    pub source: io::Error,
}

/// Serves the socket until it is stopped or dropped; then the socket is gone.
#[derive(Debug)]
pub struct Server {
    serving: JoinHandle<()>,
    closing: DropGuard,
    files: Files,
}

/// What is removed at the end: while the store is still held, so that no other process can have made it anew.
#[derive(Debug)]
struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        for path in [self.0.join(SOCKET), Token::path(&self.0)] {
            if let Err(error) = remove(&path) {
                tracing::warn!(path = %path.display(), %error, "cannot be removed");
            }
        }
    }
}

impl Server {
    /// Listens in the state directory, whose store this process must hold: whatever socket is there is of a dead one.
    pub fn start(state: &Path, desk: Desk) -> Result<Self, ControlError> {
        let socket = state.join(SOCKET);
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ControlError { path, source }
        };
        let token = Token::create(state).map_err(failed(&Token::path(state)))?;
        let files = Files(state.to_owned());
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
    let listener = UnixListener::bind(Place::new(state, PART)?.path())?;
    fs::set_permissions(&part, fs::Permissions::from_mode(0o600))?;
    fs::rename(&part, state.join(SOCKET))?;
    Ok(listener)
}

async fn accept(listener: UnixListener, desk: Desk, token: Token, closing: CancellationToken) {
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
                    sleep(PAUSE).await;
                    continue;
                }
            },
        };
        if connections.len() == CONNECTIONS {
            turn_away(&stream);
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
    if timeout(CLOSING, all).await.is_err() {
        tracing::warn!("a control connection is left without its answer");
    }
}

/// Says that there is no room, if that can be said without waiting.
fn turn_away(stream: &UnixStream) {
    let text = format!("{CONNECTIONS} connections are open already; try again in a moment");
    let said = line(&Answer::Refused(Fault::new(FaultKind::Busy, text)));
    if let Ok(line) = said
        && let Err(error) = stream.try_write(&line)
    {
        tracing::debug!(%error, "turned a client away without a word");
    }
}
