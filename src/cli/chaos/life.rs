//! One life of the process that is tested, from its start to its death.

use std::{
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::{Instant, sleep_until};

use super::said::{self, Said};
use crate::cli::exit::{Exit, Failure};

/// A process that says nothing for so long hangs: no command of a plan takes a second.
const PATIENCE: Duration = Duration::from_mins(1);
/// The number of SIGKILL.
const SIGKILL: i32 = 9;

/// How it is started.
#[derive(Debug)]
pub(super) struct Program {
    /// This very program.
    pub(super) exe: PathBuf,
    /// Its state directory.
    pub(super) state: PathBuf,
    /// `strict` or `relaxed`.
    pub(super) durability: &'static str,
}

/// What was seen of one life.
#[derive(Debug)]
pub(super) struct Life {
    /// What it wrote to standard error.
    pub(super) lines: Vec<String>,
    /// From its start to the first step of a run.
    pub(super) progress: Option<Duration>,
    /// How it ended.
    pub(super) death: Death,
}

/// How a life ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Death {
    /// By our hand.
    Killed,
    /// By itself, as it should.
    Natural,
    /// In another way.
    Bad(String),
}

impl Program {
    /// Lives with these arguments: until then at most, else to its end. Only the process itself is killed.
    pub(super) async fn live(&self, args: &[String], until: Option<Duration>) -> Result<Life, Failure> {
        let begin = Instant::now();
        let mut child = Command::new(&self.exe)
            .args(args)
            .env("HERMOD_HOME", &self.state)
            .env("HERMOD_STORE__DURABILITY", self.durability)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(&format!("{} cannot be started: {error}", self.exe.display())))?;
        let stderr = child.stderr.take().ok_or_else(|| failed("its standard error is not there"))?;
        let mut said = BufReader::new(stderr).lines();
        let (mut lines, mut progress, mut silent, mut killed) = (Vec::new(), None, false, false);
        loop {
            let at = match until {
                Some(until) if !killed => begin + until,
                Some(_) | None => Instant::now() + PATIENCE,
            };
            tokio::select! {
                biased;
                () = sleep_until(at) => {
                    silent = killed || until.is_none();
                    if killed {
                        break;
                    }
                    killed = true;
                    child.start_kill().map_err(|error| failed(&format!("it cannot be killed: {error}")))?;
                }
                line = said.next_line() => {
                    let line = line.map_err(|error| failed(&format!("what it says is no text: {error}")))?;
                    let Some(line) = line else { break };
                    if progress.is_none() && matches!(said::read(&line), Some(Said::Step(..))) {
                        progress = Some(begin.elapsed());
                    }
                    lines.push(line);
                }
            }
        }
        let status = child.wait().await.map_err(|error| failed(&format!("its end is not known: {error}")))?;
        let death = death(status, (killed, silent), lines.last());
        Ok(Life { lines, progress, death })
    }
}

fn death(status: ExitStatus, (killed, silent): (bool, bool), last: Option<&String>) -> Death {
    let last = last.map_or("it said nothing", String::as_str);
    match (status.code(), status.signal()) {
        _ if silent => Death::Bad(format!("silent for {} s; said last: {last}", PATIENCE.as_secs())),
        (Some(0), _) => Death::Natural,
        (_, Some(SIGKILL)) if killed => Death::Killed,
        _ => Death::Bad(format!("{status}; said last: {last}")),
    }
}

fn failed(text: &str) -> Failure {
    Failure { exit: Exit::Internal, text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_kill_and_a_good_end_are_well() {
        let check = |raw: i32, seen: (bool, bool), expect: Option<Death>| {
            let death = death(ExitStatus::from_raw(raw), seen, Some(&"last words".to_owned()));
            match expect {
                Some(expect) => assert_eq!(death, expect),
                None => {
                    assert!(matches!(&death, Death::Bad(text) if text.ends_with("last words")), "{death:?}");
                }
            }
        };
        check(0, (false, false), Some(Death::Natural));
        check(0, (true, false), Some(Death::Natural));
        check(9, (true, false), Some(Death::Killed));
        check(9, (false, false), None);
        check(9, (true, true), None);
        check(11, (true, false), None);
        check(75 << 8, (false, false), None);
    }
}
