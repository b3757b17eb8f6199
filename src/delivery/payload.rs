//! What targets read of a message: one JSON object, the same at each attempt.

use hermod_actors::model::{Attachment, OutboxContent, OutboxMessage, rfc3339};
use serde_json::{Value, json};

/// The JSON of a message, in the form that Standard Webhooks recommends.
pub(super) fn payload(message: &OutboxMessage) -> Value {
    let OutboxMessage { id, target, session, run, created_at, content } = message;
    let common = json!({ "id": id, "target": target, "session": session, "run": run });
    let (kind, own) = match content {
        OutboxContent::Message { call, text, attachments } => {
            let mut own = json!({ "call": call, "text": text });
            if !attachments.is_empty() {
                let file = |file: &Attachment| json!({ "name": file.name, "bytes": file.artifact.bytes });
                own["attachments"] = attachments.iter().map(file).collect();
            }
            ("message", own)
        }
        OutboxContent::Result { leg, ended, text, truncated } => {
            let outcome = ended.outcome.name();
            let own = json!({
                "leg": leg, "outcome": outcome, "reason": ended.to_string(), "text": text, "truncated": truncated
            });
            ("run.ended", own)
        }
        OutboxContent::Notice { text } => ("notice", json!({ "text": text })),
    };
    let mut data = common;
    if let (Value::Object(data), Value::Object(own)) = (&mut data, own) {
        data.extend(own);
    }
    json!({ "type": kind, "timestamp": rfc3339(*created_at), "data": data })
}

/// The JSON of a message, where each of its files has a further field.
pub(super) fn payload_with_files<T: Into<Value>>(
    message: &OutboxMessage,
    field: &str,
    values: impl IntoIterator<Item = T>,
) -> Value {
    let mut payload = payload(message);
    // An index that is assigned to would add the field.
    if let Some(files) = payload.pointer_mut("/data/attachments").and_then(Value::as_array_mut) {
        for (file, value) in files.iter_mut().zip(values) {
            file[field] = value.into();
        }
    }
    payload
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{CallId, RunId, SessionId, Timestamp};

    use super::*;

    #[test]
    fn a_message_without_files_has_no_field_for_them() {
        let message = OutboxMessage {
            id: "msg_1".into(),
            target: "ops".into(),
            run: RunId::from_bits(1),
            session: SessionId::from_bits(2),
            created_at: Timestamp(0),
            content: OutboxContent::Message {
                call: CallId { run: RunId::from_bits(1), iteration: 1, n: 1 },
                text: "well".into(),
                attachments: [].into(),
            },
        };
        let payload = payload_with_files(&message, "content", ["a"]);
        assert_eq!(payload["data"].get("attachments"), None, "{payload}");
    }
}
