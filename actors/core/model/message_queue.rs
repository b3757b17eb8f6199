//! Messages to a session: how they queue, the records of what becomes of them, and their index row. A message's id is
//! the id of the run that it becomes, unless it joins another run or is dropped.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{Hash, Image, Outcome, RunId, RunRow, RunState, SessionId, Timestamp};

/// Most bytes of the texts that one run collects: as many as one message may have.
pub const MAX_COLLECTED_BYTES: usize = 256 << 10;
/// Most images that one run collects: as many as one task may have.
pub const MAX_COLLECTED_IMAGES: usize = 20;

/// What happens to a message while a run of its session is under way or queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum QueueMode {
    /// The run under way reads it before its next model call.
    #[default]
    Steer,
    /// It becomes a run of its own behind the others.
    Followup,
    /// Messages become one run together, after a time without another message.
    Collect,
    /// The run under way is stopped, queued messages are dropped, and it becomes the next run.
    Interrupt,
}

impl DropPolicy {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Summarize, Self::Old, Self::New];

    /// The policy's name, as in records and requests.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl QueueMode {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::Steer, Self::Followup, Self::Collect, Self::Interrupt];

    /// The mode's name, as in records and requests.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Which message is dropped when too many wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DropPolicy {
    /// The oldest. The model gets its beginning with what it reads next.
    #[default]
    Summarize,
    /// The oldest.
    Old,
    /// The one that arrives.
    New,
}

/// How the messages of a session queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Queueing {
    /// The mode.
    pub mode: QueueMode,
    /// Most messages that may wait; at least 1.
    pub cap: u32,
    /// What is dropped at the cap.
    pub drop: DropPolicy,
    /// Milliseconds without another message after which collected messages become a run.
    pub collect_ms: u64,
}

impl Default for Queueing {
    fn default() -> Self {
        Self { mode: QueueMode::default(), cap: 20, drop: DropPolicy::default(), collect_ms: 500 }
    }
}

/// How the messages of one session queue, as far as that is set for the session: fields of
/// [`Body::QueueChanged`](super::Body::QueueChanged). What is absent is as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct QueueOverrides {
    /// The mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<QueueMode>,
    /// Most messages that may wait; at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<u32>,
    /// What is dropped at the cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop: Option<DropPolicy>,
    /// Milliseconds without another message after which collected messages become a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collect_ms: Option<u64>,
}

impl QueueOverrides {
    /// How messages queue, where this is what is configured.
    #[must_use]
    pub fn apply(self, configured: Queueing) -> Queueing {
        Queueing {
            mode: self.mode.unwrap_or(configured.mode),
            cap: self.cap.unwrap_or(configured.cap),
            drop: self.drop.unwrap_or(configured.drop),
            collect_ms: self.collect_ms.unwrap_or(configured.collect_ms),
        }
    }
}

/// Fields of [`Body::MessageCollected`](super::Body::MessageCollected).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageCollected {
    /// The run that the message joins; it has not begun.
    pub run: RunId,
    /// The message.
    pub message: RunId,
    /// The message's text.
    pub text: Arc<str>,
    /// Its images.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub images: Arc<[Image]>,
    /// The new end of the time in which the run collects messages.
    pub until: Timestamp,
    /// The hash of the client's whole request, with which a repeat by its idempotency key is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_hash: Option<Hash>,
}

/// Fields of [`Body::MessageDropped`](super::Body::MessageDropped).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageDropped {
    /// The message.
    pub message: RunId,
    /// The run in which it waited; absent for a message that was not queued at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// Why it was dropped.
    pub reason: DropReason,
    /// The beginning of its text, which the model gets with what it reads next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excerpt: Option<Arc<str>>,
    /// The hash of the client's whole request, with which a repeat by its idempotency key is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_hash: Option<Hash>,
}

/// Why a message was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum DropReason {
    /// As many messages waited as may wait.
    QueueFull {
        /// Most messages that may wait.
        cap: u32,
    },
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueFull { cap } => write!(f, "queue_full: {cap} messages waited"),
        }
    }
}

/// The index row of a message that did not become a run of its own, or was dropped. It follows the message until a model
/// can read it; from then on its fate is that of its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageRow {
    /// The message.
    pub id: RunId,
    /// Its session.
    pub session: SessionId,
    /// Where it is.
    #[serde(flatten)]
    pub place: MessagePlace,
    /// The hash of the client's whole request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_hash: Option<Hash>,
}

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "place", rename_all = "snake_case")]
pub enum MessagePlace {
    /// It waits for this run to read it. If the run ends before that, the session's next run reads it.
    Queued {
        /// The run.
        run: RunId,
    },
    /// It is part of what this run reads.
    Injected {
        /// The run.
        run: RunId,
    },
    /// It was dropped.
    Dropped {
        /// The run in which it waited.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<RunId>,
        /// Why.
        reason: DropReason,
    },
}

