//! Intents: what an attempt is about to change, written as its artifact before it changes anything. By them the next
//! attempt of the same call recognizes what an earlier one has done.

use hermod_actors::{
    model::{CallEnd, CallStatus},
    port::{ArtifactError, AttemptArtifacts},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{blocking::try_blocking, typed_tool::ToolContext};

/// Most bytes of an intent that are read back. A longer intent counts as unreadable.
const MAX_INTENT_BYTES: usize = 1_000;

/// Changes something in two steps, with an intent between them that is durable before `write` begins. `prepare` gets the
/// intent of an earlier attempt; its error is the end of a call that has nothing to write. `what` names the change.
pub(super) async fn change<N: Serialize + DeserializeOwned + Send + 'static, C: Send + 'static>(
    context: &ToolContext,
    what: &str,
    prepare: impl FnOnce(Option<N>, &ToolContext) -> Result<(N, C), CallEnd> + Send + 'static,
    write: impl FnOnce(C, &ToolContext) -> Result<String, CallEnd> + Send + 'static,
) -> CallEnd {
    let change = async {
        let not_written = |error| intent_not_written(what, &error);
        let earlier = read_earlier_intent(&context.artifacts).await.map_err(not_written)?;
        let (intent, change) = try_blocking(context, move |context| prepare(earlier, context)).await?;
        let intent = serde_json::to_vec(&intent).map_err(|error| not_written(unreadable(error)))?;
        context.artifacts.write(intent.into()).await.map_err(not_written)?;
        try_blocking(context, move |context| write(change, context)).await
    };
    change.await.map_or_else(|end| end, CallEnd::ok)
}

/// The intent of the latest earlier attempt of this call that wrote one.
async fn read_earlier_intent<N: DeserializeOwned>(
    artifacts: &AttemptArtifacts,
) -> Result<Option<N>, ArtifactError> {
    for attempt in (1..artifacts.name().attempt).rev() {
        match artifacts.read_earlier(attempt, MAX_INTENT_BYTES).await {
            Err(ArtifactError::NotFound(_)) => {}
            excerpt => return serde_json::from_slice(&excerpt?.bytes).map(Some).map_err(unreadable),
        }
    }
    Ok(None)
}

/// The end of a call that must not act without its intent; `what` names the action.
fn intent_not_written(what: &str, error: &ArtifactError) -> CallEnd {
    let error = format!("the note that makes this {what} safe to repeat cannot be kept or read: {error}");
    let hint = "nothing was changed; the operator has to look at the disk";
    CallEnd::error(CallStatus::Error, &error, None, hint)
}

#[allow(clippy::needless_pass_by_value)] // `map_err` passes it by value
fn unreadable(error: serde_json::Error) -> ArtifactError {
    ArtifactError::Unavailable(error.to_string())
}
