//! Records of the journal: the kinds, their codes and names, and the bodies that belong to sessions and runs.
//! `codec.rs` has the stored form, `record_class.rs` what a kind means to readers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    AgentName, ApprovalAnswered, ApprovalRequested, Artifact, AsideAnswered, Attachment, BootId,
    BudgetRefusal, CallAdmitted, CallEnded, CallLost, CallStarted, ChildEnded, ContextCompacted, Hash, Hold,
    Image, ImportedHistory, Incarnation, LimitIncrease, MemorySaved, MessageCollected, MessageContent,
    MessageDropped, ModelAnswered, ModelFailed, ModelLate, ModelStarted, ModelWaiting, OccurrenceId,
    OutcomeDetail, ParentRef, QueueMode, QueueOverrides, Queueing, RunBegun, RunId, RunSpec, RunVerified,
    StopReason, SummaryStarted, Timestamp, TodoChanged, Usage,
};

/// A journal record: append-only, versioned, numbered per session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Wall-clock time, for people and due times.
    pub at: Timestamp,
    /// Active time of the session in milliseconds, for limits of time.
    pub active_ms: u64,
    /// The event and its fields.
    pub body: Body,
}

/// Generates [`Body`], [`Kind`] and their mapping: a new kind of record is one line here and its struct.
macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident($data:ty) = $code:literal $text:literal,)*) => {
        /// The body of a record, by kind.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Body { $($(#[$doc])* $name($data),)* }

        /// The kind of a record. Its code is in the header of the stored value; its name is public.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        impl Kind {
            /// All kinds, in the order of their codes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The kind with this code; `None` if this version does not know it.
            pub const fn of_code(code: u16) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// The stored code; it never changes.
            pub const fn code(self) -> u16 {
                match self { $(Self::$name => $code,)* }
            }

            /// The public name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }

        impl Body {
            /// The body's kind.
            pub const fn kind(&self) -> Kind {
                match self { $(Self::$name(_) => Kind::$name,)* }
            }

            pub(super) fn write_json(&self, to: &mut Vec<u8>) -> serde_json::Result<()> {
                match self { $(Self::$name(data) => serde_json::to_writer(to, data),)* }
            }

            /// The body's fields, as a JSON object.
            pub fn to_json(&self) -> serde_json::Result<serde_json::Value> {
                match self { $(Self::$name(data) => serde_json::to_value(data),)* }
            }

            pub(super) fn read_json(kind: Kind, from: &str) -> serde_json::Result<Self> {
                match kind { $(Kind::$name => serde_json::from_str(from).map(Self::$name),)* }
            }
        }
    };
}

bodies! {
    /// The session was opened; always its first record.
    SessionOpened(SessionOpened) = 1 "session.opened",
    /// The session was opened again, after its process or its actor had ended.
    SessionRevived(SessionRevived) = 2 "session.revived",
    /// A run was accepted.
    RunAccepted(Box<RunAccepted>) = 10 "run.accepted",
    /// The run is being stopped. It gets the named outcome once its open calls and subagents have ended.
    RunStopping(RunStopping) = 11 "run.stopping",
    /// The run has its outcome.
    RunEnded(RunEnded) = 12 "run.ended",
    /// A limit of the run is used up; only the grace call may start after it.
    RunExhausted(RunExhausted) = 13 "run.exhausted",
    /// A `budget_exhausted` run resumes with larger limits.
    RunReopened(RunReopened) = 14 "run.reopened",
    /// The limits of a run that has not ended are raised.
    BudgetRaised(BudgetRaised) = 15 "budget.raised",
    /// A run that was accepted with a hold begins.
    RunBegun(RunBegun) = 16 "run.begun",
    /// The expectations of the run were checked after an answer.
    RunVerified(RunVerified) = 17 "run.verified",
    /// An attempt of a model call may start.
    ModelStarted(Arc<ModelStarted>) = 20 "model.started",
    /// The model answered.
    ModelAnswered(Box<ModelAnswered>) = 21 "model.answered",
    /// An attempt of a model call failed.
    ModelFailed(ModelFailed) = 22 "model.failed",
    /// The answer of an attempt that was given up arrived. Its content is dropped; its usage is known, or implausible.
    ModelLate(ModelLate) = 23 "model.late",
    /// The call waits: no model may be called before a reset that providers reported.
    ModelWaiting(ModelWaiting) = 25 "model.waiting",
    /// The view of the conversation is shorter from this record on.
    ContextCompacted(Box<ContextCompacted>) = 26 "context.compacted",
    /// An attempt of a call for a summary may start.
    SummaryStarted(Box<SummaryStarted>) = 27 "summary.started",
    /// A model answered a call for a summary.
    SummaryAnswered(AsideAnswered) = 28 "summary.answered",
    /// An attempt of a call for a summary failed.
    SummaryFailed(ModelFailed) = 29 "summary.failed",
    /// An attempt of a call beside the runs, such as for the session's title, may start.
    AsideStarted(Arc<ModelStarted>) = 85 "aside.started",
    /// A model answered a call beside the runs.
    AsideAnswered(AsideAnswered) = 86 "aside.answered",
    /// An attempt of a call beside the runs failed.
    AsideFailed(ModelFailed) = 87 "aside.failed",
    /// The entries that a memory flush has found were written to the memory files, or refused.
    MemorySaved(MemorySaved) = 88 "memory.saved",
    /// A tool call of the answer was validated and accepted.
    CallAdmitted(CallAdmitted) = 30 "call.admitted",
    /// An attempt of a tool call may start.
    CallStarted(CallStarted) = 31 "call.started",
    /// A tool call has its result.
    CallEnded(CallEnded) = 32 "call.ended",
    /// An attempt of a tool call was lost. Another attempt follows, unless the run starts no more calls.
    CallLost(CallLost) = 33 "call.lost",
    /// A steering message for a run under way or queued.
    MessageSteered(MessageSteered) = 40 "message.steered",
    /// A message becomes part of the input of a run that has not begun.
    MessageCollected(MessageCollected) = 41 "message.collected",
    /// A message is dropped: no run reads it.
    MessageDropped(MessageDropped) = 42 "message.dropped",
    /// A person's approval of a call was requested.
    ApprovalRequested(ApprovalRequested) = 50 "approval.requested",
    /// An approval was granted or denied.
    ApprovalAnswered(ApprovalAnswered) = 51 "approval.answered",
    /// A subagent has ended.
    ChildEnded(Box<ChildEnded>) = 60 "child.ended",
    /// The model's todo list changed.
    TodoChanged(TodoChanged) = 70 "todo.changed",
    /// How the messages of the session queue was set for it.
    QueueChanged(QueueOverrides) = 95 "queue.changed",
}

