use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use hermod_actors::ActiveDeadline;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{Capture, Tee, environment::inherited, group::ProcessGroup, pipes::OutputPipes};

/// Time between SIGTERM and SIGKILL.
pub const TERM_GRACE: Duration = Duration::from_secs(2);
/// After the command's exit its output is read until nothing comes for this long ...
const QUIET_PERIOD: Duration = Duration::from_millis(50);
/// ... and no longer than this: a process left behind may write for ever.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// After SIGKILL the pipes close by themselves, unless a process that left the group holds them.
const DRAIN_TIMEOUT_AFTER_KILL: Duration = Duration::from_millis(40);

/// A command to run.
#[derive(Debug, Clone)]
pub struct Command {
    /// The program, found by `PATH` if it is a bare name.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The folder in which it runs.
    pub folder: PathBuf,
    /// The variables that it sees.
    pub environment: Environment,
    /// How long it may run.
    pub timeout: Duration,
}

/// The variables that a command sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Environment {
    /// Those of [`inherited`] alone: the command is a model's.
    Clean,
    /// Those of this process: the command is the user's.
    Own,
}

/// Why a command is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitCause {
    /// It exited or died by itself.
    Exit,
    /// Its time was up.
    Timeout,
    /// It was cancelled.
    Cancel,
}

/// A command that ran.
#[derive(Debug)]
pub struct CommandResult {
    /// Why it is over.
    pub cause: ExitCause,
    /// Its exit code; `None` if a signal ended it.
    pub exit_code: Option<i32>,
    /// The number of the signal that ended it.
    pub signal: Option<i32>,
    /// What it wrote to stdout.
    pub stdout: Capture,
    /// What it wrote to stderr.
    pub stderr: Capture,
}

/// Runs a command until it exits, its time is up or `cancel` fires; then no member of its process group is left.
///
/// It ends with the exit of the command itself, whoever else still holds its pipes. After a timeout or a cancel it is
/// done within 2.1 s. Dropping the future kills the group. All output goes to `tee` too. Errors: the command cannot be
/// started or watched.
pub async fn run(
    command: Command,
    tee: Option<Tee>,
    cancel: &CancellationToken,
) -> io::Result<CommandResult> {
    let timeout = command.timeout;
    let mut child = spawn(command)?;
    let mut pipes = OutputPipes::of(&mut child, tee);
    let group = ProcessGroup::led_by(child)?;
    let cause = watch(&group, &mut pipes, timeout, cancel).await?;
    match cause {
        ExitCause::Exit => pipes.drain(QUIET_PERIOD, DRAIN_TIMEOUT).await?,
        ExitCause::Timeout | ExitCause::Cancel => stop(&group, &mut pipes).await?,
    }
    let status = group.finish(DRAIN_TIMEOUT_AFTER_KILL).await?;
    let (stdout, stderr) = pipes.into_captures();
    let (exit_code, signal) = (status.and_then(|s| s.code()), status.and_then(|s: ExitStatus| s.signal()));
    Ok(CommandResult { cause, exit_code, signal, stdout, stderr })
}

fn spawn(command: Command) -> io::Result<tokio::process::Child> {
    let mut started = tokio::process::Command::new(command.program);
    if command.environment == Environment::Clean {
        started.env_clear().envs(inherited());
    }
    started
        .args(command.arguments)
        .current_dir(command.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
}

async fn watch(
    group: &ProcessGroup,
    pipes: &mut OutputPipes,
    timeout: Duration,
    cancel: &CancellationToken,
) -> io::Result<ExitCause> {
    let mut deadline = ActiveDeadline::after(timeout);
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(ExitCause::Cancel),
            exited = group.exited() => return exited.map(|()| ExitCause::Exit),
            () = deadline.over() => return Ok(ExitCause::Timeout),
            read = pipes.read(), if pipes.are_open() => read?,
        }
    }
}

/// Asks the whole group to end and kills it after `TERM_GRACE`; sooner if the leader is gone and nobody holds a pipe.
async fn stop(group: &ProcessGroup, pipes: &mut OutputPipes) -> io::Result<()> {
    group.terminate();
    let mut grace = ActiveDeadline::after(TERM_GRACE);
    let mut leader_is_gone = false;
    while !leader_is_gone || pipes.are_open() {
        tokio::select! {
            biased;
            () = grace.over() => break,
            exited = group.exited(), if !leader_is_gone => {
                exited?;
                leader_is_gone = true;
            }
            read = pipes.read(), if pipes.are_open() => read?,
        }
    }
    group.kill();
    pipes.drain(DRAIN_TIMEOUT_AFTER_KILL, DRAIN_TIMEOUT_AFTER_KILL).await
}
