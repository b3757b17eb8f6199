//! A living runner, as the owner of the state directory sees it, and the outcome of a dead one.

use std::{io, os::fd::OwnedFd, pin::pin, thread, time::Duration};

use hermod_actors::ActiveDeadline;
use rustix::process::{Signal, pidfd_send_signal};
use tokio::{io::unix::AsyncFd, sync::oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    exit::ExitRecord,
    files::{Claim, SpoolFolder, SpoolName},
    forked::ForkedRunner,
    ledger::LedgerMark,
    orphans,
};
use crate::{
    files::off_thread,
    process::{ExitCause, pidfd, sandbox::temp_folder},
};

/// Time that a runner may take to end its command and itself after SIGTERM.
pub const STOP_TIMEOUT: Duration = Duration::from_millis(2_100);
/// Time that a killed runner may take to exit.
const KILL_TIMEOUT: Duration = Duration::from_millis(500);

/// The outcome of an attempt.
#[derive(Debug)]
pub enum RunnerOutcome {
    /// The command has ended.
    Ended(Box<ExitRecord>),
    /// The command was never begun and never will be, with the reason if known.
    NeverBegun(Option<io::Error>),
    /// The command may have begun. As far as can be known, none of its processes runs any more.
    Unknown,
    /// After a stop the runner left no outcome, usually because it did not end in time and was killed.
    Killed,
}

/// A runner that was alive a moment ago. Dropping this leaves it running.
#[derive(Debug)]
pub struct LiveRunner {
    folder: SpoolFolder,
    name: SpoolName,
    process: RunnerProcess,
}

#[derive(Debug)]
enum RunnerProcess {
    /// A runner that this process requested.
    Forked(Box<ForkedRunner>),
    /// A runner that an earlier owner started. It held the lock after the pidfd was opened, or its arguments name this
    /// folder.
    Other(AsyncFd<OwnedFd>),
    /// Only the lock proves that the runner lives: another process has its pid, or its process cannot be read.
    Lock,
}

impl LiveRunner {
    pub(super) fn of_forked(folder: SpoolFolder, name: SpoolName, runner: ForkedRunner) -> Self {
        Self { folder, name, process: RunnerProcess::Forked(Box::new(runner)) }
    }

    /// Finds the living runner of a folder; `None` if there is none.
    pub(super) fn find(folder: SpoolFolder, name: SpoolName) -> io::Result<Option<Self>> {
        let is_held = folder.has_live_runner()?;
        let process = folder.runner(name)?.and_then(|runner| {
            let process = pidfd::open(runner.pid()?).ok()?;
            // A command may have removed the lock of a living runner. Without it, a runner that has written `exit` is
            // through with this attempt.
            if !is_held && ExitRecord::read(&folder).ok()?.is_some() {
                return None;
            }
            runner.living(folder.path(), name, is_held).map(|_| process)
        });
        // Checked after the pidfd was opened: a lock that is still held belongs to the runner that lived then.
        if if is_held { !folder.has_live_runner()? } else { process.is_none() } {
            return Ok(None);
        }
        let process = process
            .and_then(|process| pidfd::watch(process).ok())
            .map_or(RunnerProcess::Lock, RunnerProcess::Other);
        Ok(Some(Self { folder, name, process }))
    }

    /// Waits until the runner has ended, and returns its outcome. When `cancel` fires, the runner gets SIGTERM. If it
    /// has not ended within [`STOP_TIMEOUT`], it is killed with all that it started.
    pub async fn wait(mut self, cancel: &CancellationToken) -> RunnerOutcome {
        let (result, is_stopped) = tokio::select! {
            biased;
            result = self.wait_exit() => (result, false),
            () = cancel.cancelled() => (self.stop().await, true),
        };
        if let Err(error) = result {
            return unknown_outcome(self.name, &error);
        }
        let outcome = outcome_of_dead_runner(&self.folder, self.name, self.start_error()).await;
        match (outcome, self.process) {
            (RunnerOutcome::Unknown | RunnerOutcome::Killed, _) if is_stopped => RunnerOutcome::Killed,
            (RunnerOutcome::Ended(exit), RunnerProcess::Forked(runner)) if !is_stopped => {
                runner.release(self.name);
                RunnerOutcome::Ended(exit)
            }
            (outcome, _) => outcome,
        }
    }

    /// Waits like [`Self::wait`], but stops a runner after `limit`. A cancelled command is then reported as timed out.
    pub async fn wait_within(self, limit: Duration, cancel: &CancellationToken) -> RunnerOutcome {
        let (name, stop) = (self.name, cancel.child_token());
        let mut end = pin!(self.wait(&stop));
        if let Some(outcome) = ActiveDeadline::after(limit).bound(&mut end).await {
            return outcome;
        }
        tracing::warn!(%name, ?limit, "a runner did not end its command in time, and is ended");
        stop.cancel();
        match end.await {
            RunnerOutcome::Ended(mut exit) => {
                if let Ok(result) = &mut exit.end
                    && result.cause == ExitCause::Cancel
                {
                    result.cause = ExitCause::Timeout;
                }
                RunnerOutcome::Ended(exit)
            }
            RunnerOutcome::Unknown | RunnerOutcome::Killed => RunnerOutcome::Unknown,
            never @ RunnerOutcome::NeverBegun(_) => never,
        }
    }

