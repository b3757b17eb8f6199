//! Pidfds: handles of processes that stay valid when a pid is reused. Also descriptors in the async runtime.

use std::{io, os::fd::OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::{
    io::{Interest, unix::AsyncFd},
    process::Child,
};

/// Opens a descriptor of the process, which means this process even if its pid is reused.
pub(super) fn open(process: Pid) -> io::Result<OwnedFd> {
    Ok(pidfd_open(process, PidfdFlags::NONBLOCK)?)
}

/// Readable once the process has exited. Waiting on it does not reap.
pub(super) fn watch(process: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    register(process, Interest::READABLE)
}

/// Registers a descriptor with the async runtime.
#[expect(
    deprecated,
    reason = "sound for an `OwnedFd`, which stays open; the successor is an unsafe function"
)]
pub(super) fn register(file: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(file, interest)
}

/// The pid of a child that has not been reaped.
pub(super) fn of_child(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}
