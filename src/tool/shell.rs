//! The tool `shell`: checks a command, and runs it as a child or as a detached command (`detached.rs`).

use std::{ffi::OsString, path::PathBuf, time::Duration};

use hermod_actors::{
    model::{Access, Attempt, CallEnd, CallId, CallStatus, EffectClass, RunId},
    port::{AttachOutcome, BadArguments, Boot},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    MAX_ARGUMENT_CHARS, SKILL_VIEW, Settings,
    blocking::try_blocking,
    command_reply::command_end,
    detached,
    skills::own_variable,
    spool::collect_output,
    typed_tool::{ToolContext, TypedTool},
};
use crate::{
    excerpt::quoted_first_chars,
    policy::command::{self, denial_reason},
    process::{
        self, Command, Environment, Tee,
        runner::SpoolName,
        sandbox::{SandboxSpec, temp_folder},
    },
    redaction,
};

/// POSIX provides this shell on every machine, so a command means the same everywhere.
pub const SHELL: &str = "/bin/sh";
/// The name of the tool that runs commands.
pub(super) const SHELL_TOOL: &str = "shell";
/// Limit of a command, in bytes: Linux's `MAX_ARG_STRLEN` without the NUL at its end.
const MAX_COMMAND_BYTES: usize = 128 * 1024 - 1;
const WRITE_A_SCRIPT: &str =
    "make it shorter and plainer, or put the script into a file with `write_file` and run that";
/// Time to end a command and read the rest of its output, with reserve.
pub(super) const END_SLACK: Duration = Duration::from_secs(30);

/// Runs a shell command, with a detached runner if the settings have one.
#[derive(Debug)]
pub(super) struct Shell;

/// What to run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The command, in the language of a POSIX `sh`; use `bash -c '...'` for what only bash knows.
    command: String,
    /// Seconds after which the command is ended; if absent, as many as the operator has set (120 unless changed).
    #[schemars(range(min = 1, max = 3600))]
    timeout: Option<u64>,
    /// The folder to run it in, relative to the workspace or absolute inside it; the workspace itself if absent.
    workdir: Option<String>,
}

impl TypedTool for Shell {
    const NAME: &'static str = SHELL_TOOL;
    const DESCRIPTION: &'static str = "Runs a shell command in the workspace, without a terminal and without input. \
        Answers {exit_code, signal, timed_out, stdout, stderr, artifact?, hint?}; if the output is too long to be shown, \
        artifact has all of it, both streams as they came, for `read_artifact`. If the sandbox of commands has refused something, \
        hint says what. What the command leaves in the \
        background is ended with it.";
    const EFFECT: EffectClass = EffectClass::Once;
    type Arguments = Arguments;

    fn check(arguments: &Arguments) -> Result<(), BadArguments> {
        check_command(&arguments.command)
    }

    fn access(_: &Arguments, _: &str, _: &Settings) -> Access {
        Access::Anything
    }

    async fn run(arguments: Arguments, context: ToolContext) -> CallEnd {
        let Arguments { command, timeout, workdir } = arguments;
        let prepare =
            move |context: &ToolContext| Ok((folder(context, workdir.as_deref())?, skill_variables(context)));
        let (folder, variables) = match try_blocking(&context, prepare).await {
            Ok(prepared) => prepared,
            Err(end) => return end,
        };
        let timeout = timeout_of(timeout, &context.settings);
        let arguments = vec!["-c".into(), command];
        let environment = Environment::Clean;
        let sandbox = command_sandbox(&context.settings, context.call.run, &context.workspace);
        let command =
            Command { program: SHELL.into(), arguments, folder, environment, variables, sandbox, timeout };
        if context.cancel.is_cancelled() {
            return never_started_end();
        }
        match context.settings.runner.clone() {
            Some(runner) => detached::run(&runner, command, &context).await,
            None => execute(command, &context).await,
        }
    }

    fn limit(arguments: &Arguments, settings: &Settings) -> Option<Duration> {
        Some(timeout_of(arguments.timeout, settings) + END_SLACK)
    }

