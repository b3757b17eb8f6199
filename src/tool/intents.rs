//! Intents: what an attempt is about to change, written as its artifact before it changes anything. By them the next
//! attempt of the same call recognizes what an earlier one has done.

use hermod_actors::{
    model::{CallEnd, CallStatus},
    port::{ArtifactError, AttemptArtifacts},
};
use serde::{Serialize, de::DeserializeOwned};

/// Most bytes of an intent that are read back. A longer intent counts as unreadable.
const MAX_INTENT_BYTES: usize = 1_000;

/// Writes the intent of this attempt.
pub(super) async fn write_intent<N: Serialize>(
    artifacts: &AttemptArtifacts,
    intent: &N,
) -> Result<(), ArtifactError> {
    let intent = serde_json::to_vec(intent).map_err(unreadable)?;
    artifacts.write(intent.into()).await.map(drop)
}

/// The intent of the latest earlier attempt of this call that wrote one.
pub(super) async fn read_earlier_intent<N: DeserializeOwned>(
    artifacts: &AttemptArtifacts,
) -> Result<Option<N>, ArtifactError> {
    for attempt in (1..artifacts.name().attempt).rev() {
        match artifacts.read_earlier(attempt, MAX_INTENT_BYTES).await {
            Ok(excerpt) => return serde_json::from_slice(&excerpt.bytes).map(Some).map_err(unreadable),
            Err(ArtifactError::NotFound(_)) => {}
            Err(
                error @ (ArtifactError::Removed { .. }
                | ArtifactError::Altered(_)
                | ArtifactError::Unavailable(_)),
            ) => return Err(error),
        }
    }
    Ok(None)
}

/// The end of a call that must not act without its intent; `what` names the action.
pub(super) fn intent_not_written(what: &str, error: &ArtifactError) -> CallEnd {
    let error = format!("the note that makes this {what} safe to repeat cannot be kept or read: {error}");
    CallEnd::error(
        CallStatus::Error,
        &error,
        None,
        "nothing was changed; the operator has to look at the disk",
    )
}

#[allow(clippy::needless_pass_by_value)] // `map_err` passes it by value
fn unreadable(error: serde_json::Error) -> ArtifactError {
    ArtifactError::Unavailable(error.to_string())
}
