use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    ApprovalAnswered, ApprovalRequested, Artifact, BootId, BudgetRefusal, CallAdmitted, CallEnded, CallLost,
    CallStarted, ChildEnded, ContextCompacted, Image, ImportedHistory, Incarnation, LimitIncrease,
    MessageContent, ModelAnswered, ModelFailed, ModelLate, ModelStarted, ModelWaiting, OutcomeDetail,
    ParentRef, RunId, RunSpec, StopReason, SummaryAnswered, SummaryStarted, Timestamp, TodoChanged, Usage,
    message::no_images,
};

/// What is journaled: append-only, versioned, numbered per session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Wall clock, for people.
    pub at: Timestamp,
    /// Milliseconds that the session has been alive, for limits.
    pub active_ms: u64,
    /// What happened.
    pub body: Body,
}

/// Makes [`Body`], [`Kind`] and the table between them: a new kind of record is one line here and its struct.
macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident($data:ty) = $code:literal $text:literal,)*) => {
        /// What a record says happened.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Body { $($(#[$doc])* $name($data),)* }

        /// The kind of a record: its code stands in the header of the stored value, its name is public.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        impl Kind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The kind with this code; `None` if this version does not know it.
            pub const fn of_code(code: u16) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// The code, unchanged for ever.
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

            /// The body's fields, as an object.
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
    /// The session exists; always its first record.
    SessionOpened(SessionOpened) = 1 "session.opened",
    /// The session was taken up again, by another process or after its actor died.
    SessionRevived(SessionRevived) = 2 "session.revived",
    /// A run was accepted.
    RunAccepted(Box<RunAccepted>) = 10 "run.accepted",
    /// The run is to end as stopped, when its open calls have ended.
    RunStopping(RunStopping) = 11 "run.stopping",
    /// The run has its outcome.
    RunEnded(RunEnded) = 12 "run.ended",
    /// A limit of the run is used up: what is left is to say how far it came.
    RunExhausted(RunExhausted) = 13 "run.exhausted",
    /// A run that was `budget_exhausted` goes on.
    RunReopened(RunReopened) = 14 "run.reopened",
    /// The limits of a run that has not ended are raised.
    BudgetRaised(BudgetRaised) = 15 "budget.raised",
    /// An attempt of a model call may begin.
    ModelStarted(Arc<ModelStarted>) = 20 "model.started",
    /// The model answered.
    ModelAnswered(Box<ModelAnswered>) = 21 "model.answered",
    /// An attempt of a model call failed.
    ModelFailed(ModelFailed) = 22 "model.failed",
    /// A late answer was dropped; what it cost is known now.
    ModelLate(ModelLate) = 23 "model.late",
    /// No model may be asked before a time that providers have named.
    ModelWaiting(ModelWaiting) = 25 "model.waiting",
    /// The view of the conversation is shorter from here on.
    ContextCompacted(Box<ContextCompacted>) = 26 "context.compacted",
    /// An attempt of a call for a summary may begin.
    SummaryStarted(Box<SummaryStarted>) = 27 "summary.started",
    /// A summary is there.
    SummaryAnswered(SummaryAnswered) = 28 "summary.answered",
    /// An attempt of a call for a summary failed.
    SummaryFailed(ModelFailed) = 29 "summary.failed",
    /// A tool call of the answer is acceptable.
    CallAdmitted(CallAdmitted) = 30 "call.admitted",
    /// An attempt of a tool call may begin.
    CallStarted(CallStarted) = 31 "call.started",
    /// A tool call has its result.
    CallEnded(CallEnded) = 32 "call.ended",
    /// An attempt of a tool call was lost; the next one follows.
    CallLost(CallLost) = 33 "call.lost",
    /// Somebody said something to a run that was under way.
    MessageSteered(MessageSteered) = 40 "message.steered",
    /// A person is asked whether a call may be made.
    ApprovalRequested(ApprovalRequested) = 50 "approval.requested",
    /// The answer.
    ApprovalAnswered(ApprovalAnswered) = 51 "approval.answered",
    /// A subagent has ended.
    ChildEnded(Box<ChildEnded>) = 60 "child.ended",
    /// What the model means to do is another list.
    TodoChanged(TodoChanged) = 70 "todo.changed",
}

/// See [`Body::SessionOpened`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOpened {
    /// The caller's key.
    pub key: Arc<str>,
    /// The system prompt, built once and sent byte for byte with every call.
    pub prompt: Arc<str>,
    /// The first incarnation.
    pub incarnation: Incarnation,
    /// The boot of the machine it lives in.
    pub boot: BootId,
}

/// See [`Body::SessionRevived`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRevived {
    /// The new incarnation.
    pub incarnation: Incarnation,
    /// The boot of the machine it lives in now.
    pub boot: BootId,
}

