//! Starts the program under test once, observes it until it ends, or kills it at a given time.

use std::{
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::{Instant, sleep_until};

use super::progress_lines::{self, ProgressLine};
use crate::cli::CliError;

/// A process that prints nothing for this long hangs: no command of a workload takes a second.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(1);
/// The number of SIGKILL.
const SIGKILL: i32 = 9;

/// The program under test and its settings.
#[derive(Debug)]
pub(super) struct ProgramUnderTest {
    /// The executable of this program.
    pub(super) exe: PathBuf,
    /// Its state directory.
    pub(super) state: PathBuf,
    /// `strict` or `relaxed`.
    pub(super) durability: &'static str,
}

/// Observations of one process.
#[derive(Debug)]
pub(super) struct ProcessRun {
    /// The lines it wrote to standard error.
    pub(super) lines: Vec<String>,
    /// Time from its start to the first reported step of a run.
    pub(super) progress: Option<Duration>,
    /// How it ended.
    pub(super) end: ProcessEnd,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProcessEnd {
    /// Killed by the test.
    Killed,
    /// It exited with 0.
    Expected,
    /// It ended otherwise, or hung; with a description.
    Abnormal(String),
}

impl ProgramUnderTest {
    /// Runs the program with these arguments, and kills it after `uptime`. Without `uptime` it runs to its end,
    /// unless it is silent for `SILENCE_TIMEOUT`. Only the process itself is killed, not its commands.
    pub(super) async fn run(
        &self,
        args: &[String],
        uptime: Option<Duration>,
    ) -> Result<ProcessRun, CliError> {
        let started_at = Instant::now();
        let mut child = Command::new(&self.exe)
            .args(args)
            .env("HERMOD_HOME", &self.state)
            .env("HERMOD_STORE__DURABILITY", self.durability)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| {
                CliError::internal(format!("{} cannot be started: {error}", self.exe.display()))
            })?;
        let stderr =
            child.stderr.take().ok_or_else(|| CliError::internal("its standard error is not there"))?;
        let mut stderr_lines = BufReader::new(stderr).lines();
        let (mut lines, mut progress, mut silent, mut killed) = (Vec::new(), None, false, false);
        loop {
            let deadline = match uptime {
                Some(uptime) if !killed => started_at + uptime,
                Some(_) | None => Instant::now() + SILENCE_TIMEOUT,
            };
            tokio::select! {
                biased;
                () = sleep_until(deadline) => {
                    silent = killed || uptime.is_none();
                    if killed {
                        break;
                    }
                    killed = true;
                    child.start_kill().map_err(|error| CliError::internal(format!("it cannot be killed: {error}")))?;
                }
                line = stderr_lines.next_line() => {
                    let line = line.map_err(|error| CliError::internal(format!("what it says is no text: {error}")))?;
                    let Some(line) = line else { break };
                    if progress.is_none() && matches!(progress_lines::parse(&line), Some(ProgressLine::Step(..))) {
                        progress = Some(started_at.elapsed());
                    }
                    lines.push(line);
                }
            }
        }
        let status = child
            .wait()
            .await
            .map_err(|error| CliError::internal(format!("its end is not known: {error}")))?;
        let end = classify_end(status, (killed, silent), lines.last());
        Ok(ProcessRun { lines, progress, end })
    }
}

fn classify_end(status: ExitStatus, (killed, silent): (bool, bool), last: Option<&String>) -> ProcessEnd {
    let last = last.map_or("it said nothing", String::as_str);
    match (status.code(), status.signal()) {
        _ if silent => {
            ProcessEnd::Abnormal(format!("silent for {} s; said last: {last}", SILENCE_TIMEOUT.as_secs()))
        }
        (Some(0), _) => ProcessEnd::Expected,
        (_, Some(SIGKILL)) if killed => ProcessEnd::Killed,
        _ => ProcessEnd::Abnormal(format!("{status}; said last: {last}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_kill_and_a_good_end_are_well() {
        let check = |raw: i32, seen: (bool, bool), expect: Option<ProcessEnd>| {
            let end = classify_end(ExitStatus::from_raw(raw), seen, Some(&"last words".to_owned()));
            match expect {
                Some(expect) => assert_eq!(end, expect),
                None => {
                    assert!(
                        matches!(&end, ProcessEnd::Abnormal(text) if text.ends_with("last words")),
                        "{end:?}"
                    );
                }
            }
        };
        check(0, (false, false), Some(ProcessEnd::Expected));
        check(0, (true, false), Some(ProcessEnd::Expected));
        check(9, (true, false), Some(ProcessEnd::Killed));
        check(9, (false, false), None);
        check(9, (true, true), None);
        check(11, (true, false), None);
        check(75 << 8, (false, false), None);
    }
}
