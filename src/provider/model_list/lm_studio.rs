//! LM Studio's `GET /api/v0/models`: the window of the loaded model, else its maximum.

use hermod_actors::model::ModelLimits;
use serde_json::Value;

use super::{ListBase, ModelList, entry, plausible_limits, size};

pub(super) const LIST: ModelList =
    ModelList { base: ListBase::Root, path: &["api", "v0", "models"], body: None, limits };

fn limits(body: &Value, model: &str) -> ModelLimits {
    let entry = entry(body, model);
    plausible_limits(
        entry.and_then(|entry| size(entry, &["loaded_context_length", "max_context_length"])),
        None,
    )
}
