//! The namespaces of a sandbox: made once by a process of their own, and entered by the threads that start commands.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    process::{Command, ExitCode, Stdio, exit},
    time::Duration,
};

use fork::{Fork, fork};
use rustix::{
    process::{Pid, Signal, WaitId, WaitIdOptions, getegid, geteuid, kill_process, waitid},
    thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space},
};

use super::{mounts::MountPlan, network::enter_namespace as enter_network_namespace};

/// The first argument of a process that tries to enter a network namespace.
const ARGUMENT: &str = "__sandbox_namespace";
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
    /// Makes the namespaces in another process. `None` where the system does not allow it.
    ///
    /// It must be called while this process has one thread.
    pub(super) fn create(plan: &MountPlan) -> io::Result<Option<Self>> {
        let (mut own, mut childs) = UnixStream::pair()?;
        let child = match fork()? {
            Fork::Parent(child) => Pid::from_raw(child).ok_or(io::ErrorKind::InvalidData)?,
            Fork::Child => {
                drop(own);
                let made = enter_namespace_of_user().and_then(|()| isolate_mounts(plan));
                // The parent opens the namespaces, and then closes its socket.
                let waited = childs.write_all(&[u8::from(made.is_ok())]).and_then(|()| childs.read(&mut [0]));
                exit(i32::from(made.is_err() || waited.is_err()))
            }
        };
        drop(childs);
        own.set_read_timeout(Some(CREATION_TIMEOUT))?;
        let mut is_made = [0];
        let namespace = match own.read_exact(&mut is_made) {
            Ok(()) if is_made == [1] => Self::of(child).map(Some),
            Ok(()) | Err(_) => Ok(None),
        };
        drop(own);
        // It has nothing left to do, or does not answer.
        let (Ok(()) | Err(_)) = kill_process(child, Signal::KILL);
        waitid(WaitId::Pid(child), WaitIdOptions::EXITED)?;
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

/// Gives the calling thread a mount namespace of its own. An error leaves it as it was, or in a namespace of which only a
/// part is made.
pub(super) fn isolate_mounts(plan: &MountPlan) -> io::Result<()> {
    unshare(UnshareFlags::NEWNS)?;
    plan.apply()
}

/// Enters a new user namespace, unless this is an administrator. It must be called while the process has one thread.
fn enter_namespace_of_user() -> io::Result<()> {
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

/// True if this system allows what `sandbox.network` with hosts needs. `program` is a `hermod` binary: another process
/// tries, because nothing leads back out of a namespace.
pub fn may_limit_network(program: &Path) -> io::Result<bool> {
    let mut trial = Command::new(program);
    trial.arg(ARGUMENT).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(trial.status()?.success())
}

/// Makes that trial, if this process's arguments say so.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if arguments.nth(1)? != ARGUMENT {
        return None;
    }
    let entered = enter_namespace_of_user().and_then(|()| enter_network_namespace());
    Some(entered.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

#[expect(deprecated, reason = "sound: no descriptor table is shared; the successor is an unsafe function")]
pub(super) fn unshare(namespace: UnshareFlags) -> rustix::io::Result<()> {
    rustix::thread::unshare(namespace)
}
