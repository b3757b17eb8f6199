//! View of what watchers of a session get: its records, what follows from them, and deltas.

use hermod_actors::{
    model::{EventBody, EventStream, Record, RunId, RunStatus, Seq, SessionEvent, SessionId},
    port::FeedEntry,
};
use serde_json::{Map, Value, json};

use super::event::EventView;

/// The ids of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventIds {
    /// The session.
    pub session: SessionId,
    /// The run; `None` if the event concerns the session.
    pub run: Option<RunId>,
    /// The last record that a watcher has seen completely after the event.
    pub seq: Seq,
}

/// An event as JSON: `{event, stream, session, run, seq, …of the event}`. Records have the fields of [`EventView`].
pub fn stream_event(event: &SessionEvent) -> serde_json::Result<Value> {
    let ids = EventIds { session: event.session, run: event.run, seq: event.seq };
    if let EventBody::Recorded { record } = &event.body {
        return record_event(ids, Ok(record));
    }
    Ok(derived_event(ids, &event.body))
}

/// An entry of the feed as JSON, as of [`record_event`].
pub fn feed_entry(entry: &FeedEntry) -> serde_json::Result<Value> {
    let run = entry.record.as_ref().ok().and_then(|record| record.body.run());
    let ids = EventIds { session: entry.session, run, seq: entry.seq };
    record_event(ids, entry.record.as_deref().map_err(String::as_str))
}

/// A record as JSON, as of [`stream_event`]; one that cannot be read is an event `unreadable` with its `reason`.
pub fn record_event(ids: EventIds, record: Result<&Record, &str>) -> serde_json::Result<Value> {
    let own = match record {
        Ok(record) => serde_json::to_value(EventView::new(ids.seq, record)?)?,
        Err(reason) => json!({ "reason": reason }),
    };
    let name = if record.is_ok() { "record" } else { "unreadable" };
    Ok(event_of((name, EventStream::Journal), ids, own))
}

/// An event that is no record as JSON, as of [`stream_event`].
pub fn derived_event(ids: EventIds, body: &EventBody) -> Value {
    event_of((body.name(), body.stream()), ids, own_fields(body))
}

fn event_of((name, stream): (&str, EventStream), ids: EventIds, own: Value) -> Value {
    let mut fields = Map::new();
    fields.insert("event".into(), json!(name));
    fields.insert("stream".into(), json!(stream_name(stream)));
    fields.insert("session".into(), json!(ids.session));
    fields.insert("run".into(), json!(ids.run));
    fields.insert("seq".into(), json!(ids.seq));
    if let Value::Object(own) = own {
        fields.extend(own.into_iter().filter(|(name, _)| name != "seq"));
    }
    Value::Object(fields)
}

fn own_fields(body: &EventBody) -> Value {
    match body {
        // Its fields are those of the record, of `record_event`.
        EventBody::Recorded { .. } => Value::Null,
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
    }
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
