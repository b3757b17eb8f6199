//! State of an answer that the vendor expects back with the answer's calls: reasoning, its details, and the extra
//! content of calls. It goes back in the fields that contained it. [`EchoedState`] collects it from an answer,
//! [`EchoedFields`] reads it for a request.

use hermod_actors::model::{AnswerOrigin, AssistantMessage, Failure, OpaqueState};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

use crate::provider::reader::{incomplete_stream, opaque_state};

/// The fields with reasoning as text.
const REASONING_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];
/// Maximum number of reasoning details in one answer.
const MAX_DETAILS: usize = 1_024;
/// The minimum size that is counted for a retained value.
const MIN_VALUE_BYTES: usize = 64;
/// The text fields of a detail that arrive in pieces.
const STREAMED_FIELDS: [&str; 3] = ["text", "summary", "signature"];

/// The size in bytes that is counted for a retained value.
pub(super) fn retained_bytes(value: &impl Serialize) -> usize {
    // Infallible: values with string keys.
    MIN_VALUE_BYTES + serde_json::to_vec(value).map_or(0, |json| json.len())
}

/// Opaque state of an answer, as received so far.
#[derive(Debug, Clone, Default)]
pub(super) struct EchoedState {
    /// The field of [`REASONING_FIELDS`] that contained the reasoning.
    field: Option<&'static str>,
    details: Vec<Value>,
}

impl EchoedState {
    /// Reasoning came in this field; the first field counts.
    pub(super) fn set_field(&mut self, field: &'static str) {
        self.field.get_or_insert(field);
    }

    /// Adds `reasoning_details`; returns the number of added bytes.
    pub(super) fn push_details(&mut self, details: Vec<Value>) -> Result<usize, Failure> {
        details.into_iter().map(|detail| self.push_detail(detail)).sum()
    }

    /// Adds a detail, or merges it into the last one if it continues that one.
    fn push_detail(&mut self, detail: Value) -> Result<usize, Failure> {
        let Value::Object(detail) = detail else { return Ok(0) };
        let (size, is_full) = (retained_bytes(&detail), self.details.len() == MAX_DETAILS);
        let continues = |last: &Map<String, Value>| {
            let same = |key: &str| last.get(key) == detail.get(key);
            same("index") && same("type") && !detail.contains_key("data") && detail.contains_key("index")
        };
        match self.details.last_mut() {
            Some(Value::Object(last)) if continues(last) => merge_detail(last, detail),
            Some(_) | None if is_full => {
                let problem = format!("the answer has more than {MAX_DETAILS} reasoning details");
                return Err(incomplete_stream(&problem));
            }
            Some(_) | None => self.details.push(Value::Object(detail)),
        }
        Ok(size)
    }

    /// The state to send back with an answer that has calls. `extras` are the extra contents, by the number of their
    /// call.
    pub(super) fn finish(
        self,
        origin: Arc<AnswerOrigin>,
        extras: Vec<(usize, Value)>,
    ) -> Result<Option<Arc<OpaqueState>>, Failure> {
        let field = self.field.map(|field| json!({ "field": field }));
        let details = (!self.details.is_empty()).then(|| json!({ "reasoning_details": self.details }));
        let extras = extras.into_iter().map(|(n, extra)| json!({ "call": n, "extra_content": extra }));
        opaque_state(origin, field.into_iter().chain(details).chain(extras).collect())
    }
}

fn merge_detail(last: &mut Map<String, Value>, piece: Map<String, Value>) {
    for (key, value) in piece {
        match (last.get_mut(&key), value) {
            (Some(Value::String(text)), Value::String(more)) if STREAMED_FIELDS.contains(&key.as_str()) => {
                text.push_str(&more);
            }
            (Some(_), Value::Null) => {}
            (_, value) => drop(last.insert(key, value)),
        }
    }
}

/// The state to send back with an assistant message.
#[derive(Debug, Default)]
pub(super) struct EchoedFields<'a> {
    /// The name of the reasoning field, and its text.
    pub(super) reasoning: Option<(&'static str, &'a str)>,
    /// The value of `reasoning_details`.
    pub(super) details: Option<&'a Value>,
    extras: Vec<(u64, &'a Value)>,
}

impl<'a> EchoedFields<'a> {
    /// The state of this message for `origin`; empty without calls.
    pub(super) fn of(message: &'a AssistantMessage, origin: &AnswerOrigin) -> Self {
        let mut echoed = Self::default();
        if message.calls.is_empty() {
            return echoed;
        }
        for part in message.parts_of(origin) {
            let field_name = part.get("field").and_then(Value::as_str);
            let field = field_name.and_then(|name| REASONING_FIELDS.into_iter().find(|text| *text == name));
            echoed.reasoning = field.map(|field| (field, message.reasoning.as_str())).or(echoed.reasoning);
            echoed.details = part.get("reasoning_details").or(echoed.details);
            let call = part.get("call").and_then(Value::as_u64);
            echoed.extras.extend(call.zip(part.get("extra_content")));
        }
        echoed
    }

    /// True if there is no state.
    pub(super) const fn is_empty(&self) -> bool {
        self.reasoning.is_none() && self.details.is_none() && self.extras.is_empty()
    }

    /// The extra content of the call with this number.
    pub(super) fn extra(&self, call: usize) -> Option<&'a Value> {
        self.extras.iter().find(|(n, _)| usize::try_from(*n) == Ok(call)).map(|(_, extra)| *extra)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(details: Vec<Value>, expect: &[Value]) {
        let mut kept = EchoedState::default();
        kept.push_details(details).unwrap();
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
        let mut kept = EchoedState::default();
        assert!(kept.push_details(vec![deep]).unwrap() > 1_000);
        assert!(kept.push_details(vec![json!({}); MAX_DETAILS - 1]).unwrap() > 64_000);
        let failure = kept.push_details(vec![json!({})]).unwrap_err();
        assert_eq!(failure.message, "the answer has more than 1024 reasoning details");
    }
}
