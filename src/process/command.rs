//! Runs a command in its own process group until it ends, its time is up or it is cancelled. Here are also the
//! description of a command and its result.

use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use hermod_actors::ActiveDeadline;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

use super::{
    Capture, Tee,
    group::ProcessGroup,
    pipes::OutputPipes,
    sandbox::{CommandSandbox, SandboxSpec},
};

/// The names of variables that a command inherits, beside those that begin with `LC_`.
const INHERITED: &[&str] = &["PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME", "SHELL", "TMPDIR"];
/// Time between SIGTERM and SIGKILL.
pub const TERM_GRACE: Duration = Duration::from_secs(2);
/// After the command's exit its output is read until nothing arrives for this long.
const QUIET_PERIOD: Duration = Duration::from_millis(50);
/// Upper limit of that read: a process left behind may write forever.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// After SIGKILL the pipes close at once, unless a process that left the group holds them open.
const DRAIN_TIMEOUT_AFTER_KILL: Duration = Duration::from_millis(40);

/// A command to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Command {
    /// The program, searched in `PATH` if it is a bare name.
    pub program: String,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// The working directory.
    pub folder: PathBuf,
    /// The variables that the command gets. They are not stored: a runner has the clean environment itself.
    #[serde(skip)]
    pub environment: Environment,
    /// Further variables. They are not stored either: they may be secret.
    #[serde(skip)]
    pub variables: Vec<(OsString, OsString)>,
    /// What its processes may do; without it all that this user may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxSpec>,
    /// Time limit of the command.
    #[serde(rename = "timeout_ms", serialize_with = "write_millis", deserialize_with = "read_millis")]
    pub timeout: Duration,
}

fn write_millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).serialize(serializer)
}

fn read_millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_millis)
}

/// The environment variables of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Environment {
    /// Only those of [`inherited`], for a model's command.
    Clean,
    /// Those of this process, for the user's command.
    #[default]
    Own,
}

/// The variables that a command inherits: an allow-list, so that no secret of this process is among them. `TERM` is
/// `dumb`.
pub fn inherited() -> impl Iterator<Item = (OsString, OsString)> {
    let is_allowed = |name: &str| INHERITED.contains(&name) || name.starts_with("LC_");
    std::env::vars_os()
        .filter(move |(name, _)| name.to_str().is_some_and(is_allowed))
        .chain([("TERM".into(), "dumb".into())])
}

/// Why a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitCause {
    /// The command exited, or a signal that was not sent here ended it.
    Exit,
    /// The time limit passed.
    Timeout,
    /// The caller cancelled it.
    Cancel,
}

/// The result of a command.
#[derive(Debug)]
pub struct CommandResult {
    /// Why the command ended.
    pub cause: ExitCause,
    /// Exit code; `None` if a signal ended the command.
    pub exit_code: Option<i32>,
    /// Number of the signal that ended the command.
    pub signal: Option<i32>,
    /// Captured stdout.
    pub stdout: Capture,
    /// Captured stderr.
    pub stderr: Capture,
}

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    /// It was not started.
    #[error("{0}")]
    NotStarted(io::Error),
    /// It was started, and what became of it cannot be seen.
    #[error("it was started, but cannot be watched: {0}")]
    Unwatched(#[from] io::Error),
}

/// Runs a command until it exits, its time is up or `cancel` fires. Afterwards no member of its process group is left, and
/// no process of its sandbox.
///
/// The command's own exit ends it, even if other processes still hold its pipes. After a timeout or a cancel it is done
/// within 2.1 s. Dropping the future kills the group. All output goes to `tee` too.
///
/// Errors: the command cannot be started or watched.
pub async fn run(
    command: Command,
    tee: Option<Tee>,
    cancel: &CancellationToken,
) -> io::Result<CommandResult> {
    run_in(command, &mut CommandSandbox::new(None), tee, cancel).await.map_err(|error| match error {
        CommandError::NotStarted(error) => error,
        CommandError::Unwatched(_) => io::Error::other(error),
    })
}

/// As [`run`], in a sandbox that may be there already, if the command has one. The sandbox is empty afterwards.
pub(super) async fn run_in(
    command: Command,
    sandbox: &mut CommandSandbox,
    tee: Option<Tee>,
    cancel: &CancellationToken,
) -> Result<CommandResult, CommandError> {
    let timeout = command.timeout;
    let mut child = spawn(command, sandbox).await.map_err(CommandError::NotStarted)?;
    let mut pipes = OutputPipes::of(&mut child, tee);
    let group = ProcessGroup::led_by(child)?;
    let cause = watch(&group, &mut pipes, timeout, cancel).await?;
    match cause {
        ExitCause::Exit => pipes.drain(QUIET_PERIOD, DRAIN_TIMEOUT).await?,
        ExitCause::Timeout | ExitCause::Cancel => stop(&group, &mut pipes).await?,
    }
    let status = group.finish(DRAIN_TIMEOUT_AFTER_KILL).await?;
    pipes.append_to_stderr(&sandbox.end_processes().await);
    let (stdout, stderr) = pipes.into_captures();
    let (exit_code, signal) = (status.and_then(|s| s.code()), status.and_then(|s: ExitStatus| s.signal()));
    Ok(CommandResult { cause, exit_code, signal, stdout, stderr })
}

async fn spawn(command: Command, entered: &mut CommandSandbox) -> io::Result<Child> {
    let mut builder = tokio::process::Command::new(command.program);
    if command.environment == Environment::Clean {
        builder.env_clear().envs(inherited());
    }
    builder
        .envs(command.variables)
        .args(command.arguments)
        .current_dir(command.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let Some(sandbox) = command.sandbox else { return builder.spawn() };
    builder.envs(sandbox.variables());
    entered.spawn(builder, sandbox).await.map_err(io::Error::other)
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

/// Sends SIGTERM to the group, and SIGKILL after `TERM_GRACE`; sooner if the leader has exited and all pipes are
/// closed.
async fn stop(group: &ProcessGroup, pipes: &mut OutputPipes) -> io::Result<()> {
    group.terminate();
    let mut grace = ActiveDeadline::after(TERM_GRACE);
    let mut leader_exited = false;
    while !leader_exited || pipes.are_open() {
        tokio::select! {
            biased;
            () = grace.over() => break,
            exited = group.exited(), if !leader_exited => {
                exited?;
                leader_exited = true;
            }
            read = pipes.read(), if pipes.are_open() => read?,
        }
    }
    group.kill();
    pipes.drain(DRAIN_TIMEOUT_AFTER_KILL, DRAIN_TIMEOUT_AFTER_KILL).await
}