    /// The command's time limit from its task; `None` if that cannot be read.
    pub async fn timeout(&self) -> Option<Duration> {
        let folder = self.folder.clone();
        Some(off_thread(move || folder.task()).await.ok()?.timeout)
    }

    /// Resolves when the runner has ended. Cancel-safe.
    async fn wait_exit(&mut self) -> io::Result<()> {
        match &mut self.process {
            RunnerProcess::Forked(runner) => {
                runner.ended().await?;
                // It has freed the lock, and nothing of the command is left.
                if runner.is_ready() {
                    return Ok(());
                }
            }
            RunnerProcess::Other(process) => process.readable().await.map(drop)?,
            RunnerProcess::Lock => {}
        }
        // A runner killed while it started its command leaves the lock to that child until the child executes its
        // program.
        if self.folder.has_live_runner()? { wait_unlocked(self.folder.clone()).await } else { Ok(()) }
    }

    async fn stop(&mut self) -> io::Result<()> {
        if let RunnerProcess::Forked(runner) = &mut self.process {
            ActiveDeadline::after(STOP_TIMEOUT).bound(runner.announced()).await.transpose()?;
            if !runner.has_process() && self.revoke_or_find().await? {
                return Ok(());
            }
        }
        self.signal(Signal::TERM);
        if let Some(result) = ActiveDeadline::after(STOP_TIMEOUT).bound(self.wait_exit()).await {
            return result;
        }
        self.signal(Signal::KILL);
        let result = ActiveDeadline::after(KILL_TIMEOUT).bound(self.wait_exit()).await;
        result.unwrap_or_else(|| Err(io::Error::other("its runner does not end")))
    }

    /// Revokes the attempt: a runner that the fork server forks later finds that. If one has begun it already, this takes
    /// that one over. True if there is none to wait for.
    async fn revoke_or_find(&mut self) -> io::Result<bool> {
        let (folder, name) = (self.folder.clone(), self.name);
        let found =
            off_thread(
                move || {
                    if folder.claim(Claim::Revoked)? { Ok(None) } else { Self::find(folder, name) }
                },
            );
        match found.await? {
            Some(found) => {
                self.process = found.process;
                Ok(false)
            }
            None => Ok(true),
        }
    }

    fn signal(&self, signal: Signal) {
        // The only failure is that the runner has ended by itself, which is the aim.
        let (Ok(()) | Err(_)) = match &self.process {
            RunnerProcess::Forked(runner) => runner.signal(signal),
            RunnerProcess::Other(process) => pidfd_send_signal(process, signal),
            RunnerProcess::Lock => Ok(()),
        };
    }

    /// The error if a runner of this process ended without running anything.
    fn start_error(&self) -> Option<io::Error> {
        match &self.process {
            RunnerProcess::Forked(runner) => runner.start_error(),
            RunnerProcess::Other(_) | RunnerProcess::Lock => None,
        }
    }
}

/// Resolves when the lock is free. The wait is on a thread that does not keep the runtime from ending.
async fn wait_unlocked(folder: SpoolFolder) -> io::Result<()> {
    let (sender, receiver) = oneshot::channel();
    thread::Builder::new().spawn(move || {
        // The receiver may be gone.
        let (Ok(()) | Err(_)) = sender.send(folder.wait_unlocked());
    })?;
    receiver.await.map_err(io::Error::other)?
}

/// The outcome of a dead runner from its files. Only the ledger proves that the command was not begun, since files in
/// the folder may have been removed.
pub(super) async fn outcome_of_dead_runner(
    folder: &SpoolFolder,
    name: SpoolName,
    reason: Option<io::Error>,
) -> RunnerOutcome {
    let (folder, temp) = (folder.clone(), temp_folder(folder.state()));
    let read = move || match ExitRecord::read(&folder)? {
        Some(exit) => Ok(Err(exit)),
        None => Ok(Ok((folder.mark(name)?, folder.read_claim()?))),
    };
    let session = match off_thread(read).await {
        Ok(Err(exit)) => return RunnerOutcome::Ended(Box::new(exit)),
        Ok(Ok((LedgerMark::NotBegun, _))) => return RunnerOutcome::NeverBegun(reason),
        Ok(Ok((LedgerMark::Begun(runner), _) | (LedgerMark::Unknown, Some(Claim::Runner(runner))))) => {
            runner.pid()
        }
        Ok(Ok((LedgerMark::Unknown, None | Some(Claim::Revoked)))) => None,
        Err(error) => return unknown_outcome(name, &error),
    };
    match session {
        Some(session) => orphans::kill_session(session, name, &temp)
            .await
            .map_or_else(|error| unknown_outcome(name, &error), |()| RunnerOutcome::Unknown),
        None => RunnerOutcome::Unknown,
    }
}

pub(super) fn unknown_outcome(name: SpoolName, error: &io::Error) -> RunnerOutcome {
    tracing::warn!(%name, %error, "what became of a command cannot be seen");
    RunnerOutcome::Unknown
}
