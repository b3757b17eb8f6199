//! Limits of models from servers' lists: the tokens of the window and of the output of one call. Pure: a body in,
//! limits out. A body of unknown shape gives no limits and no error. `http/model_list.rs` sends the queries.

use hermod_actors::model::ModelLimits;
use serde_json::{Value, json};

use super::loose::count;

/// Plausible context windows in tokens; others are ignored.
const WINDOW_RANGE_TOKENS: std::ops::RangeInclusive<u64> = 1_024..=100_000_000;

/// An endpoint that reports a model's limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct ModelList {
    /// The base of the path.
    pub(super) base: ListBase,
    /// The path segments after the base.
    pub(super) path: &'static [&'static str],
    /// The body of a POST about a model; `None` means GET.
    pub(super) body: Option<fn(&str) -> Value>,
    /// Reads the limits of the model from the response.
    pub(super) limits: fn(&Value, &str) -> ModelLimits,
}

/// The URL before a list's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListBase {
    /// The base URL.
    Base,
    /// The base URL without `/v1`: the base of local servers' own APIs.
    Root,
}

/// All lists in query order: that of the wire format, then those of local servers.
pub(super) const LISTS: [ModelList; 3] = [MODELS, LM_STUDIO, OLLAMA];

/// `GET /models`, with the fields of OpenRouter (`context_length`, `top_provider`), vLLM (`max_model_len`) and others.
const MODELS: ModelList =
    ModelList { base: ListBase::Base, path: &["models"], body: None, limits: models_limits };
/// LM Studio's `GET /api/v0/models`: the window of the loaded model, else its maximum.
const LM_STUDIO: ModelList =
    ModelList { base: ListBase::Root, path: &["api", "v0", "models"], body: None, limits: lm_studio_limits };
/// Ollama's `POST /api/show`: the smaller of `num_ctx` in the model's parameters and the window with which it was
/// trained.
const OLLAMA: ModelList = ModelList {
    base: ListBase::Root,
    path: &["api", "show"],
    body: Some(|model| json!({ "model": model })),
    limits: ollama_limits,
};

/// The limits that a list reads from a body; none if the body is no JSON.
pub(super) fn parse_limits(list: &ModelList, body: &[u8], model: &str) -> ModelLimits {
    // The parser refuses deeply nested bodies.
    serde_json::from_slice(body).map_or_else(|_| ModelLimits::default(), |body| (list.limits)(&body, model))
}

/// The first of these fields with a positive count.
fn size(entry: &Value, fields: &[&str]) -> Option<u64> {
    fields.iter().find_map(|field| count(entry.get(field)?).filter(|size| *size > 0))
}

/// The limits without implausible values.
fn plausible_limits(window: Option<u64>, max_output: Option<u64>) -> ModelLimits {
    let window = window.filter(|window| WINDOW_RANGE_TOKENS.contains(window));
    let max_output = max_output.filter(|max| *max > 0 && window.is_some_and(|window| *max <= window));
    ModelLimits { window, max_output }
}

/// The entry of a model in a list of entries.
fn entry<'a>(body: &'a Value, model: &str) -> Option<&'a Value> {
    let list = body.as_array().or_else(|| body.get("data")?.as_array())?;
    let is_it = |entry: &&Value| entry.get("id").and_then(Value::as_str) == Some(model);
    list.iter().find(is_it)
}

/// Fields with the context window.
const WINDOW_FIELDS: [&str; 4] = ["context_length", "max_model_len", "context_window", "max_context_length"];
/// Fields with the maximum output.
const OUTPUT_FIELDS: [&str; 2] = ["max_completion_tokens", "max_output_tokens"];

fn models_limits(body: &Value, model: &str) -> ModelLimits {
    let Some(entry) = entry(body, model) else { return ModelLimits::default() };
    let top = entry.get("top_provider").unwrap_or(&Value::Null);
    // The first provider of OpenRouter may have a smaller window than the model.
    let window = [size(entry, &WINDOW_FIELDS), size(top, &WINDOW_FIELDS)].into_iter().flatten().min();
    plausible_limits(window, size(top, &OUTPUT_FIELDS).or_else(|| size(entry, &OUTPUT_FIELDS)))
}

fn lm_studio_limits(body: &Value, model: &str) -> ModelLimits {
    let window = |entry| size(entry, &["loaded_context_length", "max_context_length"]);
    plausible_limits(entry(body, model).and_then(window), None)
}

fn ollama_limits(body: &Value, _: &str) -> ModelLimits {
    // `parameters` is the text of a Modelfile: one name and value per line.
    let parameters = body.get("parameters").and_then(Value::as_str).unwrap_or_default();
    let mut lines = parameters.lines().map(str::split_whitespace);
    let num_ctx =
        lines.find_map(|mut words| (words.next()? == "num_ctx").then(|| words.next()?.parse().ok())?);
    let info = body.get("model_info").and_then(Value::as_object);
    // The field's name starts with the architecture, as in `llama.context_length`.
    let mut fields = info.into_iter().flatten();
    let trained_window =
        fields.find_map(|(name, value)| name.ends_with(".context_length").then(|| count(value))?);
    plausible_limits([num_ctx, trained_window].into_iter().flatten().min(), None)
}

#[cfg(test)]
mod tests;
