//! What servers tell of their models: how much one can read and write in one call. Pure: a body in, sizes out. A body that
//! is not understood tells nothing, and is no error.

mod lm_studio;
mod models;
mod ollama;

use hermod_actors::model::ModelLimits;
use serde_json::Value;

use super::loose::count;

/// Windows that are believed, in tokens.
const WINDOW_RANGE_TOKENS: std::ops::RangeInclusive<u64> = 1_024..=100_000_000;

/// One way to ask a server for a model's limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct ModelList {
    /// Where: behind the base URL, or behind that without its `/v1`.
    pub(super) base: ListBase,
    /// The path there.
    pub(super) path: &'static [&'static str],
    /// The body of a POST about a model; a GET without one.
    pub(super) body: Option<fn(&str) -> Value>,
    /// What the answer tells of the model.
    pub(super) limits: fn(&Value, &str) -> ModelLimits,
}

/// What a path stands behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListBase {
    /// The base URL.
    Base,
    /// The base URL without `/v1`: where local servers have an API of their own.
    Root,
}

/// The list of the wire format, then those that local servers have beside it.
pub(super) const LISTS: [ModelList; 3] = [models::LIST, lm_studio::LIST, ollama::LIST];

/// A list reads what it can from a body.
pub(super) fn parse_limits(list: &ModelList, body: &[u8], model: &str) -> ModelLimits {
    // Deep bodies are refused by the parser.
    serde_json::from_slice(body).map_or_else(|_| ModelLimits::default(), |body| (list.limits)(&body, model))
}

/// The first of these fields that is a size.
fn size(entry: &Value, fields: &[&str]) -> Option<u64> {
    fields.iter().find_map(|field| count(entry.get(field)?).filter(|size| *size > 0))
}

/// The limits, as far as they can be so.
fn plausible_limits(window: Option<u64>, max_output: Option<u64>) -> ModelLimits {
    let window = window.filter(|window| WINDOW_RANGE_TOKENS.contains(window));
    let max_output = max_output.filter(|most| *most > 0 && window.is_some_and(|window| *most <= window));
    ModelLimits { window, max_output }
}

/// The entry of a model in a list of entries.
fn entry<'a>(body: &'a Value, model: &str) -> Option<&'a Value> {
    let list = body.as_array().or_else(|| body.get("data")?.as_array())?;
    let is_it = |entry: &&Value| entry.get("id").and_then(Value::as_str) == Some(model);
    list.iter().find(is_it)
}

#[cfg(test)]
mod tests;
