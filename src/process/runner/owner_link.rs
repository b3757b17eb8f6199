//! The socket of a runner to the owner that requested it: what the runner reports, and further requests.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::getpid,
};
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    channel::{self, MAX_MESSAGE_BYTES, ReceivedMessage, is_closed},
    fork_server::ForkRequest,
};
use crate::process::pidfd;

/// The first message of a runner about each command. With the first command comes its pidfd.
pub(super) const ANNOUNCEMENT: &[u8] = b"runner";
/// The last message about a command whose runner waits for another one.
pub(super) const READY: &[u8] = b"ready";

/// The socket to the owner that requested the runner. The owner sees the end of the runner by its closing.
#[derive(Debug)]
pub(super) struct OwnerLink(OwnedFd);

impl OwnerLink {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Hands the owner the descriptor of this process, for signals.
    pub(super) fn announce(&self) -> io::Result<()> {
        self.send_announcement(Some(pidfd::open(getpid())?.as_fd()))
    }

    /// Announces a further command of this process.
    pub(super) fn announce_again(&self) -> io::Result<()> {
        self.send_announcement(None)
    }

    fn send_announcement(&self, process: Option<BorrowedFd<'_>>) -> io::Result<()> {
        match channel::send(&self.0, ANNOUNCEMENT, process) {
            // Without its owner the runner goes on. One that lives would request another runner.
            Err(error) if !is_closed(&error) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Reports that the command has ended and that this process waits for another one.
    pub(super) fn report_ready(&self) -> io::Result<()> {
        channel::send(&self.0, READY, None)
    }

    /// Reports why nothing was run.
    pub(super) fn report(&self, error: &io::Error) {
        let code = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
        // An owner that is gone needs no report.
        let (Ok(()) | Err(_)) = channel::send(&self.0, &code.to_le_bytes(), None);
    }

    /// True while the owner waits for the end of this runner.
    pub(super) fn is_attached(&self) -> bool {
        let mut socket = [PollFd::new(&self.0, PollFlags::empty())];
        let ready = poll(&mut socket, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        ready.is_ok() && !socket[0].revents().contains(PollFlags::HUP)
    }

    /// The same socket in the async runtime.
    pub(super) fn register(&self) -> io::Result<AsyncFd<OwnedFd>> {
        pidfd::register(self.0.try_clone()?, Interest::READABLE)
    }
}

/// Receives the next request; `None` without an owner. Cancel-safe.
pub(super) async fn receive_request(socket: &AsyncFd<OwnedFd>) -> io::Result<Option<ForkRequest>> {
    let mut buffer = vec![0; MAX_MESSAGE_BYTES];
    let receive = |socket: &OwnedFd| {
        let message = channel::receive(socket, &mut buffer)?;
        Ok(message.map(|ReceivedMessage { bytes, .. }| ForkRequest::decode(bytes)))
    };
    socket.async_io(Interest::READABLE, receive).await
}
