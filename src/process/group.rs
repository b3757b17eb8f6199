//! Process groups: every member is signalled, and killed at the end; only the leader is reaped.

use std::{io, os::fd::OwnedFd, process::ExitStatus, time::Duration};

use hermod_actors::ActiveDeadline;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{io::unix::AsyncFd, process::Child};

use super::pidfd;

/// A command's process group. Dropping it kills every member.
#[derive(Debug)]
pub(super) struct ProcessGroup {
    /// The group's id, which cannot be reused while the leader is unreaped.
    id: Option<Pid>,
    /// Readable once the leader has exited. Waiting on it does not reap.
    exit: AsyncFd<OwnedFd>,
    leader: Child,
}

impl ProcessGroup {
    /// Takes ownership of a child that leads its own group.
    pub(super) fn led_by(mut leader: Child) -> io::Result<Self> {
        let id = pidfd::of_child(&leader);
        let pid = id.ok_or_else(|| io::Error::other("the child has no process id"))?;
        let exit = pidfd::open(pid).and_then(pidfd::watch);
        match exit {
            Ok(exit) => Ok(Self { id, exit, leader }),
            Err(error) => {
                signal(pid, Signal::KILL);
                leader.start_kill()?;
                Err(error)
            }
        }
    }

    /// Completes when the leader has exited.
    pub(super) async fn exited(&self) -> io::Result<()> {
        self.exit.readable().await.map(|_| ())
    }

    /// Sends SIGTERM to every member.
    pub(super) fn terminate(&self) {
        self.id.into_iter().for_each(|id| signal(id, Signal::TERM));
    }

    /// Sends SIGKILL to every member.
    pub(super) fn kill(&self) {
        self.id.into_iter().for_each(|id| signal(id, Signal::KILL));
    }

    /// Kills all members and reaps the leader; `None` if the kernel does not report its exit within `timeout`.
    pub(super) async fn finish(mut self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        self.kill();
        match ActiveDeadline::after(timeout).bound(self.leader.wait()).await {
            Some(status) => {
                self.id = None;
                status.map(Some)
            }
            None => Ok(None),
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

fn signal(group: Pid, signal: Signal) {
    // The only failures are "no such group", which is the aim, and "not permitted" for members that changed user.
    let (Ok(()) | Err(_)) = kill_process_group(group, signal);
}
