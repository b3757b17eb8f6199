//! Restricts the calling thread, and so all processes that it will start.

use std::{io, path::PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set, set_no_new_privs};
use serde::Serialize;

use super::{
    files::{FileAccess, GrantError, PathGrant, grant_files},
    mounts::cover_hidden_paths,
    network::{NetworkAccess, NetworkError},
    spec::{SandboxMode, SandboxSpec},
    syscalls,
};

/// The newest version whose rights are used. An older kernel enforces those that it knows.
const NEWEST: ABI = ABI::V10;
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SandboxStatus {
    /// The version of Landlock that is in force; 0 without it.
    pub landlock: i32,
    /// Whether refused system calls are filtered, which includes the network.
    pub system_calls: bool,
}

impl SandboxStatus {
    /// True if signals and abstract sockets stay inside.
    pub fn has_scopes(self) -> bool {
        self.landlock >= SCOPES
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
        "this kernel lacks {0}, and sandbox.mode is \"required\": use a newer kernel, or set the mode to \"workspace\""
    )]
    Missing(&'static str),
    /// The network cannot be limited to hosts.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The thread of the sandbox cannot work.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// Restricts the calling thread for good.
pub(super) fn restrict_thread(spec: &SandboxSpec) -> Result<SandboxStatus, SandboxError> {
    let is_covered = cover_hidden_paths(spec)?;
    for capability in (CapabilitySet::all() - KEPT_CAPABILITIES).iter() {
        // Only an administrator can lose them, and only one has them.
        let (Ok(()) | Err(_)) = remove_capability_from_bounding_set(capability);
    }
    set_no_new_privs(true).map_err(io::Error::from)?;
    let landlock = restrict_files(spec, is_covered)?;
    let is_required = spec.rules.mode == SandboxMode::Required;
    let system_calls = match restrict_system_calls(spec) {
        Ok(()) => true,
        Err(error) if is_required => return Err(SandboxError::SystemCalls(error)),
        Err(_) => false,
    };
    let status = SandboxStatus { landlock, system_calls };
    if is_required && !status.has_scopes() {
        return Err(SandboxError::Missing("version 6 of Landlock (Linux 6.12)"));
    }
    Ok(status)
}

/// The version of Landlock that is in force.
fn restrict_files(spec: &SandboxSpec, is_covered: bool) -> Result<i32, SandboxError> {
    // Nothing grants what is not handled, and nothing refuses it either.
    let unhandled =
        if spec.rules.unix_sockets { AccessFs::ResolveUnix.into() } else { BitFlags::<AccessFs>::empty() };
    let handled = AccessFs::from_all(NEWEST) & !unhandled;
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(handled)?;
    // Hosts are limited by a network namespace, in which every port is the command's own.
    if spec.rules.network == NetworkAccess::Off {
        ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4))?;
    }
    let mut ruleset = ruleset.scope(Scope::AbstractUnixSocket | Scope::Signal)?.create()?;
    let add_rule = |PathGrant { file, is_folder, access }| {
        (&mut ruleset).add_rule(PathBeneath::new(file, rights(access, is_folder) & handled)).map(drop)
    };
    grant_files(spec, is_covered, add_rule).map_err(|error| match error {
        GrantError::Path(path) => SandboxError::Path(path),
        GrantError::Rule(error) => error.into(),
    })?;
    let status = ruleset.restrict_self()?;
    Ok(match status.landlock {
        LandlockStatus::Available { effective_abi, .. } if status.ruleset != RulesetStatus::NotEnforced => {
            effective_abi as i32
        }
        LandlockStatus::Available { .. } | LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => 0,
    })
}

fn rights(access: FileAccess, is_folder: bool) -> BitFlags<AccessFs> {
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

fn restrict_system_calls(spec: &SandboxSpec) -> Result<(), seccompiler::Error> {
    for filter in syscalls::filters(spec)? {
        seccompiler::apply_filter(&filter)?;
    }
    Ok(())
}
