//! The owner's side of the fork server: starts it, requests runners, and sees what becomes of them.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use hermod_actors::ActiveDeadline;
use rustix::process::{Signal, pidfd_send_signal};
use tokio::{
    io::{Interest, unix::AsyncFd},
    process::Command,
    sync::Mutex,
};

use super::{
    channel::{self, ReceivedMessage, is_closed},
    ended::EndedAttempts,
    files::SpoolName,
    fork_server::{ARGUMENT, ForkRequest},
    idle::{IdleRunners, RunnerKind, RunnerLink},
    owner_link::{ANNOUNCEMENT, READY},
};
use crate::process::{inherited, pidfd};

/// Time that a fork server may take to fork. It looks at paths, and a file system may not answer.
const FORK_TIMEOUT: Duration = Duration::from_secs(10);
/// Further requests for one runner.
const MAX_RETRIES: u32 = 3;
/// Limit of what a runner reports.
const MAX_REPORT_BYTES: usize = 64;

/// Requests runners: one that waits, or a new one from a fork server, which it starts when there is none.
#[derive(Debug)]
pub(super) struct ForkClient {
    /// A `hermod` binary.
    program: Arc<Path>,
    /// Names the server in a list of processes.
    spool: Arc<Path>,
    server: Mutex<Option<ForkServer>>,
    idle: IdleRunners,
    ended: EndedAttempts,
}

/// A fork server that was alive a moment ago. It ends with the socket.
#[derive(Debug)]
struct ForkServer {
    socket: AsyncFd<OwnedFd>,
}

/// A runner that was requested. Dropping this leaves it running.
#[derive(Debug)]
pub(super) struct ForkedRunner {
    client: Arc<ForkClient>,
    kind: RunnerKind,
    request: ForkRequest,
    /// Requests that may still be made, should the fork server or a runner that waited end or not answer.
    retries_left: u32,
    /// When the runner has to have announced itself.
    deadline: ActiveDeadline,
    link: RunnerLink,
    /// True for a runner that had run a command before.
    is_reused: bool,
    /// True once the runner has reported that it begins with this request.
    is_announced: bool,
    /// True once the runner waits for another request: it has ended this command.
    is_ready: bool,
    /// Why nothing was run.
    error: Option<io::Error>,
}

impl ForkClient {
    pub(super) fn new(program: Arc<Path>, spool: Arc<Path>) -> Self {
        Self {
            program,
            spool,
            server: Mutex::new(None),
            idle: IdleRunners::default(),
            ended: EndedAttempts::default(),
        }
    }

    /// True if an attempt is known to have ended. It is forgotten.
    pub(super) fn take_ended(&self, name: SpoolName) -> bool {
        self.ended.take(name)
    }

    /// Gives up a server that does not answer. It ends once it reads from its socket.
    async fn replace(&self) {
        *self.server.lock().await = None;
    }

    /// True if the fork servers of both are the same program for the same spool.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (&self.program, &self.spool) == (&other.program, &other.spool)
    }

    /// Requests a runner. An error means that none has the request.
    pub(super) async fn request(
        self: &Arc<Self>,
        kind: RunnerKind,
        request: ForkRequest,
    ) -> io::Result<ForkedRunner> {
        let bytes = request.encode();
        let waiting = self.idle.request(&kind, &bytes)?;
        let is_reused = waiting.is_some();
        let link = match waiting {
            Some(link) => link,
            None => self.send(&bytes).await?,
        };
        Ok(ForkedRunner {
            client: Arc::clone(self),
            kind,
            request,
            retries_left: MAX_RETRIES,
            deadline: ActiveDeadline::after(FORK_TIMEOUT),
            link,
            is_reused,
            is_announced: false,
            is_ready: false,
            error: None,
        })
    }

    /// Sends a request to the fork server, and returns the link to its runner.
    async fn send(&self, bytes: &[u8]) -> io::Result<RunnerLink> {
        let (own, runners) = channel::pair()?;
        // First: nothing may fail once the request is sent.
        let link = RunnerLink { socket: pidfd::register(own, Interest::READABLE)?, process: None };
        let mut server = self.server.lock().await;
        // A server that was killed is noticed here, and replaced once.
        let sent = match &*server {
            Some(running) => running.send(bytes, &runners).await,
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        match sent {
            Err(error) if is_closed(&error) => {
                // The socket of the old one is closed first.
                *server = None;
                let started = ForkServer::start(&self.program, &self.spool)?;
                let sent = started.send(bytes, &runners).await;
                *server = Some(started);
                sent?;
            }
            sent => sent?,
        }
        Ok(link)
    }
}

impl ForkServer {
    /// It gets only variables that a command may see, since any command can read its environment.
    fn start(program: &Path, spool: &Path) -> io::Result<Self> {
        let (own, servers) = channel::pair()?;
        let mut process = Command::new(program)
            .arg(ARGUMENT)
            .arg(spool)
            .env_clear()
            .envs(inherited())
            .current_dir("/")
            .stdin(Stdio::from(servers))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // Reaped as soon as it has ended. A child that is only dropped can stay a zombie until another one ends.
        tokio::spawn(async move { process.wait().await });
        Ok(Self { socket: pidfd::register(own, Interest::WRITABLE)? })
    }

