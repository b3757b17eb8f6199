//! The events of a followed run as they cross the socket: each record as it is stored, and those events from which a
//! display lives. A record's other events follow from it.

use std::sync::Arc;

use hermod_actors::model::{
    Attempt, CallId, CallStatus, EventBody, OutcomeDetail, RecordJson, RunStatus, Seq, SessionEvent,
    Timestamp,
};
use serde::{Deserialize, Serialize};

/// An event of a followed run. The meaning of each is that of the event of the same name in [`EventBody`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs, reason = "EventBody documents them")]
pub enum FollowedEvent {
    Record { seq: Seq, record: RecordJson },
    ThinkingStart { call: CallId, attempt: Attempt },
    ThinkingEnd { call: CallId, attempt: Attempt },
    TextDelta { call: CallId, attempt: Attempt, delta: Arc<str> },
    ReasoningDelta { call: CallId, attempt: Attempt, delta: Arc<str> },
    ToolCallParsed { call: CallId, tool: Arc<str>, arguments: Arc<str> },
    ToolStart { call: CallId, attempt: Attempt, tool: Arc<str>, arguments: Arc<str> },
    ToolProgress { call: CallId, attempt: Attempt, note: Arc<str> },
    ToolEnd { call: CallId, attempt: Attempt, tool: Arc<str>, status: CallStatus },
    Retry { call: CallId, attempt: Attempt },
    Waiting { reason: Arc<str>, until: Option<Timestamp> },
    Parked { call: CallId, until: Timestamp },
    Ended { ended: OutcomeDetail },
}

impl FollowedEvent {
    /// The form of `event`; `None` if no display needs it.
    pub fn new(event: SessionEvent) -> serde_json::Result<Option<Self>> {
        Ok(Some(match event.body {
            EventBody::Recorded { record } => {
                Self::Record { seq: event.seq, record: RecordJson::new(&record)? }
            }
            EventBody::ThinkingStart { call, attempt } => Self::ThinkingStart { call, attempt },
            EventBody::ThinkingEnd { call, attempt } => Self::ThinkingEnd { call, attempt },
            EventBody::TextDelta { call, attempt, delta } => Self::TextDelta { call, attempt, delta },
            EventBody::ReasoningDelta { call, attempt, delta } => {
                Self::ReasoningDelta { call, attempt, delta }
            }
            EventBody::ToolCallParsed { call, tool, arguments } => {
                Self::ToolCallParsed { call, tool, arguments }
            }
            EventBody::ToolStart { call, attempt, tool, arguments } => {
                Self::ToolStart { call, attempt, tool, arguments }
            }
            EventBody::ToolProgress { call, attempt, note } => Self::ToolProgress { call, attempt, note },
            EventBody::ToolEnd { call, attempt, tool, status } => {
                Self::ToolEnd { call, attempt, tool, status }
            }
            EventBody::Retry { call, attempt } => Self::Retry { call, attempt },
            EventBody::Status(RunStatus::Waiting { reason, until }) => Self::Waiting { reason, until },
            EventBody::Status(RunStatus::Parked { call, until }) => Self::Parked { call, until },
            EventBody::Status(RunStatus::Ended(ended)) => Self::Ended { ended },
            EventBody::Status(_)
            | EventBody::Lifecycle(_)
            | EventBody::Compaction(_)
            | EventBody::ToolCallStreamed { .. }
            | EventBody::IterationEnd { .. } => return Ok(None),
        }))
    }

    /// The event for a display; `None` for a record.
    pub fn body(self) -> Option<EventBody> {
        Some(match self {
            Self::Record { .. } => return None,
            Self::ThinkingStart { call, attempt } => EventBody::ThinkingStart { call, attempt },
            Self::ThinkingEnd { call, attempt } => EventBody::ThinkingEnd { call, attempt },
            Self::TextDelta { call, attempt, delta } => EventBody::TextDelta { call, attempt, delta },
            Self::ReasoningDelta { call, attempt, delta } => {
                EventBody::ReasoningDelta { call, attempt, delta }
            }
            Self::ToolCallParsed { call, tool, arguments } => {
                EventBody::ToolCallParsed { call, tool, arguments }
            }
            Self::ToolStart { call, attempt, tool, arguments } => {
                EventBody::ToolStart { call, attempt, tool, arguments }
            }
            Self::ToolProgress { call, attempt, note } => EventBody::ToolProgress { call, attempt, note },
            Self::ToolEnd { call, attempt, tool, status } => {
                EventBody::ToolEnd { call, attempt, tool, status }
            }
            Self::Retry { call, attempt } => EventBody::Retry { call, attempt },
            Self::Waiting { reason, until } => EventBody::Status(RunStatus::Waiting { reason, until }),
            Self::Parked { call, until } => EventBody::Status(RunStatus::Parked { call, until }),
            Self::Ended { ended } => EventBody::Status(RunStatus::Ended(ended)),
        })
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{Outcome, RunId, SessionId};
    use serde_json::json;

    use super::*;

    const CALL: CallId = CallId { run: RunId::from_bits(1), iteration: 2, n: 0 };

    /// Checks that an event survives the socket.
    #[track_caller]
    fn check(body: EventBody) {
        let event = SessionEvent { session: SessionId::from_bits(2), run: None, seq: 3, body: body.clone() };
        let sent = serde_json::to_string(&FollowedEvent::new(event).unwrap()).unwrap();
        let read: FollowedEvent = serde_json::from_str(&sent).unwrap();
        assert_eq!(read.body(), Some(body));
    }

    #[test]
    fn an_event_survives_the_socket() {
        let (call, attempt, delta) = (CALL, 1, Arc::from("d\n"));
        check(EventBody::TextDelta { call, attempt, delta });
        check(EventBody::ToolEnd { call, attempt, tool: "shell".into(), status: CallStatus::Error });
        check(EventBody::Status(RunStatus::Waiting { reason: "full".into(), until: Some(Timestamp(5)) }));
        check(EventBody::Status(RunStatus::Ended(OutcomeDetail { outcome: Outcome::Refused, cause: None })));
    }

    #[test]
    fn the_name_of_an_event_is_its_tag() {
        let event = FollowedEvent::Retry { call: CALL, attempt: 2 };
        assert_eq!(json!(event)["event"], "retry");
    }
}
