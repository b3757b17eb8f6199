//! Messages between the owner, the fork server and the runners. A socket keeps the borders of messages, and a message
//! carries at most one descriptor.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    cmsg_space,
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
};

/// Limit of a message. It is less than the kernel's default limit of what a socket buffers.
pub(super) const MAX_MESSAGE_BYTES: usize = 128 << 10;

/// A received message.
#[derive(Debug)]
pub(super) struct ReceivedMessage<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) file: Option<OwnedFd>,
}

/// Two connected sockets.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends a message whole or not at all, without waiting. `WouldBlock` if the socket is full.
pub(super) fn send(socket: impl AsFd, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    if bytes.len() > MAX_MESSAGE_BYTES {
        let error = format!("a message of {} bytes; at most {MAX_MESSAGE_BYTES} are sent", bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
    }
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files: Vec<_> = file.into_iter().collect();
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&files));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// True for an error that means that the other side is closed.
pub(super) fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Receives the next message without waiting, and of a longer one what the buffer takes. `None` if the other side is
/// closed, `WouldBlock` if there is no message.
pub(super) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<ReceivedMessage<'_>>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let count = match recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
        Ok(message) => message.bytes,
        // The other side was closed with messages of this side unread.
        Err(Errno::CONNRESET) => 0,
        Err(error) => return Err(error.into()),
    };
    if count == 0 {
        return Ok(None);
    }
    let mut file = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            file = files.last();
        }
    }
    Ok(Some(ReceivedMessage { bytes: &buffer[..count], file }))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_message_arrives_whole_with_its_descriptor() {
        let mut buffer = vec![0; MAX_MESSAGE_BYTES];
        let (a, b) = pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        send(&a, b"one", None).unwrap();
        send(&a, b"two", Some(file.as_fd())).unwrap();
        let received = receive(&b, &mut buffer).unwrap().unwrap();
        assert_eq!((received.bytes, received.file.is_none()), (&b"one"[..], true));
        let received = receive(&b, &mut buffer).unwrap().unwrap();
        assert_eq!((received.bytes, received.file.is_some()), (&b"two"[..], true));
        assert_eq!(receive(&b, &mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let long = vec![1; MAX_MESSAGE_BYTES + 1];
        assert_eq!(send(&a, &long, None).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        send(&a, &long[1..], None).unwrap();
        assert_eq!(receive(&b, &mut buffer).unwrap().unwrap().bytes, &long[1..]);
        drop(a);
        assert!(receive(&b, &mut buffer).unwrap().is_none());
        assert_eq!(send(&b, b"x", None).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_descriptor_of_a_message_that_nothing_reads_is_closed() {
        let mut buffer = [0; 8];
        let ((a, b), (held, peer)) = (pair().unwrap(), pair().unwrap());
        send(&a, b"x", Some(held.as_fd())).unwrap();
        drop(held);
        assert_eq!(receive(&peer, &mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop((a, b));
        assert!(receive(&peer, &mut buffer).unwrap().is_none(), "its last holder was the message");
    }
}
