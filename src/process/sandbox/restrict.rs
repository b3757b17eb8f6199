//! Restricts the calling thread, and so all processes that it will start.

use std::{io, path::PathBuf};

use landlock::{ABI, Access as _, AccessFs, BitFlags, RulesetError};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set, set_no_new_privs};
use serde::{Deserialize, Serialize};

use super::{files::FileAccess, network::NetworkError, prepared::PreparedSandbox, spec::SandboxSpec};

/// The newest version whose rights are used. An older kernel enforces those that it knows.
pub(super) const NEWEST: ABI = ABI::V10;
/// The first version that keeps signals and abstract sockets inside.
const SCOPES: i32 = 6;

/// Rights of an administrator that commands keep when one runs them: those about files, users and ports.
const KEPT_CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SYS_CHROOT);

/// The protections that a kernel enforces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxStatus {
    /// The version of Landlock that is in force; 0 without it.
    pub landlock: i32,
    /// Whether refused system calls are filtered, which includes the network.
    pub system_calls: bool,
    /// Whether what is not writable cannot be changed in any way, modes, owners and times of files included.
    pub mounts: bool,
}

impl SandboxStatus {
    /// True if signals and abstract sockets stay inside.
    pub fn has_scopes(self) -> bool {
        self.landlock >= SCOPES
    }

    /// The protections that this kernel or system lacks.
    pub fn missing(self) -> Vec<&'static str> {
        let landlock = match self.landlock {
            0 => Some("Landlock (Linux 6.12, and `landlock` among the `lsm` of its start)"),
            1..SCOPES => Some("version 6 of Landlock (Linux 6.12)"),
            _ => None,
        };
        let system_calls = (!self.system_calls).then_some("filters of system calls (seccomp)");
        let mounts = "mount namespaces for this user (user namespaces are switched off)";
        [landlock, system_calls, (!self.mounts).then_some(mounts)].into_iter().flatten().collect()
    }
}

/// Why a command is not started in a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A path that a command needs is not there.
    #[error("the sandbox cannot grant {}: it cannot be opened", .0.display())]
    Path(PathBuf),
    /// The kernel refuses what it says that it can do.
    #[error("the kernel refuses the sandbox: {0}")]
    Landlock(#[from] RulesetError),
    /// The filter of system calls cannot be made or is refused.
    #[error("the kernel refuses the filter of system calls: {0}")]
    SystemCalls(seccompiler::Error),
    /// The kernel lacks a protection that the operator requires.
    #[error(
        "this kernel lacks {}, and sandbox.mode is \"required\": use a newer kernel, or set the mode to \"workspace\"",
        .0.join(" and ")
    )]
    Missing(Vec<&'static str>),
    /// The network cannot be limited to hosts.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The thread of the sandbox cannot work.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Restricts the calling thread for good, with what was prepared for it if that fits.
pub(super) fn restrict_thread(
    spec: &SandboxSpec,
    prepared: Option<PreparedSandbox>,
) -> Result<SandboxStatus, SandboxError> {
    let prepared = match prepared {
        Some(prepared) => prepared,
        None => PreparedSandbox::of_thread(spec)?,
    };
    prepared.enter_mounts()?;
    for capability in (CapabilitySet::all() - KEPT_CAPABILITIES).iter() {
        // Only an administrator can lose them, and only one has them.
        let (Ok(()) | Err(_)) = remove_capability_from_bounding_set(capability);
    }
    set_no_new_privs(true).map_err(io::Error::from)?;
    prepared.enforce()
}

pub(super) fn rights(access: FileAccess, is_folder: bool) -> BitFlags<AccessFs> {
    let rights = match access {
        FileAccess::List => AccessFs::ReadDir.into(),
        FileAccess::Read => AccessFs::from_read(NEWEST),
        FileAccess::Device => {
            AccessFs::ReadFile
                | AccessFs::ReadDir
                | AccessFs::WriteFile
                | AccessFs::Truncate
                | AccessFs::IoctlDev
        }
        FileAccess::Write => AccessFs::from_all(NEWEST) & !(AccessFs::MakeBlock | AccessFs::MakeChar),
    };
    if is_folder { rights } else { rights & AccessFs::from_file(NEWEST) }
}
