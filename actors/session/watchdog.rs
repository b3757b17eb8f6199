//! The limit of every call, whatever its adapter does: what freezes is dropped, and its session goes on.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    model::{Answer, Artifact, CallEnd, CallStatus, Deadline, Failure, FailureClass},
    port::{ArtifactError, Boot, Found, Invocation, Tool},
};

/// An adapter keeps the deadline of a whole call (1,800 s) itself; this is for one that does not.
pub(super) const MODEL: Duration = Duration::from_secs(1_830);
/// The limit of a tool that does not say its own.
pub(super) const TOOL: Duration = Duration::from_mins(10);
/// What keeping a long result may take, or reading the pictures of a request.
pub(super) const KEEPING: Duration = Duration::from_mins(1);
/// What a tool has to end in when it is told to, beyond the 2.1 s of its contract.
pub(super) const STOPPING: Duration = Duration::from_secs(3);

/// Awaits a model call's attempt, until it is cancelled or overdue.
pub(super) async fn answer(
    call: impl Future<Output = Result<Answer, Failure>>,
    cancel: &CancellationToken,
) -> Result<Answer, Failure> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Failure::new(FailureClass::Cancelled, "stopped")),
        answer = call => answer,
        () = sleep(MODEL) => {
            let class = FailureClass::Timeout { which: Deadline::Call };
            Err(Failure::new(class, format!("the provider did not end the call within {} s", MODEL.as_secs())))
        }
    }
}

/// Awaits the pictures of a request, unless that takes too long or the call is stopped meanwhile.
pub(super) async fn shown<T>(
    reading: impl Future<Output = Result<T, Failure>>,
    cancel: &CancellationToken,
) -> Result<T, Failure> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Failure::new(FailureClass::Cancelled, "stopped")),
        read = reading => read,
        () = sleep(KEEPING) => {
            let seconds = KEEPING.as_secs();
            Err(Failure::new(FailureClass::Lost, format!("the pictures were not read within {seconds} s")))
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
        sleep(STOPPING).await;
    };
    let late = || Err(ArtifactError::Unavailable("the disk does not answer".to_owned()));
    tokio::select! {
        biased;
        kept = keeping => kept,
        () = stopped => late(),
        () = sleep(KEEPING) => late(),
    }
}

/// Finds out what became of a call of before. Whoever takes longer than the call itself may does not know.
pub(super) async fn found(tool: &dyn Tool, invocation: Invocation, boot: Boot) -> Found {
    let limit = tool.limit(&invocation.arguments).unwrap_or(TOOL);
    let cancel = invocation.cancel.clone();
    let stopped = async {
        cancel.cancelled().await;
        sleep(STOPPING).await;
    };
    tokio::select! {
        biased;
        found = tool.attach(invocation, boot) => found,
        () = stopped => Found::Unknown,
        () = sleep(limit) => Found::Unknown,
    }
}

/// Runs a tool, until it ends or is overdue: then it is dropped.
pub(super) async fn end(tool: &dyn Tool, invocation: Invocation) -> CallEnd {
    let limit = tool.limit(&invocation.arguments).unwrap_or(TOOL);
    let cancel = invocation.cancel.clone();
    let stopped = async {
        cancel.cancelled().await;
        sleep(STOPPING).await;
    };
    tokio::select! {
        biased;
        end = tool.run(invocation) => end,
        () = stopped => {
            let error = "stopped; it did not end by itself when it was told to, and was dropped";
            CallEnd::error(CallStatus::Stopped, error, None, "look at what is there before you repeat anything")
        }
        () = sleep(limit) => {
            let error = format!("timed out: it did not end within {} s, and was dropped", limit.as_secs());
            let hint = "what it did until then is done: look at what is there, and ask for less at once";
            CallEnd::error(CallStatus::Error, &error, None, hint)
        }
    }
}
