//! Covers hidden paths that lie inside of the workspace, in a mount namespace that only the command sees.
//!
//! Without it such a workspace is granted by its entries, and nothing new can be made beside the hidden paths. An
//! administrator's thread can enter a namespace of mounts. Other users need a user namespace first, which only a process
//! with a single thread can enter: a runner at its start. A network namespace needs the same.

use std::{
    ffi::OsString,
    fs, io,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_remount},
    process::{getegid, geteuid},
    thread::UnshareFlags,
};

use super::{
    files::hidden_in_workspace, network::enter_namespace as enter_network_namespace, spec::SandboxSpec,
};

/// The argument of a process that tries to enter namespaces.
const ARGUMENT: &str = "__sandbox_namespace";
/// Its second argument, if it tries a network namespace.
const NETWORK: &str = "network";

/// Enters a user namespace if the sandbox needs one to cover paths or to limit the network, and the system allows it.
/// Where it does not, the sandbox grants less files, and runs no command whose network it cannot limit.
///
/// It must be called while the process has one thread.
pub fn prepare_process(program: &Path, spec: &SandboxSpec) -> io::Result<()> {
    let needs_network = spec.rules.network.is_limited_to_hosts();
    if geteuid().is_root() || (hidden_in_workspace(spec).is_empty() && !needs_network) {
        return Ok(());
    }
    // Nothing leads back out of a namespace, and one whose users cannot be mapped is useless. Another process tries.
    if may_enter(program, needs_network)? { enter_user_namespace() } else { Ok(()) }
}

/// True if this system allows what `sandbox.network` with hosts needs. `program` is a `hermod` binary.
pub fn may_limit_network(program: &Path) -> io::Result<bool> {
    may_enter(program, true)
}

fn may_enter(program: &Path, needs_network: bool) -> io::Result<bool> {
    let trial = Command::new(program)
        .arg(ARGUMENT)
        .args(needs_network.then_some(NETWORK))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(trial.success())
}

/// Makes the trial, if this process's arguments say so.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if arguments.nth(1)? != ARGUMENT {
        return None;
    }
    let needs_network = arguments.next().is_some_and(|argument| argument == NETWORK);
    let entered = if geteuid().is_root() { Ok(()) } else { enter_user_namespace() };
    let entered = entered.and_then(|()| {
        if needs_network { enter_network_namespace() } else { Ok(unshare(UnshareFlags::NEWNS)?) }
    });
    Some(entered.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

/// The user keeps its numbers.
fn enter_user_namespace() -> io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER)?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

#[expect(deprecated, reason = "sound: no descriptor table is shared; the successor is an unsafe function")]
pub(super) fn unshare(namespace: UnshareFlags) -> rustix::io::Result<()> {
    rustix::thread::unshare(namespace)
}

/// Covers the hidden paths of a workspace for the calling thread: folders by empty ones, files by the null device. The
/// folder for temporary files stays where it is. False if there is nothing to cover, or the system does not allow it.
pub(super) fn cover_hidden_paths(spec: &SandboxSpec) -> io::Result<bool> {
    let hidden = hidden_in_workspace(spec);
    if hidden.is_empty() || unshare(UnshareFlags::NEWNS).is_err() {
        return Ok(false);
    }
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    // Opened in the new namespace, and before its path is covered.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let temp =
        spec.temp.as_ref().map(|temp| Ok::<_, io::Error>((temp, openat(CWD, temp, flags, Mode::empty())?)));
    let temp = temp.transpose()?;
    let mut folders: Vec<PathBuf> = Vec::new();
    for path in hidden {
        if folders.iter().any(|folder| path.starts_with(folder)) {
            continue;
        }
        if path.is_dir() {
            mount("hermod", &path, "tmpfs", EMPTY, c"mode=0755,size=64k")?;
            folders.push(path);
        } else {
            mount_bind("/dev/null", &path)?;
        }
    }
    if let Some((path, folder)) = &temp
        && folders.iter().any(|covered| path.starts_with(covered))
    {
        fs::create_dir_all(path)?;
        mount_bind(format!("/proc/thread-self/fd/{}", folder.as_raw_fd()), path.as_path())?;
    }
    for folder in folders {
        mount_remount(folder, EMPTY | MountFlags::RDONLY, "")?;
    }
    Ok(true)
}

const EMPTY: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