/// Fields of [`Body::SessionOpened`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOpened {
    /// The caller's session key.
    pub key: Arc<str>,
    /// The agent of all its runs.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub agent: AgentName,
    /// The system prompt, built once. Every request for an answer begins with it unchanged.
    pub prompt: Arc<str>,
    /// The first incarnation.
    pub incarnation: Incarnation,
    /// The machine's boot at that time.
    pub boot: BootId,
}

/// Fields of [`Body::SessionRevived`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRevived {
    /// The new incarnation.
    pub incarnation: Incarnation,
    /// The machine's boot at that time.
    pub boot: BootId,
}

/// Fields of [`Body::RunAccepted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunAccepted {
    /// The run.
    pub run: RunId,
    /// The task's text.
    pub input: Arc<str>,
    /// The images of the input.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub images: Arc<[Image]>,
    /// The imported conversation with which the session starts; only the session's first run has one.
    #[serde(default, skip_serializing_if = "ImportedHistory::is_empty")]
    pub history: Arc<ImportedHistory>,
    /// The resolved configuration of the run.
    pub spec: Arc<RunSpec>,
    /// The delegating call; absent for a submitted run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentRef>,
    /// The hash of the client's whole request, with which a repeat by its idempotency key is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_hash: Option<Hash>,
    /// How the message that this run is queues; absent for a submitted task, which is never dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queueing: Option<Queueing>,
    /// What it waits for before it may begin; absent for a run that begins after the earlier runs of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// The occurrence of a schedule whose run this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurrence: Option<OccurrenceId>,
}

/// Fields of [`Body::RunStopping`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStopping {
    /// The run.
    pub run: RunId,
    /// The outcome that the run will have.
    #[serde(flatten)]
    pub ended: OutcomeDetail,
}

/// Fields of [`Body::RunEnded`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnded {
    /// The run.
    pub run: RunId,
    /// The outcome and its cause.
    #[serde(flatten)]
    pub ended: OutcomeDetail,
    /// The iterations of the run.
    pub iterations: u32,
    /// The token usage of its model calls.
    pub usage: Usage,
}

/// Fields of [`Body::RunExhausted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunExhausted {
    /// The run.
    pub run: RunId,
    /// The refused reservation.
    pub refusal: BudgetRefusal,
}

/// Fields of [`Body::RunReopened`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunReopened {
    /// The run.
    pub run: RunId,
    /// The number of the leg that starts, from 2; each leg has an outcome.
    pub leg: u32,
    /// The additions to its limits.
    #[serde(flatten)]
    pub increase: LimitIncrease,
}

