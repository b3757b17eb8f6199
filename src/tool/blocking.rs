//! Runs blocking file work of tools off the async threads, with cancellation, and turns its errors into ends of the
//! call.

use std::time::Duration;

use hermod_actors::{
    ActiveDeadline,
    model::{CallEnd, CallStatus},
};
use tokio::task::spawn_blocking;

use super::ToolContext;

/// Time that a stopped call waits for a file operation to return.
const RETURN_TIMEOUT: Duration = Duration::from_secs(2);

impl ToolContext {
    /// Fails with the end of the call once the call was stopped or its future dropped. Asked by blocking work between
    /// two of its steps, before it changes a file.
    pub(super) fn check_stopped(&self) -> Result<(), CallEnd> {
        if !self.cancel.is_cancelled() {
            return Ok(());
        }
        let error = "the call was stopped before it was done; no file was changed";
        Err(stopped_end(error, "call again if it is still wanted"))
    }
}

/// Runs file work whose text is the whole result of the call.
pub(super) async fn run_blocking(
    context: &ToolContext,
    work: impl FnOnce(&ToolContext) -> Result<String, CallEnd> + Send + 'static,
) -> CallEnd {
    try_blocking(context, work).await.map_or_else(|end| end, CallEnd::ok)
}

/// Runs file work off the async threads. The work stops at its next check once the call is stopped or the future is
/// dropped. The error is the end of the call.
pub(super) async fn try_blocking<T: Send + 'static>(
    context: &ToolContext,
    work: impl FnOnce(&ToolContext) -> Result<T, CallEnd> + Send + 'static,
) -> Result<T, CallEnd> {
    let stop = context.cancel.child_token();
    let mut work_context = context.clone();
    work_context.invocation.cancel = stop.clone();
    let _stop_on_drop = stop.drop_guard();
    let mut work = spawn_blocking(move || work(&work_context));
    let joined = tokio::select! {
        biased;
        joined = &mut work => Some(joined),
        () = context.cancel.cancelled() => ActiveDeadline::after(RETURN_TIMEOUT).bound(work).await,
    };
    match joined {
        Some(Ok(result)) => result,
        Some(Err(error)) => {
            let hint = "this is a fault of the tool: reach the aim another way";
            Err(CallEnd::error(CallStatus::Error, &format!("the tool failed inside: {error}"), None, hint))
        }
        None => Err(stopped_end(
            "the call was stopped while the system was in a file operation that did not return",
            "check what the file system holds before calling again",
        )),
    }
}

fn stopped_end(error: &str, hint: &str) -> CallEnd {
    CallEnd::error(CallStatus::Stopped, error, None, hint)
}
