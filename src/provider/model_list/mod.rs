//! Limits of models from servers' lists: the tokens of the window and of the output of one call. Pure: a body in,
//! limits out. A body of unknown shape gives no limits and no error.

mod lm_studio;
mod models;
mod ollama;

use hermod_actors::model::ModelLimits;
use serde_json::Value;

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
pub(super) const LISTS: [ModelList; 3] = [models::LIST, lm_studio::LIST, ollama::LIST];

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
