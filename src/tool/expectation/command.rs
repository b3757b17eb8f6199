//! The command of an expectation: whether the run may run it, and its run. It is run detached, as a `shell` call is, so
//! that a leftover of a process that was killed is found under its name and ended before the command runs again.

use std::{path::PathBuf, time::Duration};

use hermod_actors::{
    SanitizedText,
    model::{CallId, RunSpec},
    port::{CallPolicy, CallVerdict, ProposedCall},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Settings, text};
use crate::{
    process::{
        Capture, Command, CommandResult, Environment, ExitCause, HEAD_BYTES, TAIL_BYTES,
        runner::{Runner, RunnerOutcome, SpoolName},
    },
    redaction,
    tool::shell::{self, SHELL, SHELL_TOOL, command_sandbox},
};

/// Tries of a command whose end is unknown.
const MAX_TRIES: u32 = 2;
/// Most bytes of a command's output in a reason.
const MAX_OUTPUT_BYTES: usize = 600;

/// Checks that the run may run this command: it has the tool for it, and the policy allows the call without a
/// person.
pub(super) fn check(
    command: &str,
    spec: &RunSpec,
    settings: &Settings,
    policy: &dyn CallPolicy,
) -> Result<(), String> {
    if !spec.tools.iter().any(|tool| tool == SHELL_TOOL) {
        return Err(format!("the run has no tool `{SHELL_TOOL}`, so no command is run for it; leave it out"));
    }
    if settings.runner.is_none() {
        return Err("this process runs no commands; leave it out".into());
    }
    shell::check_command(command).map_err(text)?;
    let arguments = json!({ "command": command });
    let RunSpec { agent, workspace, .. } = spec;
    match policy.judge(&ProposedCall { agent, tool: SHELL_TOOL, arguments: &arguments, workspace }) {
        CallVerdict::Allow => Ok(()),
        CallVerdict::Ask(_) => Err("the policy asks a person before this command; allow it by a rule".into()),
        CallVerdict::Deny(bad) => Err(text(bad)),
    }
}

/// Runs the command under a name of its own until it ends. Dropping the future ends it. A command whose end is unknown runs
/// once more: the cleanup after a crash of its session may have taken it for the one before.
pub(super) async fn run(
    (call, command): (CallId, &str),
    spec: &RunSpec,
    settings: &Settings,
    timeout: Duration,
) -> Result<(), String> {
    let Some(runner) = &settings.runner else { return Err("this process runs no commands".into()) };
    let command = Command {
        program: SHELL.into(),
        arguments: vec!["-c".into(), command.to_owned()],
        folder: PathBuf::from(&spec.workspace),
        environment: Environment::Clean,
        variables: Vec::new(),
        sandbox: command_sandbox(settings, call.run, &spec.workspace),
        timeout,
    };
    let attempt = CommandAttempt { runner: runner.clone(), name: SpoolName { call, attempt: 1 } };
    for _ in 0..MAX_TRIES {
        if let Some(result) = attempt.run(command.clone()).await? {
            return judge(result, timeout);
        }
        tracing::debug!(%call, "the end of the command is unknown");
    }
    Err("what became of it is not known: it was killed, or what was kept of it was removed".into())
}

impl CommandAttempt {
    /// The result of the command; `None` if its end is unknown. The error says why it was not run.
    async fn run(&self, command: Command) -> Result<Option<CommandResult>, String> {
        let not_run = |error: String| format!("it was not run: {error}");
        let started = self.runner.start(self.name, command).await;
        let live = started.map_err(|error| not_run(error.to_string()))?;
        match live.wait(&CancellationToken::new()).await {
            RunnerOutcome::Ended(exit) => exit.end.map(Some).map_err(not_run),
            RunnerOutcome::NeverBegun(Some(reason)) => Err(not_run(reason.to_string())),
            RunnerOutcome::NeverBegun(None) | RunnerOutcome::Unknown | RunnerOutcome::Killed => Ok(None),
        }
    }
}

/// An attempt of a command. Dropping this ends the command if it still runs, and removes what is kept of it.
struct CommandAttempt {
    runner: Runner,
    name: SpoolName,
}

impl Drop for CommandAttempt {
    fn drop(&mut self) {
        // At the end of the runtime nothing can be started any more: the next check ends what is left.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.runner.forget(self.name);
        }
    }
}

fn judge(mut result: CommandResult, timeout: Duration) -> Result<(), String> {
    let what = match (result.cause, result.exit_code, result.signal) {
        (ExitCause::Exit, Some(0), _) => return Ok(()),
        (ExitCause::Timeout, ..) => format!("it did not end within {} s", timeout.as_secs()),
        (ExitCause::Cancel, ..) => "it was stopped".into(),
        (ExitCause::Exit, Some(code), _) => format!("it exited with {code}"),
        (ExitCause::Exit, None, Some(signal)) => format!("signal {signal} ended it"),
        (ExitCause::Exit, None, None) => "how it ended is not known".into(),
    };
    let output = [last_output(&mut result.stdout), last_output(&mut result.stderr)];
    let output: Vec<String> = output.into_iter().flatten().collect();
    Err(if output.is_empty() {
        what
    } else {
        format!("{what}; its output ends with: {}", output.join(" | "))
    })
}

/// The end of a stream, or all of it if that is not long; `None` if it is empty.
fn last_output(stream: &mut Capture) -> Option<String> {
    let captured = stream.truncated(HEAD_BYTES + TAIL_BYTES);
    let bytes = if captured.left_out > 0 { captured.tail } else { captured.head };
    // Before the cut: a secret that is cut in the middle would not be found.
    let text = SanitizedText::of(bytes).text;
    let text = redaction::of_process().redact(&text);
    let text = text.trim();
    let is_long = captured.left_out > 0 || text.len() > MAX_OUTPUT_BYTES;
    // A third of what is shown is the end, if something is left out.
    let from = if is_long { text.len().saturating_sub(MAX_OUTPUT_BYTES / 3) } else { 0 };
    let text = &text[text.ceil_char_boundary(from)..];
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    #[test]
    fn an_output_is_redacted_before_it_is_cut() {
        redaction::learn("EXPECTED_TOKEN", &Secret::new("Zq7-expectation-token-of-a-test"));
        let check = |output: &str, expect: &str| {
            let mut stream = Capture::default();
            stream.push(output.as_bytes());
            assert_eq!(last_output(&mut stream).unwrap_or_default(), expect);
        };
        check(" \n", "");
        check("all of it\n", "all of it");
        check("token Zq7-expectation-token-of-a-test", "token [redacted:EXPECTED_TOKEN]");
        // The last 200 bytes begin in the middle of the secret, and then in the middle of a character.
        let end = "x".repeat(190);
        let long = format!("{}Zq7-expectation-token-of-a-test{end}", "a ".repeat(400));
        let mut stream = Capture::default();
        stream.push(long.as_bytes());
        let found = last_output(&mut stream).unwrap();
        assert!(found.ends_with(&end) && !found.contains("token-of-a"), "{found}");
        check(&"ä".repeat(601), &"ä".repeat(100));
        check(&format!("ä{}", "é".repeat(60_000)), &"é".repeat(100));
    }
}
