//! What targets read of a message: one JSON object, the same at each attempt.

use hermod_actors::model::{OutboxContent, OutboxMessage, rfc3339};
use serde_json::{Value, json};

/// The JSON of a message, in the form that Standard Webhooks recommends.
pub(super) fn payload(message: &OutboxMessage) -> Value {
    let OutboxMessage { id, target, session, run, created_at, content } = message;
    let common = json!({ "id": id, "target": target, "session": session, "run": run });
    let (kind, own) = match content {
        OutboxContent::Message { call, text } => ("message", json!({ "call": call, "text": text })),
        OutboxContent::Result { leg, ended, text, truncated } => {
            let outcome = ended.outcome.name();
            let own = json!({
                "leg": leg, "outcome": outcome, "reason": ended.to_string(), "text": text, "truncated": truncated
            });
            ("run.ended", own)
        }
    };
    let mut data = common;
    if let (Value::Object(data), Value::Object(own)) = (&mut data, own) {
        data.extend(own);
    }
    json!({ "type": kind, "timestamp": rfc3339(*created_at), "data": data })
}

/// The JSON of a message as one line, with its end.
pub(super) fn line(message: &OutboxMessage) -> String {
    format!("{}\n", payload(message))
}
