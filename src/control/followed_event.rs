//! The events of a followed session as they cross the socket: each record as it is stored, and all that is no record.

use hermod_actors::{
    model::{EventBody, RecordJson, RunId, Seq, SessionEvent, SessionId},
    port::{FeedCursor, FeedEntry},
};
use serde::{Deserialize, Serialize};

/// An event of a followed session, with the ids of its [`SessionEvent`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowedEvent {
    /// The session.
    pub session: SessionId,
    /// The run of the event; `None` if it concerns the session.
    pub run: Option<RunId>,
    /// The last record that a follower has seen completely after this event.
    pub seq: Seq,
    /// The content.
    #[serde(flatten)]
    pub content: FollowedContent,
}

/// The content of a [`FollowedEvent`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FollowedContent {
    /// A record, which is durable.
    Record {
        /// The record as it is stored.
        record: RecordJson,
    },
    /// Any other event.
    Other(EventBody),
}

impl FollowedEvent {
    /// The form of `event`.
    pub fn new(event: SessionEvent) -> serde_json::Result<Self> {
        let SessionEvent { session, run, seq, body } = event;
        let content = if let EventBody::Recorded { record } = &body {
            FollowedContent::Record { record: RecordJson::new(record)? }
        } else {
            FollowedContent::Other(body)
        };
        Ok(Self { session, run, seq, content })
    }
}

/// An entry of the feed of all sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FedRecord {
    /// The place in the feed, from which a follower goes on.
    pub cursor: FeedCursor,
    /// The session.
    pub session: SessionId,
    /// The number of the record in its session.
    pub seq: Seq,
    /// The record as it is stored, or why it cannot be read.
    pub record: Result<RecordJson, String>,
}

impl FedRecord {
    /// The form of `entry`.
    pub fn new(entry: &FeedEntry) -> serde_json::Result<Self> {
        let record = match &entry.record {
            Ok(record) => Ok(RecordJson::new(record)?),
            Err(reason) => Err(reason.clone()),
        };
        Ok(Self { cursor: entry.cursor, session: entry.session, seq: entry.seq, record })
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{
        CallId, CallStatus, CompactionStage, Lifecycle, Outcome, OutcomeDetail, RunStatus, Timestamp,
    };

    use super::*;

    const CALL: CallId = CallId { run: RunId::from_bits(1), iteration: 2, n: 0 };

    /// Checks that an event survives the socket.
    #[track_caller]
    fn check(body: EventBody) {
        let event = SessionEvent { session: SessionId::from_bits(2), run: None, seq: 3, body: body.clone() };
        let sent = serde_json::to_string(&FollowedEvent::new(event).unwrap()).unwrap();
        let read: FollowedEvent = serde_json::from_str(&sent).unwrap();
        assert_eq!((read.seq, read.content), (3, FollowedContent::Other(body)), "{sent}");
    }

    #[test]
    fn an_event_survives_the_socket() {
        let (call, attempt) = (CALL, 1);
        let (tool, arguments) = ("shell".into(), "{}".into());
        check(EventBody::TextDelta { call, attempt, delta: "d\n".into() });
        check(EventBody::ToolCallStreamed { call, attempt, tool, arguments });
        check(EventBody::ToolEnd { call, attempt, tool: "shell".into(), status: CallStatus::Error });
        check(EventBody::IterationEnd { iteration: 4 });
        for stage in [Lifecycle::Start, Lifecycle::Finishing, Lifecycle::End, Lifecycle::Error] {
            check(EventBody::Lifecycle(stage));
        }
        check(EventBody::Compaction(CompactionStage::Start));
        for status in [
            RunStatus::Accepted,
            RunStatus::Queued,
            RunStatus::Thinking,
            RunStatus::Compacting,
            RunStatus::Executing,
            RunStatus::Waiting { reason: "full".into(), until: Some(Timestamp(5)) },
            RunStatus::Parked { call, until: Timestamp(6) },
            RunStatus::Ended(OutcomeDetail { outcome: Outcome::Refused, cause: None }),
        ] {
            check(EventBody::Status(status));
        }
    }
}