    /// Sends a request. One that does not take it in time counts as closed.
    async fn send(&self, request: &[u8], runner: &OwnedFd) -> io::Result<()> {
        let send = |socket: &OwnedFd| channel::send(socket, request, Some(runner.as_fd()));
        let sent = self.socket.async_io(Interest::WRITABLE, send);
        let sent = ActiveDeadline::after(FORK_TIMEOUT).bound(sent).await;
        sent.unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into()))
    }
}

impl ForkedRunner {
    /// Resolves when the runner has ended this command or itself, or when it is certain that there will be none.
    /// Cancel-safe.
    pub(super) async fn ended(&mut self) -> io::Result<()> {
        while self.receive().await? {}
        match &self.link.process {
            // Its files are closed a moment before it has exited.
            Some(process) if !self.is_ready => process.readable().await.map(drop),
            Some(_) | None => Ok(()),
        }
    }

    /// Resolves when the runner begins with the request, or its socket is closed. It makes no further request. Cancel-safe.
    pub(super) async fn announced(&mut self) -> io::Result<()> {
        self.retries_left = 0;
        while !self.is_announced
            && let Some(report) = receive_report(&self.link.socket).await?
        {
            self.on_report(report)?;
        }
        Ok(())
    }

    /// True if the runner has ended this command and is alive.
    pub(super) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Remembers that the attempt has ended as its spool says. A runner that waits is kept for a further command; one that
    /// was signalled must not.
    pub(super) fn release(self, name: SpoolName) {
        self.client.ended.add(name);
        if self.is_ready {
            self.client.idle.add(self.kind, self.link);
        }
    }

    /// True if this can signal the runner.
    pub(super) fn has_process(&self) -> bool {
        self.is_announced && self.link.process.is_some()
    }

    /// Signals the runner, if it has announced that it begins with this request.
    pub(super) fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        let process = self.link.process.as_ref().filter(|_| self.is_announced);
        process.map_or(Ok(()), |process| pidfd_send_signal(process, signal))
    }

    /// Why the runner has run nothing, if it has reported that.
    pub(super) fn start_error(&self) -> Option<io::Error> {
        self.error.as_ref().and_then(io::Error::raw_os_error).map(io::Error::from_raw_os_error)
    }

    /// Takes the next message; false if there will be none. If the fork server or a runner that waited ends before the
    /// announcement, or does not answer, another one is requested. Of two runners, one finds the attempt taken.
    async fn receive(&mut self) -> io::Result<bool> {
        if self.is_ready {
            return Ok(false);
        }
        let received = if self.is_announced || self.retries_left == 0 {
            Some(receive_report(&self.link.socket).await?)
        } else {
            self.deadline.bound(receive_report(&self.link.socket)).await.transpose()?
        };
        if let Some(Some(report)) = received {
            return self.on_report(report);
        }
        if self.is_announced || self.error.is_some() || self.retries_left == 0 {
            return Ok(false);
        }
        // Boxed, because it is rare and large.
        Box::pin(self.request_again(received.is_none())).await?;
        Ok(true)
    }

    async fn request_again(&mut self, is_silent: bool) -> io::Result<()> {
        // A runner that waited ends once it sees that its socket is closed.
        if is_silent && !self.is_reused {
            tracing::warn!(request = ?self.request, "the process that starts commands does not answer, and is replaced");
            self.client.replace().await;
        }
        self.retries_left -= 1;
        self.deadline = ActiveDeadline::after(FORK_TIMEOUT);
        self.link = self.client.send(&self.request.encode()).await?;
        self.is_reused = false;
        Ok(())
    }

    fn on_report(&mut self, Report { bytes, file }: Report) -> io::Result<bool> {
        if bytes == ANNOUNCEMENT {
            self.is_announced = true;
            if let Some(process) = file {
                self.link.process = Some(pidfd::watch(process)?);
            }
        } else if bytes == READY {
            self.is_ready = true;
        } else if let Ok(code) = bytes.try_into() {
            self.error = Some(io::Error::from_raw_os_error(i32::from_le_bytes(code)));
        }
        Ok(true)
    }
}

/// What a runner reports.
struct Report {
    bytes: Vec<u8>,
    file: Option<OwnedFd>,
}

/// Receives the next report; `None` if there will be none. Cancel-safe.
async fn receive_report(socket: &AsyncFd<OwnedFd>) -> io::Result<Option<Report>> {
    let mut buffer = [0; MAX_REPORT_BYTES];
    let receive = |socket: &OwnedFd| {
        let message = channel::receive(socket, &mut buffer)?;
        Ok(message.map(|ReceivedMessage { bytes, file }| Report { bytes: bytes.to_vec(), file }))
    };
    socket.async_io(Interest::READABLE, receive).await
}
