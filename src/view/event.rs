//! View of a journal's record, with money in dollars. The events that watchers get are in `actors/core/model/event.rs`.

use hermod_actors::model::{Record, Seq, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::encoding::{self, in_dollars};

/// The fields of a record that hold stored amounts. Texts of vendors and models stay unchanged.
const WITH_AMOUNTS: [&str; 6] = ["spec", "budget", "reserved", "booked", "refusal", "usd"];

/// A record: `{seq, at, active_ms, kind, …fields of the body}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventView {
    /// The record's number in its session, from 1.
    pub seq: Seq,
    /// When the record was decided.
    #[serde(with = "encoding::time")]
    pub at: Timestamp,
    /// Active time of the session until then, in milliseconds.
    pub active_ms: u64,
    /// The name of the record's kind.
    pub kind: String,
    /// The fields of the record's body, with money in dollars.
    #[serde(flatten)]
    pub body: Map<String, Value>,
}

impl EventView {
    /// A stored record.
    pub fn new(seq: Seq, record: &Record) -> serde_json::Result<Self> {
        let body = match record.body.to_json()? {
            Value::Object(fields) => fields.into_iter().map(with_dollars).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Map::new()
            }
        };
        let kind = record.body.kind().name().to_owned();
        Ok(Self { seq, at: record.at, active_ms: record.active_ms, kind, body })
    }
}

fn with_dollars((name, field): (String, Value)) -> (String, Value) {
    if !WITH_AMOUNTS.contains(&name.as_str()) {
        return (name, field);
    }
    let converted = in_dollars(json!({ &name: field }))[&name].take();
    (name, converted)
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{Body, RunId, RunStopping, StopReason};

    use super::*;

    #[test]
    fn a_record_shows_all_that_it_holds() {
        let body = Body::RunStopping(RunStopping::stop(RunId::from_bits(1), StopReason::Signal));
        let event = EventView::new(7, &Record { at: Timestamp(0), active_ms: 4, body }).unwrap();
        let written = json!({
            "seq": 7, "at": "1970-01-01T00:00:00.000Z", "active_ms": 4, "kind": "run.stopping",
            "run": "00000000000000000000000001", "outcome": "stopped", "cause": "stop", "reason": "signal",
        });
        assert_eq!(json!(event).to_string(), written.to_string());
        assert_eq!(serde_json::from_value::<EventView>(written).unwrap(), event);
    }

    #[test]
    fn amounts_are_in_dollars_and_texts_of_vendors_unchanged() {
        let check = |name: &str, stored: Value, expect: Value| {
            assert_eq!(with_dollars((name.to_owned(), stored)), (name.to_owned(), expect));
        };
        let amounts = |usd: Value| json!({ "tokens": 5, "usd": usd });
        for name in ["budget", "reserved", "booked"] {
            check(name, amounts(json!(2_500_000_000_u64)), amounts(json!(2.5)));
        }
        check("usd", json!(1_000_000_000_u64), json!(1.0));
        check("message", json!({ "opaque": { "usd": 5 } }), json!({ "opaque": { "usd": 5 } }));
    }
}
