//! Ollama's `POST /api/show`: the smaller of `num_ctx` in the model's parameters and the length of its training.

use hermod_actors::model::ModelLimits;
use serde_json::{Value, json};

use super::{ListBase, ModelList, count, plausible_limits};

pub(super) const LIST: ModelList = ModelList {
    base: ListBase::Root,
    path: &["api", "show"],
    body: Some(|model| json!({ "model": model })),
    limits,
};

fn limits(body: &Value, _: &str) -> ModelLimits {
    // `parameters` is the text of a Modelfile: one name and value per line.
    let parameters = body.get("parameters").and_then(Value::as_str).unwrap_or_default();
    let mut lines = parameters.lines().map(str::split_whitespace);
    let num_ctx =
        lines.find_map(|mut words| (words.next()? == "num_ctx").then(|| words.next()?.parse().ok())?);
    let info = body.get("model_info").and_then(Value::as_object);
    // The field's name starts with the architecture, as in `llama.context_length`.
    let mut fields = info.into_iter().flatten();
    let trained = fields.find_map(|(name, value)| name.ends_with(".context_length").then(|| count(value))?);
    let window = match (num_ctx, trained) {
        (Some(set), Some(trained)) => Some(trained.min(set)),
        (set, trained) => set.or(trained),
    };
    plausible_limits(window, None)
}
