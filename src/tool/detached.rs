//! Detached shell commands: they continue when this process ends, and a later process attaches to them. This is the
//! side of the tool; the runner is in `process/runner`.

use std::time::Duration;

use hermod_actors::{
    model::{CallEnd, CallStatus},
    port::{AttachOutcome, Boot},
};

use super::{
    command_reply::command_end,
    shell::{END_SLACK, never_started_end, not_run_end},
    spool::{SpooledOutput, collect_output},
    typed_tool::ToolContext,
};
use crate::process::{
    Command, Tee,
    runner::{AttachedRunner, ExitRecord, Runner, RunnerOutcome, SpoolName, follow},
};

const CHECK_FIRST_HINT: &str = "look at what is there before you repeat anything";

/// Runs a detached command. When the future is dropped, the command continues.
pub(super) async fn run(runner: &Runner, command: Command, context: &ToolContext) -> CallEnd {
    let name = spool_name(context);
    let live_runner = match runner.start(name, command).await {
        Ok(live_runner) => live_runner,
        Err(error) => return not_started_end(&error.to_string()),
    };
    match follow_output(live_runner.wait(&context.cancel), runner, context).await {
        (RunnerOutcome::Ended(exit), spooled) => exit_end(*exit, spooled, context).await,
        (RunnerOutcome::NeverBegun(_), _) if context.cancel.is_cancelled() => never_started_end(),
        (RunnerOutcome::NeverBegun(Some(reason)), _) => not_started_end(&reason.to_string()),
        (RunnerOutcome::NeverBegun(None), _) => not_started_end("its runner ended at once"),
        (RunnerOutcome::Unknown, _) => in_doubt_end(),
        (RunnerOutcome::Killed, _) => killed_end(),
    }
}

/// The outcome of a command that an earlier process started.
pub(super) async fn attach(runner: &Runner, context: &ToolContext, boot: Boot) -> AttachOutcome {
    let attached = runner.attach(spool_name(context), boot).await;
    let end = async {
        match attached {
            AttachedRunner::Alive(live_runner) => {
                // The limit with which the command was started: the current setting may be lower.
                let limit = live_runner.timeout().await.map_or(Duration::MAX, |timeout| timeout + END_SLACK);
                live_runner.wait_within(limit, &context.cancel).await
            }
            AttachedRunner::Over(outcome) => outcome,
        }
    };
    match follow_output(end, runner, context).await {
        (RunnerOutcome::Ended(exit), spooled) => {
            AttachOutcome::Ended(exit_end(*exit, spooled, context).await)
        }
        (RunnerOutcome::NeverBegun(_), _) => AttachOutcome::NeverStarted,
        (RunnerOutcome::Unknown, _) => AttachOutcome::Unknown,
        (RunnerOutcome::Killed, _) => AttachOutcome::Ended(killed_end()),
    }
}

fn spool_name(context: &ToolContext) -> SpoolName {
    SpoolName { call: context.call, attempt: context.attempt }
}

async fn follow_output(
    end: impl Future<Output = RunnerOutcome>,
    runner: &Runner,
    context: &ToolContext,
) -> (RunnerOutcome, SpooledOutput) {
    let (tee, pieces) = Tee::new();
    let output = runner.output(spool_name(context));
    tokio::join!(follow(end, &output, tee), collect_output(pieces, context))
}

async fn exit_end(exit: ExitRecord, spooled: SpooledOutput, context: &ToolContext) -> CallEnd {
    match exit.end {
        Ok(result) => {
            // A command may have changed its own output file.
            let lost = exit.output.bytes.saturating_sub(spooled.total_bytes());
            command_end(result, spooled, exit.output.left_out + lost, context).await
        }
        Err(error) => not_run_end(&error),
    }
}

fn not_started_end(reason: &str) -> CallEnd {
    let hint = "wait and try again; if it stays, the operator has to see to the state directory";
    CallEnd::error(CallStatus::Error, &format!("the command was not run: {reason}"), None, hint)
}

/// The end of a call whose command's outcome is unknown.
fn in_doubt_end() -> CallEnd {
    let error = "what became of the command is not known: it was killed together with what watched over it, or what was \
        kept of it was removed";
    CallEnd::error(CallStatus::InDoubt, error, None, CHECK_FIRST_HINT)
}

/// The end of a call whose command was killed, since it did not end in time after its stop.
fn killed_end() -> CallEnd {
    CallEnd::error(CallStatus::Stopped, "the command was stopped and killed", None, CHECK_FIRST_HINT)
}
