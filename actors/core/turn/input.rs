//! The vocabulary of the core: inputs that a session decides, and actions that should be in flight.

use std::sync::Arc;

use crate::{
    model::Intent,
    model::{
        ApprovalDecision, Attempt, BootId, BudgetRefusal, CallEnd, CallId, ChildEnded, Failure, Hash, Image,
        ImportedHistory, Incarnation, LimitIncrease, ModelAnswer, ModelRef, ModelStarted, RunId, RunSpec,
        StopReason, Timestamp, UnansweredModel,
    },
    policy::{CredentialRecovery, LinkAvailability},
};

/// An event that the session has to decide.
#[derive(Debug, Clone)]
pub enum Input {
    /// The session is new.
    Opened { key: Arc<str>, prompt: Arc<str>, incarnation: Incarnation, boot: BootId },
    /// The session was opened again; always the first input after a replay.
    Revived { incarnation: Incarnation, boot: BootId },
    /// A run is submitted.
    Submitted {
        run: RunId,
        input: Arc<str>,
        images: Arc<[Image]>,
        history: Arc<ImportedHistory>,
        spec: Arc<RunSpec>,
        key: Option<Arc<str>>,
    },
    /// The wanted lease was granted.
    Leased { call: CallId, attempt: Attempt, model: ModelRef },
    /// No lease is possible before a time that a provider has named, or at all.
    NoLease { call: CallId, attempt: Attempt, skipped: Arc<[UnansweredModel]> },
    /// The wanted permit was granted.
    Permitted { call: CallId, attempt: Attempt },
    /// The model answered the attempt `started`; `admissions` has one entry for each call of the answer.
    Answered { started: Arc<ModelStarted>, answer: Arc<ModelAnswer>, admissions: Arc<[CallAdmission]> },
    /// An attempt of a model call failed.
    ModelFailed { call: CallId, attempt: Attempt, failure: Box<Failure>, failover: FailoverOptions },
    /// A tool call ended.
    ToolEnded { call: CallId, attempt: Attempt, end: CallEnd },
    /// The task of a call ended without a result, or the fate of an attempt of an earlier incarnation is unknown.
    Lost { call: CallId, attempt: Attempt },
    /// The attempt, started by this or an earlier incarnation, was never executed and never will be.
    NeverBegun { call: CallId, attempt: Attempt },
    /// A person has decided about a call that is in doubt.
    Decided { call: CallId, verdict: ApprovalDecision },
    /// A request to stop a run; `None` means the one under way.
    Stop { run: Option<RunId>, reason: StopReason },
    /// A steering message for a run; `next` identifies the message.
    Steer { run: RunId, text: Arc<str>, next: RunId },
    /// A request to raise the limits of a run; a run that has used them up is resumed.
    Raise { run: RunId, by: LimitIncrease },
    /// A subagent has ended.
    ChildEnded(Arc<ChildEnded>),
    /// The input of an inbox row; the row is deleted whatever the decision is.
    FromInbox { row: u64, input: Box<Input> },
    /// An inbox row without effect by now; it is only deleted.
    EmptyInboxRow,
    /// A timer fired; `now` tells which limits are over.
    TimerFired,
    /// The ledger refused the decision's reservation: decide again without it.
    BudgetRefused(BudgetRefusal),
}

/// What the gates report after a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FailoverOptions {
    /// Availability of the chain's links; a missing link counts as open.
    pub links: Vec<LinkAvailability>,
    /// Whether the failed model can be called again at once with another credential.
    pub recovery: CredentialRecovery,
}

/// The executor's verdict on a call of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallAdmission {
    /// The call may run.
    Admit { tool: Arc<str>, intent: Intent, arguments: Hash },
    /// The call may not run; `end` is the result for the model.
    Reject { rejection: CallRejection, end: CallEnd },
}

/// Why the executor rejects a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallRejection {
    /// No tool has this name.
    UnknownTool,
    /// The arguments are not JSON.
    Malformed,
    /// The arguments are too long, not acceptable to the tool, or could not be checked.
    Unacceptable,
}

/// An action that should be in flight. Its identity is its whole value: the shell starts each value that is not started
/// yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DueAction {
    /// Run this attempt of the model call.
    CallModel { call: CallId, attempt: Attempt },
    /// Run this attempt of the tool call; if an earlier incarnation started it, find out what became of it.
    RunTool { call: CallId, attempt: Attempt },
    /// Bring this attempt of the tool call to its end, also if an earlier incarnation started it.
    EndTool { call: CallId, attempt: Attempt },
    /// Wait for the grant that the call needs before its start: a lease (n = 0) or a permit.
    Acquire { call: CallId, attempt: Attempt },
    /// Keep this subagent running, or see it end if `ends`; its end arrives in the inbox.
    AwaitSubagent { call: CallId, n: u32, ends: bool },
    /// Wake up at this time of the wall clock.
    WakeAt(Timestamp),
    /// Wake up at this active time of the session, in milliseconds.
    WakeAtActive(u64),
}

impl DueAction {
    /// The action that ends the tool call of this action.
    pub const fn end_action(&self) -> Option<Self> {
        match *self {
            Self::RunTool { call, attempt } => Some(Self::EndTool { call, attempt }),
            Self::CallModel { .. }
            | Self::EndTool { .. }
            | Self::Acquire { .. }
            | Self::AwaitSubagent { .. }
            | Self::WakeAt(_)
            | Self::WakeAtActive(_) => None,
        }
    }

    /// The call and attempt of `Acquire`.
    pub(crate) const fn acquires(&self) -> Option<(CallId, Attempt)> {
        match *self {
            Self::Acquire { call, attempt } => Some((call, attempt)),
            Self::CallModel { .. }
            | Self::RunTool { .. }
            | Self::EndTool { .. }
            | Self::AwaitSubagent { .. }
            | Self::WakeAt(_)
            | Self::WakeAtActive(_) => None,
        }
    }

    /// Whether this action brings a call or a subagent to its end.
    pub const fn is_end(&self) -> bool {
        matches!(self, Self::EndTool { .. } | Self::AwaitSubagent { ends: true, .. })
    }

    /// Whether this is only a timer.
    pub const fn is_timer(&self) -> bool {
        match self {
            Self::WakeAt(_) | Self::WakeAtActive(_) => true,
            Self::CallModel { .. }
            | Self::RunTool { .. }
            | Self::EndTool { .. }
            | Self::Acquire { .. }
            | Self::AwaitSubagent { .. } => false,
        }
    }
}

/// A grant that would let the draft continue at once, if one is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantRequest {
    Lease { call: CallId, attempt: Attempt },
    Permit { call: CallId, attempt: Attempt },
}
