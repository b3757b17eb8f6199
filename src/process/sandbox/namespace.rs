//! The namespaces of a sandbox: made once by a process of their own, and entered by the threads that start commands.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    process::exit,
    time::Duration,
};

use fork::{Fork, fork};
use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, getegid, geteuid, kill_process, waitid},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space},
};

use super::mounts::MountPlan;

/// Time that the making of namespaces may take. A file system of another machine may not answer.
const CREATION_TIMEOUT: Duration = Duration::from_secs(2);

/// The namespaces of a sandbox. They exist as long as this or a process in them does.
#[derive(Debug)]
pub(super) struct SandboxNamespace {
    /// Absent for an administrator, who needs none.
    user: Option<OwnedFd>,
    mounts: OwnedFd,
}

impl SandboxNamespace {
    /// Makes the namespaces in another process. `None` where the system does not allow namespaces; an error where they
    /// cannot be made as planned.
    ///
    /// It must be called while this process has one thread.
    pub(super) fn create(plan: &MountPlan) -> io::Result<Option<Self>> {
        let (mut own, mut childs) = UnixStream::pair()?;
        let child = match fork()? {
            Fork::Parent(child) => Pid::from_raw(child).ok_or(io::ErrorKind::InvalidData)?,
            Fork::Child => {
                drop(own);
                let made =
                    Creation::of(enter_namespace_of_user().and_then(|()| unshare_mounts()), || plan.apply());
                // The parent opens the namespaces, and then closes its socket.
                let waited = childs.write_all(&made.encode()).and_then(|()| childs.read(&mut [0]));
                exit(i32::from(waited.is_err()))
            }
        };
        drop(childs);
        let namespace = Creation::read(&mut own).and_then(|creation| match creation {
            Creation::Made => Self::of(child).map(Some),
            Creation::NotAllowed => Ok(None),
            Creation::Failed(code) => Err(io::Error::from_raw_os_error(code)),
        });
        drop(own);
        // It has nothing left to do, or does not answer: then it is reaped when it has ended.
        let (Ok(()) | Err(_)) = kill_process(child, Signal::KILL);
        let (Ok(_) | Err(_)) = waitid(WaitId::Pid(child), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        namespace
    }

    fn of(process: Pid) -> io::Result<Self> {
        let open = |kind| File::open(format!("/proc/{}/ns/{kind}", process.as_raw_pid())).map(OwnedFd::from);
        let user = if geteuid().is_root() { None } else { Some(open("user")?) };
        Ok(Self { user, mounts: open("mnt")? })
    }

    /// Enters the user namespace. It must be called while the process has one thread.
    pub(super) fn enter_user(&self) -> io::Result<()> {
        match &self.user {
            Some(user) => Ok(move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?),
            None => Ok(()),
        }
    }

    /// Enters the mount namespace with the calling thread, whose working directory is the root then.
    pub(super) fn enter_mounts(&self) -> io::Result<()> {
        // A thread that shares its working directory with others cannot.
        unshare(UnshareFlags::FS)?;
        Ok(move_into_link_name_space(self.mounts.as_fd(), Some(LinkNameSpaceType::Mount))?)
    }
}

/// How the making of namespaces has ended, as the process that made them tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Creation {
    Made,
    /// The system refuses namespaces to this user.
    NotAllowed,
    /// The system's error.
    Failed(i32),
}

impl Creation {
    fn of(entered: io::Result<()>, apply: impl FnOnce() -> io::Result<()>) -> Self {
        match entered {
            Err(_) => Self::NotAllowed,
            Ok(()) => match apply() {
                Ok(()) => Self::Made,
                Err(error) => Self::Failed(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())),
            },
        }
    }

    /// The error number, 0 without one and -1 if it is not allowed.
    fn encode(self) -> [u8; 4] {
        match self {
            Self::Made => 0_i32,
            Self::NotAllowed => -1,
            Self::Failed(code) => code,
        }
        .to_le_bytes()
    }

    fn read(socket: &mut UnixStream) -> io::Result<Self> {
        let mut code = [0; 4];
        socket.set_read_timeout(Some(CREATION_TIMEOUT))?;
        let is_late = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        socket.read_exact(&mut code).map_err(|error| {
            if is_late(&error) { io::Error::other("its mount namespace is not made in time") } else { error }
        })?;
        Ok(match i32::from_le_bytes(code) {
            0 => Self::Made,
            -1 => Self::NotAllowed,
            code => Self::Failed(code),
        })
    }
}

/// Gives the calling thread a mount namespace of its own. False if the system does not allow that; after an error it is in
/// a namespace of which only a part is made.
pub(super) fn isolate_mounts(plan: &MountPlan) -> io::Result<bool> {
    if unshare_mounts().is_err() {
        return Ok(false);
    }
    plan.apply().map(|()| true)
}

fn unshare_mounts() -> io::Result<()> {
    Ok(unshare(UnshareFlags::NEWNS)?)
}

/// Enters a new user namespace, unless this is an administrator. It must be called while the process has one thread.
pub(super) fn enter_namespace_of_user() -> io::Result<()> {
    // The user keeps its numbers.
    let (user, group) = (geteuid(), getegid());
    if user.is_root() {
        return Ok(());
    }
    unshare(UnshareFlags::NEWUSER)?;
    let (user, group) = (user.as_raw(), group.as_raw());
    std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

#[expect(deprecated, reason = "sound: no descriptor table is shared; the successor is an unsafe function")]
pub(super) fn unshare(namespace: UnshareFlags) -> rustix::io::Result<()> {
    rustix::thread::unshare(namespace)
}
