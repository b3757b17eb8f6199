//! Which process a runner is: its pid, and the time at which that process started. A pid is given away again, but not
//! within the same tick of the clock.

use std::{ffi::CStr, fs, io, path::Path};

use rustix::process::{Pid, getpid};
use serde::{Deserialize, Serialize};

use super::{files::SpoolName, orphans};
use crate::process::proc_stat::ProcessStat;

/// The first argument of runners of earlier versions, which were programs of their own; the second is the folder.
const EARLIER_ARGUMENT: &str = "__runner";

/// The name of a runner, for a list of processes.
pub(super) const NAME: &CStr = c"hermod-runner";
/// The name of a runner between two commands.
pub(super) const IDLE_NAME: &CStr = c"hermod-idle";

/// A runner, on one boot of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct RunnerIdentity {
    /// The pid, 0 if it is not known. The runner leads a POSIX session of the same number.
    #[serde(rename = "pid")]
    raw_pid: i32,
    /// Start of the process in clock ticks after the boot. Absent for a runner of an earlier version.
    #[serde(rename = "since", default, skip_serializing_if = "Option::is_none")]
    started: Option<u64>,
}

impl RunnerIdentity {
    /// A runner of which nothing is known.
    pub(super) const UNKNOWN: Self = Self { raw_pid: 0, started: None };

    /// This process as a runner.
    pub(super) fn own() -> io::Result<Self> {
        let pid = getpid();
        let stat = ProcessStat::of(pid).ok_or_else(|| io::Error::other("/proc/self/stat cannot be read"))?;
        Ok(Self { raw_pid: pid.as_raw_pid(), started: Some(stat.started) })
    }

    /// True if no other process of this boot has this identity.
    pub(super) fn is_exact(self) -> bool {
        self.started.is_some()
    }

    /// The pid, if it is known.
    pub(super) fn pid(self) -> Option<Pid> {
        // A command can write any number into `started`.
        Pid::from_raw(self.raw_pid.max(0))
    }

    /// The pid, if the process with that number is the living runner of this attempt. One that waits has ended it. `is_locked`: whether the lock of
    /// its folder is held, which tells something about runners of earlier versions.
    pub(super) fn living(self, folder: &Path, name: SpoolName, is_locked: bool) -> Option<Pid> {
        let pid = self.pid()?;
        let is_living = match self.started {
            Some(started) => {
                let stat = ProcessStat::of_living(pid)?;
                stat.started == started && stat.name != IDLE_NAME.to_bytes()
            }
            None => (is_locked || is_earlier_runner(pid, folder)) && orphans::belongs(pid, pid, name),
        };
        is_living.then_some(pid)
    }

    /// Formats it for a line of the ledger.
    pub(super) fn format(self) -> String {
        match self.started {
            Some(started) => format!("{} {started}", self.raw_pid),
            None => self.raw_pid.to_string(),
        }
    }

    /// Parses what [`Self::format`] has made; `None` without a pid.
    pub(super) fn parse(words: &str) -> Option<Self> {
        let (pid, started) = match words.split_once(' ') {
            Some((pid, started)) => (pid, Some(started.parse().ok()?)),
            None => (words, None),
        };
        Some(Self { raw_pid: pid.parse().ok().filter(|pid| *pid > 0)?, started })
    }
}

/// True if the arguments of a process are those of the runner of this folder.
fn is_earlier_runner(pid: Pid, folder: &Path) -> bool {
    let arguments = fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default();
    let mut arguments = arguments.split(|byte| *byte == 0).skip(1);
    arguments.next() == Some(EARLIER_ARGUMENT.as_bytes())
        && arguments.next() == Some(folder.as_os_str().as_encoded_bytes())
}