    async fn attach(_: Arguments, context: ToolContext, boot: Boot) -> AttachOutcome {
        match context.settings.runner.clone() {
            Some(runner) => detached::attach(&runner, &context, boot).await,
            None => AttachOutcome::Unknown,
        }
    }

    fn is_detached(settings: &Settings) -> bool {
        settings.runner.is_some()
    }

    fn abandon(run: RunId, settings: &Settings) {
        if let Some(runner) = &settings.runner {
            tokio::spawn(runner.sweep(|other| other != run));
        }
    }

    fn forget(call: CallId, attempt: Attempt, settings: &Settings) {
        if let Some(runner) = &settings.runner {
            runner.forget(SpoolName { call, attempt });
        }
    }
}

/// Refuses a command that cannot be run, and one that is never run.
pub(super) fn check_command(command: &str) -> Result<(), BadArguments> {
    let bad = |error: String, hint: &str| {
        Err(BadArguments { field: Some("command".into()), error, hint: hint.into() })
    };
    if command.trim().is_empty() {
        return bad("`command` is empty".into(), "give a command");
    }
    if command.contains('\0') {
        return bad("`command` contains a NUL byte".into(), "leave it out");
    }
    if command.len() > MAX_COMMAND_BYTES {
        let error = format!("has {} bytes, and the system takes at most {MAX_COMMAND_BYTES}", command.len());
        return bad(format!("`command` {error}"), WRITE_A_SCRIPT);
    }
    let Some(reason) = denial_reason(command) else { return Ok(()) };
    let hint = match reason {
        reason if reason == command::TOO_COMPLEX.why => WRITE_A_SCRIPT,
        _ => "name exactly what is to change, inside the workspace, or ask the operator to do it",
    };
    let excerpt = quoted_first_chars(command, MAX_ARGUMENT_CHARS);
    bad(format!("`command` {excerpt} is never run: it {reason}"), hint)
}

fn timeout_of(seconds: Option<u64>, settings: &Settings) -> Duration {
    seconds.map_or(settings.shell_timeout, Duration::from_secs)
}

fn folder(context: &ToolContext, workdir: Option<&str>) -> Result<PathBuf, CallEnd> {
    let path = context.resolve("workdir", workdir.unwrap_or("."))?;
    path.open_folder()?;
    Ok(path.absolute())
}

/// The variables that the skills of the run declare. This process redacts their values from now on.
fn skill_variables(context: &ToolContext) -> Vec<(OsString, OsString)> {
    if !context.spec.tools.iter().any(|tool| tool == SKILL_VIEW) {
        return Vec::new();
    }
    let variables = context.settings.skills.read(&context.workspace).variables(own_variable);
    variables.iter().for_each(|(name, value)| redaction::learn_variable(name, value));
    variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect()
}

/// The sandbox of a command. The commands of a run share a folder for temporary files.
pub(super) fn command_sandbox(settings: &Settings, run: RunId, workspace: &str) -> Option<SandboxSpec> {
    let rules = settings.sandbox.clone()?;
    let temp = settings.state.as_ref().map(|state| temp_folder(state).join(run.to_string()));
    Some(SandboxSpec { rules, workspace: PathBuf::from(workspace), temp })
}

/// Runs a command as a child of this process.
async fn execute(command: Command, context: &ToolContext) -> CallEnd {
    let (tee, pieces) = Tee::new();
    match tokio::join!(process::run(command, Some(tee), &context.cancel), collect_output(pieces, context)) {
        (Ok(result), spooled) => command_end(result, spooled, 0, context).await,
        (Err(error), _) => not_run_end(&error.to_string()),
    }
}

/// The end of a call whose command the system cannot run.
pub(super) fn not_run_end(error: &str) -> CallEnd {
    let hint = "wait and try a smaller command; if it stays, the operator has to look";
    CallEnd::error(CallStatus::Error, &format!("{SHELL} cannot be run: {error}"), None, hint)
}

/// The end of a call that was stopped before its command started.
pub(super) fn never_started_end() -> CallEnd {
    let error = "the call was stopped before the command started";
    CallEnd::error(CallStatus::Stopped, error, None, "call again if it is still wanted")
}
