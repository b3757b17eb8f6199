//! View of what watchers of a session get: its records, what follows from them, and deltas.

use hermod_actors::{
    model::{EventBody, EventStream, RunStatus, SessionEvent},
    port::FeedEntry,
};
use serde_json::{Map, Value, json};

use super::event::EventView;

/// An event as JSON: `{event, stream, session, run, seq, …of the event}`. Records have the fields of [`EventView`].
pub fn stream_event(event: &SessionEvent) -> serde_json::Result<Value> {
    let mut fields = Map::new();
    fields.insert("event".into(), json!(event.body.name()));
    fields.insert("stream".into(), json!(stream_name(event.body.stream())));
    fields.insert("session".into(), json!(event.session));
    fields.insert("run".into(), json!(event.run));
    fields.insert("seq".into(), json!(event.seq));
    if let Value::Object(own) = own_fields(event)? {
        fields.extend(own.into_iter().filter(|(name, _)| name != "seq"));
    }
    Ok(Value::Object(fields))
}

/// An entry of the feed as JSON, like a `record` of [`stream_event`]; one that cannot be read has `unreadable`.
pub fn feed_entry(entry: &FeedEntry) -> serde_json::Result<Value> {
    let mut fields = Map::new();
    let run = entry.record.as_ref().ok().and_then(|record| record.body.run());
    fields.insert("event".into(), json!(if entry.record.is_ok() { "record" } else { "unreadable" }));
    fields.insert("stream".into(), json!(stream_name(EventStream::Journal)));
    fields.insert("session".into(), json!(entry.session));
    fields.insert("run".into(), json!(run));
    fields.insert("seq".into(), json!(entry.seq));
    match &entry.record {
        Ok(record) => {
            if let Value::Object(own) = serde_json::to_value(EventView::new(entry.seq, record)?)? {
                fields.extend(own);
            }
        }
        Err(reason) => {
            fields.insert("reason".into(), json!(reason));
        }
    }
    Ok(Value::Object(fields))
}

fn own_fields(event: &SessionEvent) -> serde_json::Result<Value> {
    Ok(match &event.body {
        EventBody::Recorded { record } => serde_json::to_value(EventView::new(event.seq, record)?)?,
        EventBody::Status(status) => {
            let mut fields = json!({ "status": status.name() });
            let own = match status {
                RunStatus::Waiting { reason, until } => {
                    json!({ "reason": reason, "until": until.map(rfc3339) })
                }
                RunStatus::Parked { call, until } => json!({ "call": call, "until": rfc3339(*until) }),
                RunStatus::Ended(ended) => {
                    let reason = ended.to_string();
                    json!({ "outcome": ended.outcome, "reason": reason })
                }
                RunStatus::Accepted
                | RunStatus::Queued
                | RunStatus::Thinking
                | RunStatus::Compacting
                | RunStatus::Executing => json!({}),
            };
            if let (Value::Object(fields), Value::Object(own)) = (&mut fields, own) {
                fields.extend(own);
            }
            fields
        }
        EventBody::Lifecycle(stage) => json!({ "stage": stage.name() }),
        EventBody::Compaction(stage) => json!({ "stage": stage.name() }),
        EventBody::ThinkingStart { call, attempt }
        | EventBody::ThinkingEnd { call, attempt }
        | EventBody::Retry { call, attempt } => json!({ "call": call, "attempt": attempt }),
        EventBody::TextDelta { call, attempt, delta }
        | EventBody::ReasoningDelta { call, attempt, delta } => {
            json!({ "call": call, "attempt": attempt, "delta": delta })
        }
        EventBody::ToolCallStreamed { call, attempt, tool, arguments }
        | EventBody::ToolStart { call, attempt, tool, arguments } => {
            json!({ "call": call, "attempt": attempt, "tool": tool, "arguments": arguments })
        }
        EventBody::ToolCallParsed { call, tool, arguments } => {
            json!({ "call": call, "tool": tool, "arguments": arguments })
        }
        EventBody::ToolProgress { call, attempt, note } => {
            json!({ "call": call, "attempt": attempt, "note": note })
        }
        EventBody::ToolEnd { call, attempt, tool, status } => {
            json!({ "call": call, "attempt": attempt, "tool": tool, "status": status })
        }
        EventBody::IterationEnd { iteration } => json!({ "iteration": iteration }),
    })
}

fn rfc3339(at: hermod_actors::model::Timestamp) -> String {
    crate::clock::rfc3339(at)
}

const fn stream_name(stream: EventStream) -> &'static str {
    match stream {
        EventStream::Journal => "journal",
        EventStream::Lifecycle => "lifecycle",
        EventStream::Assistant => "assistant",
        EventStream::Tool => "tool",
        EventStream::Compaction => "compaction",
    }
}
