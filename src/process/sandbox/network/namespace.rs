//! A network namespace with nothing but a loopback interface.

use std::io;

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SocketAddrNetlink, recv,
        sendto, socket_with,
    },
    thread::UnshareFlags,
};

use crate::process::sandbox::namespace::unshare;

/// Bytes of a message that changes an interface: `nlmsghdr` and `ifinfomsg` of netlink(7) and rtnetlink(7).
const MESSAGE_BYTES: u32 = 32;
/// The position of the error number in the answer, behind its `nlmsghdr`.
const ERROR_POSITION: usize = 16;
/// `NLM_F_REQUEST` and `NLM_F_ACK`.
const REQUEST_WITH_ANSWER: u16 = 0x5;
/// In every namespace.
const LOOPBACK_INDEX: i32 = 1;

/// Moves the calling thread into a new network namespace, whose loopback interface is up. After an error the thread may
/// be in a namespace without any network.
pub(in crate::process::sandbox) fn enter() -> io::Result<()> {
    unshare(UnshareFlags::NEWNET)?;
    bring_up_loopback()
}

fn bring_up_loopback() -> io::Result<()> {
    // No protocol means that of routes and interfaces, `NETLINK_ROUTE`.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sendto(&socket, &loopback_message(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 256];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    let answer = answer.get(..length).unwrap_or_default();
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let error = answer.get(ERROR_POSITION..ERROR_POSITION + 4).and_then(|bytes| bytes.try_into().ok());
    match (kind.map(i32::from), error.map(i32::from_ne_bytes)) {
        (Some(libc::NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(libc::NLMSG_ERROR), Some(error)) => {
            Err(Errno::from_raw_os_error(error.saturating_neg()).into())
        }
        (_, _) => Err(io::Error::other("the kernel did not answer a change of the loopback interface")),
    }
}

/// The message that sets the flag `IFF_UP`, in the byte order of this machine.
fn loopback_message() -> Vec<u8> {
    let up = libc::IFF_UP.to_ne_bytes();
    let parts: [&[u8]; 9] = [
        &MESSAGE_BYTES.to_ne_bytes(),
        &libc::RTM_NEWLINK.to_ne_bytes(),
        &REQUEST_WITH_ANSWER.to_ne_bytes(),
        // The sequence number, and the sender's port, which the kernel knows.
        &1_u32.to_ne_bytes(),
        &0_u32.to_ne_bytes(),
        // The family and the type of the interface, which stay unspecified.
        &[0; 4],
        &LOOPBACK_INDEX.to_ne_bytes(),
        // The flags, and which of them change.
        &up,
        &up,
    ];
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_has_its_length() {
        assert_eq!(u32::try_from(loopback_message().len()), Ok(MESSAGE_BYTES));
    }
}
