//! What a sandbox allows: a value that the owner makes and a runner reads from its task.

use std::{ffi::OsString, io, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::network::NetworkAccess;
use crate::files::make_folder;

/// How strict a sandbox is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Commands write only to the workspace and to their temporary folder, as far as the kernel can enforce it.
    Workspace,
    /// As `Workspace`, and they cannot write to the workspace.
    ReadOnly,
    /// As `Workspace`, and a command is not started if the kernel lacks a protection.
    Required,
}

impl SandboxMode {
    /// True if commands may write to the workspace.
    pub fn is_workspace_writable(self) -> bool {
        match self {
            Self::Workspace | Self::Required => true,
            Self::ReadOnly => false,
        }
    }
}

/// The rules of the operator, for all commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRules {
    /// How strict it is.
    pub mode: SandboxMode,
    /// Further paths that may be read, besides the system's and those of known tool chains.
    pub read: Vec<PathBuf>,
    /// Further paths that may be written.
    pub write: Vec<PathBuf>,
    /// Paths that may be neither read nor written, besides well-known places of credentials.
    pub hide: Vec<PathBuf>,
    /// How much of the network may be used.
    pub network: NetworkAccess,
    /// Whether sockets with a path may be used. Services behind them may act without any sandbox.
    pub unix_sockets: bool,
    /// Limits of each process.
    pub limits: SandboxLimits,
}

/// What the processes of one command may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// The rules for all commands.
    pub rules: SandboxRules,
    /// The workspace.
    pub workspace: PathBuf,
    /// A folder for temporary files, which may be inside of a hidden folder. It is made when missing.
    pub temp: Option<PathBuf>,
}

impl SandboxSpec {
    /// Makes the folder for temporary files unless it exists.
    pub(super) fn make_temp_folder(&self) -> io::Result<()> {
        self.temp.as_deref().map_or(Ok(()), make_folder)
    }

    /// The variables that a command gets: its folder for temporary files, also for caches that tools must write.
    pub fn variables(&self) -> Vec<(&'static str, OsString)> {
        let Some(temp) = &self.temp else { return Vec::new() };
        let below = |name: &str| temp.join(name).into_os_string();
        vec![
            ("TMPDIR", temp.clone().into_os_string()),
            ("XDG_CACHE_HOME", below("cache")),
            ("npm_config_cache", below("npm")),
        ]
    }
}

/// Limits of resources; `None` leaves what the system has set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLimits {
    /// Seconds of processor time of one process.
    pub cpu_seconds: Option<u64>,
    /// Bytes of private memory of one process.
    pub memory: Option<u64>,
    /// Bytes of one file.
    pub file_size: Option<u64>,
    /// Processes and threads that may be added to those that run on the machine.
    pub processes: Option<u64>,
    /// Open files of one process.
    pub open_files: Option<u64>,
}
