//! Runs blocking file work of tools off the async threads, with cancellation, and turns its errors into ends of the
//! call.

use std::time::Duration;

use hermod_actors::{
    ActiveDeadline,
    model::{CallEnd, CallStatus},
    port::BadArguments,
};
use tokio::task::{JoinError, spawn_blocking};
use tokio_util::sync::CancellationToken;

/// Time that a stopped call waits for a file operation to return.
const RETURN_TIMEOUT: Duration = Duration::from_secs(2);

/// Why file work gave no result.
#[derive(Debug)]
pub(super) enum FileWorkError {
    /// The arguments do not fit the file system's content.
    Refused(BadArguments),
    /// The work was stopped before it changed a file.
    Stopped,
}

impl From<BadArguments> for FileWorkError {
    fn from(bad: BadArguments) -> Self {
        Self::Refused(bad)
    }
}

/// Tells blocking work, between two of its steps, whether its call was stopped.
#[derive(Debug)]
pub(super) struct CancelCheck(CancellationToken);

impl CancelCheck {
    /// Fails once the call was stopped or its future dropped.
    pub(super) fn check(&self) -> Result<(), FileWorkError> {
        if self.0.is_cancelled() { Err(FileWorkError::Stopped) } else { Ok(()) }
    }
}

/// Runs file work whose text is the whole result of the call.
pub(super) async fn run_blocking<F>(cancel: &CancellationToken, work: F) -> CallEnd
where
    F: FnOnce(&CancelCheck) -> Result<String, FileWorkError> + Send + 'static,
{
    try_blocking(cancel, work).await.map_or_else(|end| end, CallEnd::ok)
}

/// Runs file work off the async threads. The work stops at its next check once `cancel` fires or the future is dropped.
/// The error is the end of the call.
pub(super) async fn try_blocking<T, F>(cancel: &CancellationToken, work: F) -> Result<T, CallEnd>
where
    F: FnOnce(&CancelCheck) -> Result<T, FileWorkError> + Send + 'static,
    T: Send + 'static,
{
    let stop = cancel.child_token();
    let cancel_check = CancelCheck(stop.clone());
    let _stop_on_drop = stop.drop_guard();
    let mut work = spawn_blocking(move || work(&cancel_check));
    let joined = tokio::select! {
        biased;
        joined = &mut work => Ok(joined),
        () = cancel.cancelled() => ActiveDeadline::after(RETURN_TIMEOUT).bound(work).await.ok_or(()),
    };
    Err(match joined {
        Ok(Ok(Ok(result))) => return Ok(result),
        Ok(Ok(Err(FileWorkError::Refused(bad)))) => bad.into(),
        Ok(Ok(Err(FileWorkError::Stopped))) => stopped_end(
            "the call was stopped before it was done; no file was changed",
            "call again if it is still wanted",
        ),
        Ok(Err(error)) => panic_end(&error),
        Err(()) => stopped_end(
            "the call was stopped while the system was in a file operation that did not return",
            "check what the file system holds before calling again",
        ),
    })
}

/// The end of a call whose work panicked.
pub(super) fn panic_end(error: &JoinError) -> CallEnd {
    CallEnd::error(
        CallStatus::Error,
        &format!("the tool failed inside: {error}"),
        None,
        "this is a fault of the tool: reach the aim another way",
    )
}

fn stopped_end(error: &str, hint: &str) -> CallEnd {
    CallEnd::error(CallStatus::Stopped, error, None, hint)
}
