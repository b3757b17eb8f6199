//! The limit of every call, whatever its adapter does: what freezes is dropped, and its session goes on. Limits count the
//! time for which this process ran: what ended while it was stopped is taken, not dropped.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::{
    active_deadline::ActiveDeadline,
    model::{Answer, Artifact, CallEnd, CallStatus, Deadline, Failure, FailureClass},
    port::{ArtifactError, Boot, Found, Invocation, Provider, Tool},
};

/// An adapter keeps the deadline of a whole call itself; one that does not is given so much more.
const LATE: Duration = Duration::from_secs(30);
/// The limit of a tool that does not say its own.
pub(super) const TOOL: Duration = Duration::from_mins(10);
/// What finding out about a call of before may take: longer than any call. A tool has a limit of its own.
const FINDING: Duration = Duration::from_hours(24);
/// What keeping a long result may take, or reading the pictures of a request.
pub(super) const KEEPING: Duration = Duration::from_mins(1);
/// What a tool has to end in when it is told to, beyond the 2.1 s of its contract.
pub(super) const STOPPING: Duration = Duration::from_secs(3);

/// The limit of a model call's attempt.
pub(super) fn of_call(endpoint: &dyn Provider, own_ms: Option<u64>) -> Duration {
    of(endpoint.longest_call(), own_ms)
}

fn of(usual: Duration, own_ms: Option<u64>) -> Duration {
    own_ms.map_or(usual, Duration::from_millis).saturating_add(LATE)
}

/// Awaits a model call's attempt, until it is cancelled or overdue.
pub(super) async fn answer(
    call: impl Future<Output = Result<Answer, Failure>>,
    limit: Duration,
    cancel: &CancellationToken,
) -> Result<Answer, Failure> {
    let mut deadline = ActiveDeadline::after(limit);
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Failure::new(FailureClass::Cancelled, "stopped")),
        answer = call => answer,
        () = deadline.over() => {
            let class = FailureClass::Timeout { which: Deadline::Call };
            Err(Failure::new(class, format!("the provider did not end the call within {} s", limit.as_secs_f64())))
        }
    }
}

/// Awaits the pictures of a request, unless that takes too long or the call is stopped meanwhile.
pub(super) async fn shown<T>(
    reading: impl Future<Output = Result<T, Failure>>,
    cancel: &CancellationToken,
) -> Result<T, Failure> {
    let mut deadline = ActiveDeadline::after(KEEPING);
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Failure::new(FailureClass::Cancelled, "stopped")),
        read = reading => read,
        () = deadline.over() => {
            let seconds = KEEPING.as_secs();
            Err(Failure::new(FailureClass::NotMade, format!("the pictures were not read within {seconds} s")))
        }
    }
}

/// Awaits that an artifact is kept, unless that takes too long or the call is stopped meanwhile.
pub(super) async fn kept(
    keeping: impl Future<Output = Result<Artifact, ArtifactError>>,
    cancel: &CancellationToken,
) -> Result<Artifact, ArtifactError> {
    let stopped = async {
        cancel.cancelled().await;
        ActiveDeadline::after(STOPPING).over().await;
    };
    let late = || Err(ArtifactError::Unavailable("the disk does not answer".to_owned()));
    let mut deadline = ActiveDeadline::after(KEEPING);
    tokio::select! {
        biased;
        kept = keeping => kept,
        () = stopped => late(),
        () = deadline.over() => late(),
    }
}

/// Finds out what became of a call of before. Whoever does not end when it is told to does not know.
pub(super) async fn found(tool: &dyn Tool, invocation: Invocation, boot: Boot) -> Found {
    let cancel = invocation.cancel.child_token();
    let invocation = Invocation { cancel: cancel.clone(), ..invocation };
    let stopped = async {
        if ActiveDeadline::after(FINDING).bound(cancel.cancelled()).await.is_none() {
            // What is not known to have ended could be made again while it runs.
            cancel.cancel();
        }
        ActiveDeadline::after(STOPPING).over().await;
    };
    tokio::select! {
        biased;
        found = tool.attach(invocation, boot) => found,
        () = stopped => Found::Unknown,
    }
}