/// Fields of [`Body::BudgetRaised`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetRaised {
    /// The run.
    pub run: RunId,
    /// The additions to its limits.
    #[serde(flatten)]
    pub increase: LimitIncrease,
}

/// Fields of [`Body::MessageSteered`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageSteered {
    /// The run.
    pub run: RunId,
    /// The message's text.
    pub text: Arc<str>,
    /// Identifies the message, and the follow-up run that it becomes if no model of this run reads it.
    #[serde(rename = "next")]
    pub followup_run: RunId,
    /// The hash of the client's whole request, with which a repeat by its idempotency key is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_hash: Option<Hash>,
}

impl RunAccepted {
    /// Whether it is the next run of its session, before all that are queued: the message interrupts.
    pub fn goes_first(&self) -> bool {
        self.queueing.is_some_and(|queueing| queueing.mode == QueueMode::Interrupt)
    }

    /// A run of this spec for a text, without images, history and parent.
    pub fn new(run: RunId, input: impl Into<Arc<str>>, spec: Arc<RunSpec>) -> Self {
        let (images, history) = (Arc::default(), Arc::default());
        Self {
            run,
            input: input.into(),
            images,
            history,
            spec,
            parent: None,
            request_hash: None,
            queueing: None,
            hold: None,
            occurrence: None,
        }
    }

    /// The user message: the input, after the unanswered message of the history.
    pub fn user_message(&self) -> MessageContent {
        MessageContent::new(self.after_unanswered(&self.input), Arc::clone(&self.images))
    }

    /// A text of this run's first user message, after the unanswered message of the history.
    pub fn after_unanswered(&self, text: &Arc<str>) -> Arc<str> {
        match &self.history.unanswered {
            Some(before) => format!("{before}\n\n{text}").into(),
            None => Arc::clone(text),
        }
    }
}

impl RunStopping {
    /// The record that stops `run` for `reason`.
    pub fn stop(run: RunId, reason: StopReason) -> Self {
        Self {
            run,
            ended: OutcomeDetail::with_cause(super::Outcome::Stopped, super::OutcomeCause::Stop { reason }),
        }
    }
}

impl Body {
    /// The artifacts that the body references.
    pub fn artifacts(&self) -> impl Iterator<Item = &Artifact> {
        let (kept, images, attachments) = if let Self::RunAccepted(accepted) = self {
            (None, &accepted.images[..], &[][..])
        } else if let Self::MessageCollected(collected) = self {
            (None, &collected.images[..], &[][..])
        } else if let Self::CallEnded(ended) = self {
            (ended.end.artifact.as_ref(), &ended.end.images[..], &ended.end.attachments[..])
        } else {
            (None, &[][..], &[][..])
        };
        let images = images.iter().map(|image| &image.artifact);
        let attachments = attachments.iter().map(|attachment: &Attachment| &attachment.artifact);
        kept.into_iter().chain(images).chain(attachments)
    }

    /// The run of the record; `None` if it concerns the session.
    pub fn run(&self) -> Option<RunId> {
        Some(match self {
            Self::SessionOpened(_) | Self::SessionRevived(_) | Self::QueueChanged(_) => return None,
            Self::RunAccepted(body) => body.run,
            Self::RunStopping(body) => body.run,
            Self::RunEnded(body) => body.run,
            Self::RunExhausted(body) => body.run,
            Self::RunReopened(body) => body.run,
            Self::BudgetRaised(body) => body.run,
            Self::RunVerified(body) => body.call.run,
            Self::ChildEnded(body) => body.call.run,
            Self::ContextCompacted(body) => body.run,
            Self::SummaryStarted(body) => body.started.call.run,
            Self::SummaryAnswered(body) | Self::AsideAnswered(body) => body.call.run,
            Self::TodoChanged(body) => body.call.run,
            Self::MemorySaved(body) => body.call.run,
            Self::ModelStarted(body) | Self::AsideStarted(body) => body.call.run,
            Self::ModelAnswered(body) => body.call.run,
            Self::ModelFailed(body) | Self::SummaryFailed(body) | Self::AsideFailed(body) => body.call.run,
            Self::ModelWaiting(body) => body.call.run,
            Self::ModelLate(body) => body.call.run,
            Self::CallAdmitted(body) => body.call.run,
            Self::CallStarted(body) => body.call.run,
            Self::CallEnded(body) => body.call.run,
            Self::CallLost(body) => body.call.run,
            Self::MessageSteered(body) => body.run,
            Self::MessageCollected(body) => body.run,
            Self::MessageDropped(body) => return body.run,
            Self::RunBegun(body) => body.run,
            Self::ApprovalRequested(body) => body.call.run,
            Self::ApprovalAnswered(body) => body.call.run,
        })
    }
}
