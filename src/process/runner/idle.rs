//! Runners that have ended their command and wait for another one of the same kind: a further command of a run costs no
//! process, and no new sandbox.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use hermod_actors::model::RunId;
use tokio::io::unix::AsyncFd;

use super::channel::{self, is_closed};
use crate::process::sandbox::SandboxSpec;

/// Most runners that wait. One that is too much ends.
const MAX_IDLE: usize = 8;

/// What the commands of one runner have in common. A runner whose run has ended has only commands that may be ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunnerKind {
    pub(super) run: RunId,
    pub(super) sandbox: Option<SandboxSpec>,
}

/// The owner's descriptors of a runner.
#[derive(Debug)]
pub(super) struct RunnerLink {
    /// Closed by the other side at the end of the runner, or if none will be forked.
    pub(super) socket: AsyncFd<OwnedFd>,
    /// Readable once the runner has exited; present once it has sent its pidfd.
    pub(super) process: Option<AsyncFd<OwnedFd>>,
}

/// The runners that wait, the last used at the end. A runner ends with its link.
#[derive(Debug, Default)]
pub(super) struct IdleRunners(Mutex<Vec<(RunnerKind, RunnerLink)>>);

impl IdleRunners {
    /// Sends a request to a runner of this kind; `None` if none waits. The runner announces itself if it accepts.
    pub(super) fn request(&self, kind: &RunnerKind, request: &[u8]) -> io::Result<Option<RunnerLink>> {
        while let Some(link) = self.take(kind) {
            match channel::send(link.socket.get_ref(), request, None) {
                Ok(()) => return Ok(Some(link)),
                // It has waited too long, or was killed.
                Err(error) if is_closed(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Adds a runner that has reported that it waits.
    pub(super) fn add(&self, kind: RunnerKind, link: RunnerLink) {
        let mut idle = self.lock();
        if idle.len() == MAX_IDLE {
            idle.remove(0);
        }
        idle.push((kind, link));
    }

    fn take(&self, kind: &RunnerKind) -> Option<RunnerLink> {
        let mut idle = self.lock();
        let at = idle.iter().rposition(|(of, _)| of == kind)?;
        Some(idle.remove(at).1)
    }

    /// Ignores poisoning: each change is one operation of the list.
    fn lock(&self) -> MutexGuard<'_, Vec<(RunnerKind, RunnerLink)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