/// See [`Body::RunAccepted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunAccepted {
    /// The run.
    pub run: RunId,
    /// What it is to do.
    pub input: Arc<str>,
    /// The pictures that came with it.
    #[serde(default, skip_serializing_if = "no_images")]
    pub images: Arc<[Image]>,
    /// The conversation from outside that the session begins with; only its first run brings one.
    #[serde(default, skip_serializing_if = "ImportedHistory::is_empty")]
    pub history: Arc<ImportedHistory>,
    /// All that it needs.
    pub spec: Arc<RunSpec>,
    /// Whose task it is; absent from one that was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentRef>,
}

/// See [`Body::RunStopping`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStopping {
    /// The run.
    pub run: RunId,
    /// How it will have ended.
    #[serde(flatten)]
    pub ended: OutcomeDetail,
}

/// See [`Body::RunEnded`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnded {
    /// The run.
    pub run: RunId,
    /// How it ended.
    #[serde(flatten)]
    pub ended: OutcomeDetail,
    /// The iterations it took.
    pub iterations: u32,
    /// What its model calls used.
    pub usage: Usage,
}

/// See [`Body::RunExhausted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunExhausted {
    /// The run.
    pub run: RunId,
    /// What did not fit.
    pub refusal: BudgetRefusal,
}

/// See [`Body::RunReopened`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunReopened {
    /// The run.
    pub run: RunId,
    /// Which of its legs begins, from 2: each has an outcome.
    pub leg: u32,
    /// By how much its limits are raised.
    #[serde(flatten)]
    pub increase: LimitIncrease,
}

/// See [`Body::BudgetRaised`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetRaised {
    /// The run.
    pub run: RunId,
    /// By how much.
    #[serde(flatten)]
    pub increase: LimitIncrease,
}

/// See [`Body::MessageSteered`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageSteered {
    /// The run.
    pub run: RunId,
    /// What was said.
    pub text: Arc<str>,
    /// Identifies the message; also the run that it becomes if no model of this one reads it.
    #[serde(rename = "next")]
    pub followup_run: RunId,
}

impl RunAccepted {
    /// The user's message: the input, behind what the history leaves unanswered.
    pub fn user_message(&self) -> MessageContent {
        let text = match &self.history.unanswered {
            Some(before) => format!("{before}\n\n{}", self.input).into(),
            None => Arc::clone(&self.input),
        };
        MessageContent::new(text, Arc::clone(&self.images))
    }
}

impl RunStopping {
    /// Stops `run` for `reason`.
    pub fn stop(run: RunId, reason: StopReason) -> Self {
        Self {
            run,
            ended: OutcomeDetail::with_cause(super::Outcome::Stopped, super::OutcomeCause::Stop { reason }),
        }
    }
}

impl Body {
    /// The artifacts that it names.
    pub fn artifacts(&self) -> impl Iterator<Item = &Artifact> {
        let (kept, images) = if let Self::RunAccepted(accepted) = self {
            (None, &accepted.images[..])
        } else if let Self::CallEnded(ended) = self {
            (ended.end.artifact.as_ref(), &ended.end.images[..])
        } else {
            (None, &[][..])
        };
        kept.into_iter().chain(images.iter().map(|image| &image.artifact))
    }

    /// The run that it speaks of; `None` if it speaks of the session.
    pub fn run(&self) -> Option<RunId> {
        Some(match self {
            Self::SessionOpened(_) | Self::SessionRevived(_) => return None,
            Self::RunAccepted(body) => body.run,
            Self::RunStopping(body) => body.run,
            Self::RunEnded(body) => body.run,
            Self::RunExhausted(body) => body.run,
            Self::RunReopened(body) => body.run,
            Self::BudgetRaised(body) => body.run,
            Self::ChildEnded(body) => body.call.run,
            Self::ContextCompacted(body) => body.run,
            Self::SummaryStarted(body) => body.started.call.run,
            Self::SummaryAnswered(body) => body.call.run,
            Self::TodoChanged(body) => body.call.run,
            Self::ModelStarted(body) => body.call.run,
            Self::ModelAnswered(body) => body.call.run,
            Self::ModelFailed(body) | Self::SummaryFailed(body) => body.call.run,
            Self::ModelWaiting(body) => body.call.run,
            Self::ModelLate(body) => body.call.run,
            Self::CallAdmitted(body) => body.call.run,
            Self::CallStarted(body) => body.call.run,
            Self::CallEnded(body) => body.call.run,
            Self::CallLost(body) => body.call.run,
            Self::MessageSteered(body) => body.run,
            Self::ApprovalRequested(body) => body.call.run,
            Self::ApprovalAnswered(body) => body.call.run,
        })
    }
}
