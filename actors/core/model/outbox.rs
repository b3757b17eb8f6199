//! The outbox: what the process owes to targets outside, such as a webhook. A message is written in the append that
//! decides it, and stays pending until its target has taken it or it is dead.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{ArtifactName, Attachment, CallId, OutcomeDetail, RunId, SessionId, Timestamp};

/// Most bytes of a text in the outbox. A longer answer is truncated.
pub const MAX_OUTBOX_TEXT_BYTES: usize = 64 * 1024;

/// A message to a target. Its id is derived from what has caused it, so a repeated decision makes the same one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxMessage {
    /// Its id, unique in the store. It has no full stop: receivers sign and split at full stops.
    pub id: Arc<str>,
    /// The configured name of its target.
    pub target: Arc<str>,
    /// The session that has decided it.
    pub session: SessionId,
    /// The run that it is about.
    pub run: RunId,
    /// The time of the decision.
    pub created_at: Timestamp,
    /// What it says.
    pub content: OutboxContent,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OutboxContent {
    /// The text of a call of the tool `message`.
    Message {
        /// The call.
        call: CallId,
        /// The text, not empty.
        text: Arc<str>,
        /// The files that go with it; artifacts of the session.
        #[serde(default, skip_serializing_if = "super::is_default")]
        attachments: Arc<[Attachment]>,
    },
    /// The end of a run.
    Result {
        /// The number of the leg that has ended, from 1.
        leg: u32,
        /// Its outcome and cause.
        ended: Box<OutcomeDetail>,
        /// The last text of the run; empty if it has none.
        text: Arc<str>,
        /// Whether the text is only the beginning.
        #[serde(default, skip_serializing_if = "super::is_default")]
        truncated: bool,
    },
    /// A notice of the runtime, such as that a schedule was paused. Its run is the last one that has led to it.
    Notice {
        /// The text, not empty.
        text: Arc<str>,
    },
}

impl OutboxMessage {
    /// The id of the notice that a schedule was paused after this run.
    pub fn id_of_pause(run: RunId, target: &str) -> Arc<str> {
        format!("pause_{run}-{target}").into()
    }

    /// The id of the message of a call.
    pub fn id_of_call(call: CallId) -> Arc<str> {
        format!("msg_{}-{}-{}", call.run, call.iteration, call.n).into()
    }

    /// The id of the result of a leg of a run for a target.
    pub fn id_of_result(run: RunId, leg: u32, target: &str) -> Arc<str> {
        format!("res_{run}-{leg}-{target}").into()
    }

    /// The text of the content.
    pub const fn text(&self) -> &Arc<str> {
        match &self.content {
            OutboxContent::Message { text, .. }
            | OutboxContent::Result { text, .. }
            | OutboxContent::Notice { text } => text,
        }
    }
}

impl OutboxMessage {
    /// The files that go with it.
    pub fn attachments(&self) -> &[Attachment] {
        match &self.content {
            OutboxContent::Message { attachments, .. } => attachments,
            OutboxContent::Result { .. } | OutboxContent::Notice { .. } => &[],
        }
    }

    /// The artifacts of its files, each with its name; `None` for one that no artifact can have.
    pub fn artifacts(&self) -> impl Iterator<Item = (&Attachment, Option<ArtifactName>)> {
        let name =
            |attachment: &Attachment| ArtifactName::from_handle(self.session, &attachment.artifact.handle);
        self.attachments().iter().map(move |attachment| (attachment, name(attachment)))
    }
}

/// Whether a message has reached its target.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum DeliveryState {
    /// It waits for its next attempt.
    Pending,
    /// Its target has taken it.
    Delivered,
    /// It was given up, and waits for a person.
    Dead,
}

/// A message with the state of its delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// The message.
    pub message: OutboxMessage,
    /// Its state.
    pub state: DeliveryState,
    /// Attempts that have ended, since its decision or its last retry by a person.
    pub attempts: u32,
    /// The time since which attempts count: its decision, or its last retry by a person.
    pub since: Timestamp,
    /// The time before which it is not tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Why the last attempt has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<str>>,
    /// The time of its delivery or its death.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

impl Delivery {
    /// A message that was never tried.
    pub fn new(message: OutboxMessage) -> Self {
        let since = message.created_at;
        Self {
            message,
            state: DeliveryState::Pending,
            attempts: 0,
            since,
            next_at: None,
            error: None,
            ended_at: None,
        }
    }

    /// The dead message as one that was never tried, from this time on.
    #[must_use]
    pub fn retried(self, since: Timestamp) -> Self {
        Self { since, ..Self::new(self.message) }
    }
}

/// A delivery and its number in the store, which grows with the order of the decisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDelivery {
    /// Unique in the store; a retry by a person gives a new one.
    pub number: u64,
    /// The delivery.
    pub delivery: Delivery,
}

/// Which deliveries a read wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryQuery {
    /// Those in this state.
    pub state: DeliveryState,
    /// Those for this target alone.
    pub target: Option<Arc<str>>,
    /// Those for other targets than these.
    pub except: Option<Arc<BTreeSet<Arc<str>>>>,
    /// Those of this run alone.
    pub run: Option<RunId>,
    /// The one with this id alone.
    pub id: Option<Arc<str>>,
    /// Most of them: of pending ones the oldest, of others the newest.
    pub max: usize,
}

impl DeliveryQuery {
    /// All deliveries in a state, at most `max`.
    pub const fn of_state(state: DeliveryState, max: usize) -> Self {
        Self { state, target: None, except: None, run: None, id: None, max }
    }

    /// Whether messages for this target are wanted.
    pub fn wants_target(&self, target: &str) -> bool {
        self.target.as_ref().is_none_or(|wanted| **wanted == *target)
            && self.except.as_ref().is_none_or(|except| !except.contains(target))
    }

    /// Whether this message is wanted, whatever its state is.
    pub fn wants(&self, message: &OutboxMessage) -> bool {
        self.wants_target(&message.target)
            && self.run.is_none_or(|run| run == message.run)
            && self.id.as_ref().is_none_or(|id| *id == message.id)
    }
}
