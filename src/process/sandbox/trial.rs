//! Finds out which protections this machine gives, by restricting a process that does nothing else: nothing lifts a
//! restriction, and only a process with one thread can enter all of it.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{process::Command, time::timeout};

use super::{
    namespace::enter_namespace_of_user,
    network::{NetworkAccess, enter_namespace as enter_network_namespace},
    restrict::{SandboxStatus, restrict_thread},
    spec::{SandboxLimits, SandboxMode, SandboxRules, SandboxSpec},
};

/// The first argument of a process that tries; the other is an existing folder.
const ARGUMENT: &str = "__sandbox_trial";
const TIMEOUT: Duration = Duration::from_secs(10);

/// What this machine gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxTrial {
    /// The protections of commands.
    pub status: SandboxStatus,
    /// Whether `sandbox.network` can be a list of hosts.
    pub may_limit_network: bool,
}

impl SandboxTrial {
    /// Tries in another process. `program` is a `hermod` binary.
    pub async fn run(program: &Path, folder: &Path) -> io::Result<Self> {
        let mut trial = Command::new(program);
        trial.arg(ARGUMENT).arg(folder).stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(TIMEOUT, trial.output()).await??;
        serde_json::from_slice(&output.stdout).map_err(|_| {
            let text = String::from_utf8_lossy(&output.stderr);
            io::Error::other(format!("the trial of the sandbox failed: {}", text.trim()))
        })
    }
}

/// Tries, and prints the result, if this process's arguments say so.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if arguments.nth(1)? != ARGUMENT {
        return None;
    }
    let trial = try_sandbox(PathBuf::from(arguments.next()?));
    let printed = trial.and_then(|trial| io::stdout().write_all(&serde_json::to_vec(&trial)?));
    Some(printed.map_or_else(
        |error| {
            eprintln!("{error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    ))
}

fn try_sandbox(workspace: PathBuf) -> io::Result<SandboxTrial> {
    let may_limit_network = enter_namespace_of_user().and_then(|()| enter_network_namespace()).is_ok();
    let rules = SandboxRules {
        mode: SandboxMode::Workspace,
        read: Vec::new(),
        write: Vec::new(),
        hide: Vec::new(),
        network: NetworkAccess::Off,
        unix_sockets: false,
        limits: SandboxLimits::default(),
    };
    let spec = SandboxSpec { rules, workspace, temp: None };
    let status = restrict_thread(&spec, None).map_err(io::Error::other)?;
    Ok(SandboxTrial { status, may_limit_network })
}