impl MessagePlace {
    /// The run in which the message is or was.
    pub const fn run(&self) -> Option<RunId> {
        match self {
            Self::Queued { run } | Self::Injected { run } => Some(*run),
            Self::Dropped { run, .. } => *run,
        }
    }
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum MessageState {
    /// It waits: no model has read it.
    Queued,
    /// A run that has not ended reads it.
    Injected,
    /// A run that has read it has completed.
    Answered,
    /// It was dropped, or its run ended without completing.
    Dropped,
}

/// What became of a message, where, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageFate {
    /// The state.
    pub state: MessageState,
    /// The run in which the message is or was.
    pub run: Option<RunId>,
    /// Why it was dropped, or why it still waits.
    pub reason: Option<String>,
}

impl MessageFate {
    /// What the rows tell: that of the message, if it has one, and that of the run in which it is.
    pub fn of(message: Option<&MessageRow>, run: Option<&RunRow>) -> Self {
        let place = message.map(|row| row.place);
        let id = place.map_or_else(|| run.map(|run| run.id), |place| place.run());
        let fate = |state, reason: Option<String>| Self { state, run: id, reason };
        let ended = run.filter(|run| run.state == RunState::Ended);
        let why =
            |run: &RunRow| run.ended.as_ref().map_or_else(|| "it ended".to_owned(), ToString::to_string);
        match (place, ended) {
            (Some(MessagePlace::Dropped { reason, .. }), _) => {
                fate(MessageState::Dropped, Some(reason.to_string()))
            }
            (Some(MessagePlace::Queued { .. }), Some(run)) if run.started_at.is_none() => {
                fate(MessageState::Dropped, Some(format!("its run ended before it began: {}", why(run))))
            }
            (Some(MessagePlace::Queued { .. }), Some(run)) => {
                let reason = format!("its run ended as {}; the next run of the session reads it", why(run));
                fate(MessageState::Queued, Some(reason))
            }
            (Some(MessagePlace::Queued { .. }), None) => fate(MessageState::Queued, None),
            (Some(MessagePlace::Injected { .. }) | None, Some(run)) => {
                match run.ended.as_ref().map(|ended| ended.outcome) {
                    Some(Outcome::Completed) => fate(MessageState::Answered, None),
                    Some(_) | None => fate(MessageState::Dropped, Some(why(run))),
                }
            }
            (Some(MessagePlace::Injected { .. }) | None, None) => match run.map(|run| run.state) {
                Some(RunState::Queued) => fate(MessageState::Queued, None),
                Some(RunState::Running | RunState::Parked | RunState::Ended) | None => {
                    fate(MessageState::Injected, None)
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{OutcomeCause, OutcomeDetail, StopReason};

    #[test]
    fn a_message_shares_the_fate_of_the_run_that_reads_it() {
        let (id, own, session) = (RunId::from_bits(7), RunId::from_bits(1), SessionId::from_bits(2));
        let check = |place: Option<MessagePlace>, run: Option<(RunState, Option<Outcome>, bool)>, expect| {
            let message = place.map(|place| MessageRow { id, session, place, request_hash: None });
            let run = run.map(|(state, outcome, has_begun)| RunRow {
                state,
                started_at: has_begun.then_some(Timestamp(1)),
                ended: outcome.map(|outcome| {
                    OutcomeDetail::with_cause(outcome, OutcomeCause::Stop { reason: StopReason::Command })
                }),
                ..RunRow::new(own, session, Timestamp(0), 1)
            });
            let fate = MessageFate::of(message.as_ref(), run.as_ref());
            assert_eq!((fate.state, fate.reason.as_deref()), expect, "{place:?} {run:?}");
        };
        let (queued, injected) = (MessagePlace::Queued { run: own }, MessagePlace::Injected { run: own });
        let running = Some((RunState::Running, None, true));
        let completed = Some((RunState::Ended, Some(Outcome::Completed), true));
        let stopped = Some((RunState::Ended, Some(Outcome::Stopped), true));
        let never = Some((RunState::Ended, Some(Outcome::Stopped), false));
        check(None, Some((RunState::Queued, None, false)), (MessageState::Queued, None));
        check(None, running, (MessageState::Injected, None));
        check(None, completed, (MessageState::Answered, None));
        check(None, stopped, (MessageState::Dropped, Some("stopped (by command)")));
        check(Some(queued), running, (MessageState::Queued, None));
        check(
            Some(queued),
            stopped,
            (
                MessageState::Queued,
                Some("its run ended as stopped (by command); the next run of the session reads it"),
            ),
        );
        check(
            Some(queued),
            never,
            (MessageState::Dropped, Some("its run ended before it began: stopped (by command)")),
        );
        check(Some(injected), running, (MessageState::Injected, None));
        check(Some(injected), completed, (MessageState::Answered, None));
        check(Some(injected), stopped, (MessageState::Dropped, Some("stopped (by command)")));
        let dropped = MessagePlace::Dropped { run: Some(own), reason: DropReason::QueueFull { cap: 3 } };
        check(Some(dropped), completed, (MessageState::Dropped, Some("queue_full: 3 messages waited")));
    }
}
