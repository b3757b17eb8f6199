//! A runner at work, seen by a daemon.

use std::{io, os::fd::OwnedFd, pin::pin, process::ExitStatus, thread, time::Duration};

use hermod_actors::ActiveDeadline;
use rustix::process::{Pid, Signal, kill_process, pidfd_send_signal};
use tokio::{io::unix::AsyncFd, process::Child, sync::oneshot, task::spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::{
    exit::Exit,
    files::{Claim, Folder, Name},
    ledger::Mark,
    remains,
};
use crate::process::{Cause, Command, pidfd};

/// What a runner may take to end its command and itself, when it is asked to.
pub const STOP: Duration = Duration::from_millis(2_100);
/// What a killed runner may take until it is gone.
const DYING: Duration = Duration::from_millis(500);

/// What became of an attempt.
#[derive(Debug)]
pub enum Left {
    /// The command has ended.
    Ended(Box<Exit>),
    /// The command was never begun, and never will be; why, if that is known.
    NeverBegun(Option<io::Error>),
    /// It may have begun. Nothing of it runs any more, as far as can be known.
    Unknown,
    /// The stop that was waited with has killed it, for it did not end when it was told to.
    Killed,
}

/// A runner that was alive a moment ago. Dropping this lets it go on.
#[derive(Debug)]
pub struct Watched {
    folder: Folder,
    name: Name,
    life: Life,
}

#[derive(Debug)]
enum Life {
    /// A child of this process: its pid is its own until it is reaped.
    Own(Child, Option<ExitStatus>),
    /// Another daemon's. It was seen to hold the lock after it was opened, or runs this folder, so it is the runner.
    Other(AsyncFd<OwnedFd>),
    /// Nothing but the lock tells of it: another process has its pid, or nobody may look at it.
    Lock,
}

impl Watched {
    pub(super) fn own(folder: Folder, name: Name, child: Child) -> Self {
        Self { folder, name, life: Life::Own(child, None) }
    }

    /// The runner of a folder; `None` if none lives.
    pub(super) fn find(folder: Folder, name: Name) -> io::Result<Option<Self>> {
        let is_held = folder.is_held()?;
        let claimed = match folder.claimed()? {
            Some(Claim::Runner(pid)) => pid,
            None | Some(Claim::Revoked) => None,
        };
        let pid = folder.ledger().mark(name)?.runner().or(claimed);
        let process = pid.and_then(|pid| {
            let process = pidfd::open(pid).ok()?;
            // A command may have removed the lock of a runner that lives.
            let is_runner = is_held || remains::is_runner(pid, folder.path());
            (is_runner && remains::belongs(pid, pid, name)).then_some(process)
        });
        // Looked at after the pid was opened: who lived then has it still.
        if if is_held { !folder.is_held()? } else { process.is_none() } {
            return Ok(None);
        }
        let life = process.and_then(|process| pidfd::watch(process).ok()).map_or(Life::Lock, Life::Other);
        Ok(Some(Self { folder, name, life }))
    }

    /// Waits until the runner has ended, and says what became of the command. When `cancel` fires, the runner is asked to
    /// end, and killed with all that it started if it does not within [`STOP`].
    pub async fn end(mut self, cancel: &CancellationToken) -> Left {
        let (waited, unsaid) = tokio::select! {
            biased;
            over = self.over() => (over, Left::Unknown),
            () = cancel.cancelled() => (self.stop().await, Left::Killed),
        };
        match waited {
            Ok(()) => match left(&self.folder, self.name, self.reason()).await {
                Left::Unknown | Left::Killed => unsaid,
                known @ (Left::Ended(_) | Left::NeverBegun(_)) => known,
            },
            Err(error) => unknown(self.name, &error),
        }
    }

    /// Likewise, but ends a runner that is not done within `limit`; then what it says is told as the end of its time.
    pub async fn end_within(self, limit: Duration, cancel: &CancellationToken) -> Left {
        let (name, stop) = (self.name, cancel.child_token());
        let mut end = pin!(self.end(&stop));
        if let Some(left) = ActiveDeadline::after(limit).bound(&mut end).await {
            return left;
        }
        tracing::warn!(%name, ?limit, "a runner did not end its command in time, and is ended");
        stop.cancel();
        match end.await {
            Left::Ended(mut exit) => {
                if let Ok(ran) = &mut exit.end
                    && ran.cause == Cause::Cancel
                {
                    ran.cause = Cause::Timeout;
                }
                Left::Ended(exit)
            }
            Left::Unknown | Left::Killed => Left::Unknown,
            never @ Left::NeverBegun(_) => never,
        }
    }

    /// How long the command may run, as it was started; `None` if that cannot be read.
    pub async fn timeout(&self) -> Option<Duration> {
        let folder = self.folder.clone();
        let task = spawn_blocking(move || folder.task()).await.map_err(io::Error::other).flatten();
        Some(Command::from(task.ok()?).timeout)
    }

    /// Resolves when the runner has ended. May be dropped at any time.
    async fn over(&mut self) -> io::Result<()> {
        match &mut self.life {
            Life::Own(child, status) => *status = Some(child.wait().await?),
            Life::Other(process) => process.readable().await.map(drop)?,
            Life::Lock => {}
        }
        // Killed while it started its command, it leaves the lock to that, until that is a program of its own.
        if self.folder.is_held()? { free(self.folder.clone()).await } else { Ok(()) }
    }

    async fn stop(&mut self) -> io::Result<()> {
        self.signal(Signal::TERM);
        if let Some(over) = ActiveDeadline::after(STOP).bound(self.over()).await {
            return over;
        }
        self.signal(Signal::KILL);
        let over = ActiveDeadline::after(DYING).bound(self.over()).await;
        over.unwrap_or_else(|| Err(io::Error::other("its runner does not end")))
    }

    fn signal(&self, signal: Signal) {
        // The only failure is that it has ended by itself, which is the aim.
        let (Ok(()) | Err(_)) = match &self.life {
            Life::Own(child, _) => match pid(child) {
                Some(pid) => kill_process(pid, signal),
                None => Ok(()),
            },
            Life::Other(process) => pidfd_send_signal(process, signal),
            Life::Lock => Ok(()),
        };
    }

    /// Why nothing was run, in the words of the system, if this process's own runner has ended so.
    fn reason(&self) -> Option<io::Error> {
        match &self.life {
            Life::Own(_, status) => {
                let code = status.and_then(|status| status.code()).filter(|code| *code != 0)?;
                Some(io::Error::from_raw_os_error(code))
            }
            Life::Other(_) | Life::Lock => None,
        }
    }
}

/// The pid of a child that was not reaped.
fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}

