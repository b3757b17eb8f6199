//! The time limits of calls, and of reading and writing artifacts. They hold whatever an adapter does: a frozen call is
//! dropped, and its session continues. Limits count the time for which this process ran: a call that ended while the
//! process was stopped is not dropped.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::{
    active_deadline::ActiveDeadline,
    model::{Artifact, CallEnd, CallStatus, Deadline, Failure, FailureClass, ModelAnswer},
    port::{ArtifactError, AttachOutcome, Boot, Invocation, PreparedCall},
};

/// Added to the time limit of a whole call, which the adapter itself should enforce.
const CALL_SLACK: Duration = Duration::from_secs(30);
/// The limit of a tool that has none of its own.
pub(super) const TOOL_LIMIT: Duration = Duration::from_mins(10);
/// Limit for attaching to a call of an earlier incarnation. The attempt itself has its own, shorter limit, which its
/// tool enforces.
const ATTACH_LIMIT: Duration = Duration::from_hours(24);
/// Limit for writing a long result, or for reading the images of a request.
pub(super) const ARTIFACT_LIMIT: Duration = Duration::from_mins(1);
/// Time for a tool to end after its cancellation. Its contract allows 2.1 s.
pub(super) const STOP_LIMIT: Duration = Duration::from_secs(3);

/// The limit of one attempt of a model call: the model's own, or the provider's usual one.
pub(super) fn call_limit(usual: Duration, own_ms: Option<u64>) -> Duration {
    own_ms.map_or(usual, Duration::from_millis).saturating_add(CALL_SLACK)
}

/// Resolves [`STOP_LIMIT`] after the cancellation.
async fn stop_limit_over(cancel: &CancellationToken) {
    cancel.cancelled().await;
    ActiveDeadline::after(STOP_LIMIT).over().await;
}

/// Awaits an attempt of a model call until it is cancelled or overdue.
pub(super) async fn run_model(
    call: impl Future<Output = Result<ModelAnswer, Failure>>,
    limit: Duration,
    cancel: &CancellationToken,
) -> Result<ModelAnswer, Failure> {
    let late = format!("the provider did not end the call within {} s", limit.as_secs_f64());
    let late = || Failure::new(FailureClass::Timeout { which: Deadline::Call }, late);
    bounded(call, limit, cancel, late).await
}

/// Awaits the images of a request, unless that takes too long or the call is cancelled.
pub(super) async fn read_images<T>(
    reading: impl Future<Output = Result<T, Failure>>,
    cancel: &CancellationToken,
) -> Result<T, Failure> {
    let seconds = ARTIFACT_LIMIT.as_secs();
    let late =
        || Failure::new(FailureClass::NotSent, format!("the pictures were not read within {seconds} s"));
    bounded(reading, ARTIFACT_LIMIT, cancel, late).await
}

/// Awaits a part of a model call until it is cancelled, or `late`.
async fn bounded<T>(
    work: impl Future<Output = Result<T, Failure>>,
    limit: Duration,
    cancel: &CancellationToken,
    late: impl FnOnce() -> Failure,
) -> Result<T, Failure> {
    let mut deadline = ActiveDeadline::after(limit);
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Failure::new(FailureClass::Cancelled, "stopped")),
        done = work => done,
        () = deadline.over() => Err(late()),
    }
}

/// Awaits the writing of an artifact. Gives up after [`ARTIFACT_LIMIT`], or [`STOP_LIMIT`] after the call is cancelled.
pub(super) async fn write_artifact(
    keeping: impl Future<Output = Result<Artifact, ArtifactError>>,
    cancel: &CancellationToken,
) -> Result<Artifact, ArtifactError> {
    let late = || Err(ArtifactError::Unavailable("the disk does not answer".to_owned()));
    let mut deadline = ActiveDeadline::after(ARTIFACT_LIMIT);
    tokio::select! {
        biased;
        kept = keeping => kept,
        () = stop_limit_over(cancel) => late(),
        () = deadline.over() => late(),
    }
}

/// Attaches to a call of an earlier incarnation. After a day it is cancelled. `Unknown` if the tool does not end within
/// [`STOP_LIMIT`] after its cancellation.
pub(super) async fn attach(call: PreparedCall, invocation: Invocation, boot: Boot) -> AttachOutcome {
    let cancel = invocation.cancel.child_token();
    let invocation = Invocation { cancel: cancel.clone(), ..invocation };
    let stopped = async {
        if ActiveDeadline::after(ATTACH_LIMIT).bound(cancel.cancelled()).await.is_none() {
            // The session may repeat a call whose outcome is `Unknown`, so the call must not still run.
            cancel.cancel();
        }
        ActiveDeadline::after(STOP_LIMIT).over().await;
    };
    tokio::select! {
        biased;
        found = call.work.attach(invocation, boot) => found,
        () = stopped => AttachOutcome::Unknown,
    }
}