/// Runs a tool, until it ends or is overdue: then it is dropped.
pub(super) async fn end(tool: &dyn Tool, invocation: Invocation) -> CallEnd {
    let limit = tool.limit(&invocation.arguments).unwrap_or(TOOL);
    let cancel = invocation.cancel.clone();
    let stopped = async {
        cancel.cancelled().await;
        ActiveDeadline::after(STOPPING).over().await;
    };
    let mut deadline = ActiveDeadline::after(limit);
    tokio::select! {
        biased;
        end = tool.run(invocation) => end,
        () = stopped => {
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
        model::EffectClass,
        testkit::{ScriptedTool, invocation},
    };

    /// What is found by a tool that takes so long to find something, and whether it was told to end.
    async fn seek(takes: Duration) -> (Found, bool) {
        let (told, end) = (CancellationToken::new(), CallEnd::ok("found"));
        let was_told = told.clone();
        let tool = ScriptedTool::saying("seeker", EffectClass::Once, "").finding(move |invocation, _| {
            let (told, end) = (told.clone(), end.clone());
            async move {
                tokio::select! {
                    () = sleep(takes) => Found::Ended(end),
                    () = invocation.cancel.cancelled() => {
                        told.cancel();
                        std::future::pending().await
                    }
                }
            }
        });
        let found = found(&tool, invocation("/", serde_json::json!({})), Boot::Same).await;
        (found, was_told.is_cancelled())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_of_before_is_waited_for_whatever_its_limit_is_now() {
        let ended = Found::Ended(CallEnd::ok("found"));
        for (hours, expected) in
            [(1, (ended.clone(), false)), (23, (ended, false)), (25, (Found::Unknown, true))]
        {
            assert_eq!(seek(Duration::from_hours(hours)).await, expected, "{hours} h");
        }
    }

    /// Whether a call that takes so many seconds gets its answer within the limit.
    async fn check(limit: Duration, seconds: u64, gets_it: bool) {
        let call = async {
            sleep(Duration::from_secs(seconds)).await;
            Err(Failure::new(FailureClass::Cut, "at its own end"))
        };
        let end = answer(call, limit, &CancellationToken::new()).await.expect_err("nobody answers");
        let late = FailureClass::Timeout { which: Deadline::Call };
        assert_eq!(end.class, if gets_it { FailureClass::Cut } else { late }, "{seconds} s of {limit:?}");
    }

    /// What takes `takes` of the process's time, in a task of its own, and is known some turns of the scheduler later.
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
        let limits = [Duration::from_secs(41), TOOL, Duration::from_hours(1)];
        let gap = async || {
            sleep(Duration::from_secs(1)).await;
            tokio::time::advance(Duration::from_hours(48)).await;
        };
        for limit in limits {
            let call = async {
                ends_elsewhere(takes).await;
                Err(Failure::new(FailureClass::Cut, "at its own end"))
            };
            let cancel = CancellationToken::new();
            let (end, ()) = tokio::join!(answer(call, limit, &cancel), gap());
            assert_eq!(end.expect_err("it fails").class, FailureClass::Cut, "{limit:?}");
        }
        let tool = ScriptedTool::new("slow", EffectClass::Once, move |_| async move {
            ends_elsewhere(takes).await;
            CallEnd::ok("ended")
        });
        let tool = tool.finding(move |_, _| async move {
            ends_elsewhere(takes).await;
            Found::Ended(CallEnd::ok("found"))
        });
        let of = || invocation("/", serde_json::json!({}));
        let (ended, ()) = tokio::join!(end(&tool, of()), gap());
        assert_eq!(ended, CallEnd::ok("ended"));
        let (found, ()) = tokio::join!(found(&tool, of(), Boot::Same), gap());
        assert_eq!(found, Found::Ended(CallEnd::ok("found")));
        // Also what was told to end.
        let stopped = of();
        stopped.cancel.cancel();
        let late = ScriptedTool::new("late", EffectClass::Once, |_| async {
            ends_elsewhere(Duration::from_secs(2)).await;
            CallEnd::ok("ended")
        });
        let (ended, ()) = tokio::join!(end(&late, stopped), gap());
        assert_eq!(ended, CallEnd::ok("ended"));
        let keeping = async {
            ends_elsewhere(takes).await;
            Err(ArtifactError::NotFound("at its own end".into()))
        };
        let cancel = CancellationToken::new();
        let (kept, ()) = tokio::join!(kept(keeping, &cancel), gap());
        assert_eq!(kept, Err(ArtifactError::NotFound("at its own end".into())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_may_take_as_long_as_is_configured() {
        check(of(Duration::from_mins(30), None), 1_829, true).await;
        check(of(Duration::from_mins(30), None), 1_831, false).await;
        check(of(Duration::from_hours(2), None), 7_229, true).await;
        check(of(Duration::from_mins(30), Some(7_200_000)), 7_229, true).await;
        check(of(Duration::from_mins(30), Some(60_000)), 91, false).await;
        assert_eq!(of(Duration::MAX, None), Duration::MAX);
    }
}
