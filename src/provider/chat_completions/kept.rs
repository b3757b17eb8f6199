//! What a vendor wants to see again with the calls of its answer, in the fields that it came in.

use hermod_actors::model::{AssistantMessage, Failure, Opaque, Origin};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

use crate::provider::reader::opaque_state;

/// The fields that carry reasoning as text.
const TEXTS: [&str; 2] = ["reasoning_content", "reasoning"];
/// Details that one answer may have.
pub(super) const MAX_DETAILS: usize = 1_024;
/// What a value that is kept costs at least.
const VALUE_BYTES: usize = 64;
/// The texts of a detail that comes in pieces.
const PIECES: [&str; 3] = ["text", "summary", "signature"];

/// More details than [`MAX_DETAILS`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMany;

/// Bytes that a value costs which is kept.
pub(super) fn cost(value: &impl Serialize) -> usize {
    // Infallible: values with string keys.
    VALUE_BYTES + serde_json::to_vec(value).map_or(0, |json| json.len())
}

/// State that is not for people, as it comes in.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    /// Which of [`TEXTS`] the reasoning came in.
    field: Option<&'static str>,
    details: Vec<Value>,
}

impl Kept {
    /// Reasoning came in this field.
    pub(super) fn field(&mut self, field: &'static str) {
        self.field.get_or_insert(field);
    }

    /// Takes `reasoning_details`; tells how many bytes that added.
    pub(super) fn details(&mut self, details: Vec<Value>) -> Result<usize, TooMany> {
        details.into_iter().map(|detail| self.detail(detail)).sum()
    }

    /// A detail, or a piece of the one before it.
    fn detail(&mut self, detail: Value) -> Result<usize, TooMany> {
        let Value::Object(detail) = detail else { return Ok(0) };
        let (size, is_full) = (cost(&detail), self.details.len() == MAX_DETAILS);
        let continues = |last: &Map<String, Value>| {
            let same = |key: &str| last.get(key) == detail.get(key);
            same("index") && same("type") && !detail.contains_key("data") && detail.contains_key("index")
        };
        match self.details.last_mut() {
            Some(Value::Object(last)) if continues(last) => join(last, detail),
            Some(_) | None if is_full => return Err(TooMany),
            Some(_) | None => self.details.push(Value::Object(detail)),
        }
        Ok(size)
    }

    /// What is to be sent back with an answer that asks for calls; `extras` are what some of them came with.
    pub(super) fn finish(
        self,
        origin: &Arc<Origin>,
        extras: Vec<(usize, Value)>,
    ) -> Result<Option<Arc<Opaque>>, Failure> {
        let field = self.field.map(|field| json!({ "field": field }));
        let details = (!self.details.is_empty()).then(|| json!({ "reasoning_details": self.details }));
        let extras = extras.into_iter().map(|(n, extra)| json!({ "call": n, "extra_content": extra }));
        opaque_state(Arc::clone(origin), field.into_iter().chain(details).chain(extras).collect())
    }
}

fn join(last: &mut Map<String, Value>, piece: Map<String, Value>) {
    for (key, value) in piece {
        match (last.get_mut(&key), value) {
            (Some(Value::String(text)), Value::String(more)) if PIECES.contains(&key.as_str()) => {
                text.push_str(&more);
            }
            (Some(_), Value::Null) => {}
            (_, value) => drop(last.insert(key, value)),
        }
    }
}

/// What is sent back with an assistant message.
#[derive(Debug, Default)]
pub(super) struct Returned<'a> {
    /// The name of the field and the text for it.
    pub(super) reasoning: Option<(&'static str, &'a str)>,
    /// For `reasoning_details`.
    pub(super) details: Option<&'a Value>,
    extras: Vec<(u64, &'a Value)>,
}

impl<'a> Returned<'a> {
    /// What `origin` is to see again of this message.
    pub(super) fn of(message: &'a AssistantMessage, origin: &Origin) -> Self {
        let mut returned = Self::default();
        if message.calls.is_empty() {
            return returned;
        }
        for part in message.parts_of(origin) {
            let named = part.get("field").and_then(Value::as_str);
            let field = named.and_then(|name| TEXTS.into_iter().find(|text| *text == name));
            returned.reasoning =
                field.map(|field| (field, message.reasoning.as_str())).or(returned.reasoning);
            returned.details = part.get("reasoning_details").or(returned.details);
            let call = part.get("call").and_then(Value::as_u64);
            returned.extras.extend(call.zip(part.get("extra_content")));
        }
        returned
    }

    /// Whether nothing is.
    pub(super) const fn is_empty(&self) -> bool {
        self.reasoning.is_none() && self.details.is_none() && self.extras.is_empty()
    }

    /// What the call with this number came with.
    pub(super) fn extra(&self, call: usize) -> Option<&'a Value> {
        self.extras.iter().find(|(n, _)| usize::try_from(*n) == Ok(call)).map(|(_, extra)| *extra)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(details: Vec<Value>, expect: &[Value]) {
        let mut kept = Kept::default();
        kept.details(details).unwrap();
        assert_eq!(kept.details, expect);
    }

    #[test]
    fn pieces_of_a_detail_are_joined() {
        let text = |text: &str| json!({"type": "reasoning.text", "text": text, "index": 0});
        let signed = json!({"type": "reasoning.text", "signature": "s", "index": 0, "format": null});
        let whole =
            json!({"type": "reasoning.text", "text": "ab", "index": 0, "signature": "s", "format": null});
        check(vec![text("a"), text("b"), signed], &[whole]);
        let encrypted = |data: &str| json!({"type": "reasoning.encrypted", "data": data, "index": 0});
        check(vec![encrypted("x"), encrypted("y")], &[encrypted("x"), encrypted("y")]);
        let summary = |n: u64| json!({"type": "reasoning.summary", "summary": "s", "index": n});
        check(vec![summary(0), summary(1), json!("no detail")], &[summary(0), summary(1)]);
        let unnumbered = json!({"type": "reasoning.text", "text": "a"});
        check(vec![unnumbered.clone(), unnumbered.clone()], &[unnumbered.clone(), unnumbered]);
    }
    #[test]
    fn what_is_kept_is_counted_and_bounded() {
        let deep = json!({"data": [["x".repeat(1_000)]]});
        let mut kept = Kept::default();
        assert!(kept.details(vec![deep]).unwrap() > 1_000);
        assert!(kept.details(vec![json!({}); MAX_DETAILS - 1]).unwrap() > 64_000);
        assert_eq!(kept.details(vec![json!({})]), Err(TooMany));
    }
}