/// Runs a call until it ends. Drops it if it is overdue, or still runs [`STOP_LIMIT`] after its cancellation.
pub(super) async fn run_tool(call: PreparedCall, invocation: Invocation) -> CallEnd {
    let limit = call.limit.unwrap_or(TOOL_LIMIT);
    let cancel = invocation.cancel.clone();
    let mut deadline = ActiveDeadline::after(limit);
    tokio::select! {
        biased;
        end = call.work.run(invocation) => end,
        () = stop_limit_over(&cancel) => {
            let error = "stopped; it did not end by itself when it was told to, and was dropped";
            CallEnd::error(CallStatus::Stopped, error, None, "look at what is there before you repeat anything")
        }
        () = deadline.over() => {
            let error = format!("timed out: it did not end within {} s, and was dropped", limit.as_secs());
            let hint = "what it did until then is done: look at what is there, and ask for less at once";
            CallEnd::error(CallStatus::Error, &error, None, hint)
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use crate::{
        doubles::{ScriptedTool, invocation},
        model::EffectClass,
        port::Tool,
    };

    fn prepared(tool: &ScriptedTool) -> PreparedCall {
        tool.prepare(&serde_json::json!({}), "/").expect("it accepts everything")
    }

    /// The outcome of attaching to a tool that takes this long, and whether the tool was cancelled.
    async fn seek(takes: Duration) -> (AttachOutcome, bool) {
        let (told, end) = (CancellationToken::new(), CallEnd::ok("found"));
        let was_told = told.clone();
        let tool = ScriptedTool::fixed("seeker", EffectClass::Once, "").with_attach(move |invocation, _| {
            let (told, end) = (told.clone(), end.clone());
            async move {
                tokio::select! {
                    () = sleep(takes) => AttachOutcome::Ended(end),
                    () = invocation.cancel.cancelled() => {
                        told.cancel();
                        std::future::pending().await
                    }
                }
            }
        });
        let found = attach(prepared(&tool), invocation("/"), Boot::Same).await;
        (found, was_told.is_cancelled())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_of_before_is_waited_for_whatever_its_limit_is_now() {
        let ended = AttachOutcome::Ended(CallEnd::ok("found"));
        for (hours, expected) in
            [(1, (ended.clone(), false)), (23, (ended, false)), (25, (AttachOutcome::Unknown, true))]
        {
            assert_eq!(seek(Duration::from_hours(hours)).await, expected, "{hours} h");
        }
    }

    /// Checks whether a call of this many seconds returns its own result within the limit.
    async fn check(limit: Duration, seconds: u64, gets_it: bool) {
        let call = async {
            sleep(Duration::from_secs(seconds)).await;
            Err(Failure::new(FailureClass::IncompleteStream, "at its own end"))
        };
        let end = run_model(call, limit, &CancellationToken::new()).await.expect_err("nobody answers");
        let late = FailureClass::Timeout { which: Deadline::Call };
        assert_eq!(
            end.class,
            if gets_it { FailureClass::IncompleteStream } else { late },
            "{seconds} s of {limit:?}"
        );
    }

    /// Takes `takes` of the process's time in a task of its own; the end is seen some turns of the scheduler later.
    async fn ends_elsewhere(takes: Duration) {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            sleep(takes).await;
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            sender.send(()).expect("it is waited for");
        });
        receiver.await.expect("it is sent");
    }

    #[tokio::test(start_paused = true)]
    async fn what_ended_while_the_process_was_stopped_is_taken() {
        let takes = Duration::from_secs(40);
        let limits = [Duration::from_secs(41), TOOL_LIMIT, Duration::from_hours(1)];
        let gap = async || {
            sleep(Duration::from_secs(1)).await;
            tokio::time::advance(Duration::from_hours(48)).await;
        };
        for limit in limits {
            let call = async {
                ends_elsewhere(takes).await;
                Err(Failure::new(FailureClass::IncompleteStream, "at its own end"))
            };
            let cancel = CancellationToken::new();
            let (end, ()) = tokio::join!(run_model(call, limit, &cancel), gap());
            assert_eq!(end.expect_err("it fails").class, FailureClass::IncompleteStream, "{limit:?}");
        }
        let tool = ScriptedTool::new("slow", EffectClass::Once, move |_| async move {
            ends_elsewhere(takes).await;
            CallEnd::ok("ended")
        });
        let tool = tool.with_attach(move |_, _| async move {
            ends_elsewhere(takes).await;
            AttachOutcome::Ended(CallEnd::ok("found"))
        });
        let of = || invocation("/");
        let (ended, ()) = tokio::join!(run_tool(prepared(&tool), of()), gap());
        assert_eq!(ended, CallEnd::ok("ended"));
        let (found, ()) = tokio::join!(attach(prepared(&tool), of(), Boot::Same), gap());
        assert_eq!(found, AttachOutcome::Ended(CallEnd::ok("found")));
        // Even after a cancellation.
        let stopped = of();
        stopped.cancel.cancel();
        let late = ScriptedTool::new("late", EffectClass::Once, |_| async {
            ends_elsewhere(Duration::from_secs(2)).await;
            CallEnd::ok("ended")
        });
        let (ended, ()) = tokio::join!(run_tool(prepared(&late), stopped), gap());
        assert_eq!(ended, CallEnd::ok("ended"));
        let keeping = async {
            ends_elsewhere(takes).await;
            Err(ArtifactError::NotFound("at its own end".into()))
        };
        let cancel = CancellationToken::new();
        let (kept, ()) = tokio::join!(write_artifact(keeping, &cancel), gap());
        assert_eq!(kept, Err(ArtifactError::NotFound("at its own end".into())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_may_take_as_long_as_is_configured() {
        check(call_limit(Duration::from_mins(30), None), 1_829, true).await;
        check(call_limit(Duration::from_mins(30), None), 1_831, false).await;
        check(call_limit(Duration::from_hours(2), None), 7_229, true).await;
        check(call_limit(Duration::from_mins(30), Some(7_200_000)), 7_229, true).await;
        check(call_limit(Duration::from_mins(30), Some(60_000)), 91, false).await;
        assert_eq!(call_limit(Duration::MAX, None), Duration::MAX);
    }
}
