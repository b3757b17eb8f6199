//! `GET /models`, with the fields of OpenRouter (`context_length`, `top_provider`), vLLM (`max_model_len`) and others.

use hermod_actors::model::ModelLimits;
use serde_json::Value;

use super::{ListBase, ModelList, entry, plausible_limits, size};

pub(super) const LIST: ModelList = ModelList { base: ListBase::Base, path: &["models"], body: None, limits };

/// Fields with the context window.
const WINDOW_FIELDS: [&str; 4] = ["context_length", "max_model_len", "context_window", "max_context_length"];
/// Fields with the maximum output.
const OUTPUT_FIELDS: [&str; 2] = ["max_completion_tokens", "max_output_tokens"];

fn limits(body: &Value, model: &str) -> ModelLimits {
    let Some(entry) = entry(body, model) else { return ModelLimits::default() };
    let top = entry.get("top_provider").unwrap_or(&Value::Null);
    // The first provider of OpenRouter may have a smaller window than the model.
    let window = [size(entry, &WINDOW_FIELDS), size(top, &WINDOW_FIELDS)].into_iter().flatten().min();
    plausible_limits(window, size(top, &OUTPUT_FIELDS).or_else(|| size(entry, &OUTPUT_FIELDS)))
}
