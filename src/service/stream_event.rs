//! An event of a stream as text: the server-sent event, and the JSON in it that other transports frame themselves.

use std::fmt;

use axum::body::Bytes;
use hermod_actors::{
    SharedEntry, SharedEvent,
    model::{EventBody, Seq},
    port::FeedCursor,
};
use serde_json::{Value, json};

use crate::view::{feed_entry, stream_event};

/// What is between the JSON of an event and what precedes it.
const DATA: &str = "\ndata: ";

/// An event of a stream.
#[derive(Debug)]
pub(super) enum StreamEvent {
    Encoded(EncodedEvent),
    /// An event `chat` of OpenClaw, for WebSockets alone.
    Chat(Value),
    /// A failure, after which nothing follows.
    Failed(String),
}

/// An event, encoded once for all that read it.
#[derive(Debug)]
pub(super) struct EncodedEvent {
    /// The server-sent event. Its data is one line of JSON.
    text: Bytes,
    id: Option<EventId>,
}

/// Where a stream resumes after an event; only records have one.
#[derive(Debug, Clone, Copy)]
enum EventId {
    /// The number of the record in its session.
    Seq(Seq),
    /// The place in the feed.
    Cursor(FeedCursor),
}

impl StreamEvent {
    pub(super) fn failed(reason: impl ToString) -> Self {
        Self::Failed(reason.to_string())
    }

    /// The event of a session.
    pub(super) fn of_session(event: &SharedEvent) -> Self {
        let EventBody::Recorded { .. } = &event.event().body else {
            return Self::new(
                None,
                event.encoded(|event| encode(event.body.name(), None, stream_event(event))),
            );
        };
        let id = EventId::Seq(event.event().seq);
        let text = event.encoded(|event| encode(event.body.name(), Some(id), stream_event(event)));
        Self::new(Some(id), text)
    }

    /// A piece of a reply. Only the last one of a record has an id.
    pub(super) fn of_reply(name: &str, id: Option<Seq>, piece: Value) -> Self {
        let id = id.map(EventId::Seq);
        Self::new(id, encode(name, id, Ok(piece)))
    }

    /// The event of an entry of the feed.
    pub(super) fn of_entry(entry: &SharedEntry) -> Self {
        let id = EventId::Cursor(entry.entry().cursor);
        let name = if entry.entry().record.is_ok() { "record" } else { "unreadable" };
        Self::new(Some(id), entry.encoded(|entry| encode(name, Some(id), feed_entry(entry))))
    }

    fn new(id: Option<EventId>, text: serde_json::Result<Bytes>) -> Self {
        text.map_or_else(Self::failed, |text| Self::Encoded(EncodedEvent { text, id }))
    }

    /// The event as a server-sent one.
    pub(super) fn into_text(self) -> Bytes {
        match self {
            Self::Encoded(event) => event.text,
            Self::Chat(payload) => format!("event: chat{DATA}{payload}\n\n").into(),
            Self::Failed(reason) => {
                let lines = reason.lines().map(|line| format!("data: {line}\n"));
                format!("event: error\n{}\n", lines.collect::<String>()).into()
            }
        }
    }

    /// The parameters of a message that carries the event to a subscription, as JSON.
    pub(super) fn subscribed(&self, subscription: &str) -> String {
        let subscription = Value::from(subscription);
        match self {
            Self::Encoded(event) => event.subscribed(&subscription),
            Self::Chat(payload) => json!({ "subscription": subscription, "event": payload }).to_string(),
            Self::Failed(reason) => json!({ "subscription": subscription, "event": reason }).to_string(),
        }
    }
}

impl EncodedEvent {
    fn subscribed(&self, subscription: &Value) -> String {
        let json = self.json();
        let mut params = String::with_capacity(json.len() + 80);
        params.extend([r#"{"subscription":"#, &subscription.to_string(), r#","event":"#, json]);
        if let Some(id) = &self.id {
            params.extend([r#","id":""#, &id.to_string(), r#"""#]);
        }
        params.push('}');
        params
    }

    /// The event's object.
    fn json(&self) -> &str {
        // It was made of texts.
        let text = std::str::from_utf8(&self.text).unwrap_or_default();
        text.split_once(DATA).map_or("null", |(_, json)| json.trim_end())
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seq(seq) => seq.fmt(to),
            Self::Cursor(cursor) => cursor.fmt(to),
        }
    }
}

fn encode(name: &str, id: Option<EventId>, event: serde_json::Result<Value>) -> serde_json::Result<Bytes> {
    let event = event?;
    let mut text = format!("event: {name}");
    if let Some(id) = id {
        text.extend(["\nid: ", &id.to_string()]);
    }
    text.extend([DATA, &event.to_string(), "\n\n"]);
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use hermod_actors::{model::SessionId, port::FeedEntry};

    use super::*;

    #[test]
    fn readers_of_an_entry_send_the_same_bytes() {
        let (cursor, record) = (FeedCursor { position: 5, records: 1 }, Err("damaged\nrow".to_owned()));
        let entry = FeedEntry { cursor, session: SessionId::from_bits(1), seq: 7, record };
        let expect = feed_entry(&entry).unwrap();
        let shared = SharedEntry::from(entry);
        let texts = [(); 2].map(|()| StreamEvent::of_entry(&shared).into_text());
        assert_eq!(texts[0].as_ptr(), texts[1].as_ptr());
        assert_eq!(texts[0], format!("event: unreadable\nid: 5.1\ndata: {expect}\n\n"));
        let params: Value = serde_json::from_str(&StreamEvent::of_entry(&shared).subscribed("1")).unwrap();
        assert_eq!(params, json!({ "subscription": "1", "event": expect, "id": "5.1" }));
    }

    #[test]
    fn a_failure_is_a_text() {
        let failed = || StreamEvent::failed("a\nb");
        assert_eq!(failed().into_text(), "event: error\ndata: a\ndata: b\n\n");
        let params: Value = serde_json::from_str(&failed().subscribed("1")).unwrap();
        assert_eq!(params, json!({ "subscription": "1", "event": "a\nb" }));
    }
}