/// Resolves when nobody holds the lock. The thread that waits keeps no runtime from ending.
async fn free(folder: Folder) -> io::Result<()> {
    let (sender, receiver) = oneshot::channel();
    thread::Builder::new().spawn(move || {
        // Nobody may want to know any more.
        let (Ok(()) | Err(_)) = sender.send(folder.lock().map(drop));
    })?;
    receiver.await.map_err(io::Error::other)?
}

/// What a runner that does not live any more has left. That it has not begun its command only the ledger can tell: what is
/// absent in the folder may have been removed.
pub(super) async fn left(folder: &Folder, name: Name, reason: Option<io::Error>) -> Left {
    let folder = folder.clone();
    let read = move || match Exit::of(&folder)? {
        Some(exit) => Ok(Err(exit)),
        None => Ok(Ok((folder.ledger().mark(name)?, folder.claimed()?))),
    };
    let session = match spawn_blocking(read).await.map_err(io::Error::other).flatten() {
        Ok(Err(exit)) => return Left::Ended(Box::new(exit)),
        Ok(Ok((Mark::NotBegun, _))) => return Left::NeverBegun(reason),
        Ok(Ok((Mark::Begun(runner), _))) => Some(runner),
        Ok(Ok((Mark::Unknown, Some(Claim::Runner(runner))))) => runner,
        Ok(Ok((Mark::Unknown, None | Some(Claim::Revoked)))) => None,
        Err(error) => return unknown(name, &error),
    };
    match session {
        Some(session) => {
            remains::end(session, name).await.map_or_else(|error| unknown(name, &error), |()| Left::Unknown)
        }
        None => Left::Unknown,
    }
}

pub(super) fn unknown(name: Name, error: &io::Error) -> Left {
    tracing::warn!(%name, %error, "what became of a command cannot be seen");
    Left::Unknown
}
