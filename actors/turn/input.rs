use std::sync::Arc;

use crate::{
    model::{
        ApprovalDecision, Attempt, BootId, BudgetRefusal, CallEnd, CallId, ChildEnded, Failure, Hash, Image,
        ImportedHistory, Incarnation, LimitIncrease, ModelAnswer, ModelRef, ModelStarted, RunId, RunSpec,
        StopReason, Timestamp, UnansweredModel,
    },
    policy::{CredentialRecovery, LinkAvailability},
    port::Intent,
};

/// What can happen to a session.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// It is new.
    Opened { key: Arc<str>, prompt: Arc<str>, incarnation: Incarnation, boot: BootId },
    /// It was taken up again; always the first input after a replay.
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
    /// A lease that was wanted is there.
    Leased { call: CallId, attempt: Attempt, model: ModelRef },
    /// No lease will come before a time that a provider has named, if ever.
    NoLease { call: CallId, attempt: Attempt, skipped: Arc<[UnansweredModel]> },
    /// A permit that was wanted is there.
    Permitted { call: CallId, attempt: Attempt },
    /// The model answered what was started so; `plans` has one entry for each call of the answer.
    Answered { started: Arc<ModelStarted>, answer: Arc<ModelAnswer>, admissions: Arc<[CallAdmission]> },
    /// An attempt of a model call failed.
    ModelFailed { call: CallId, attempt: Attempt, failure: Box<Failure>, failover: FailoverOptions },
    /// A tool call ended.
    ToolEnded { call: CallId, attempt: Attempt, end: CallEnd },
    /// The task of a call ended without a word; or nobody knows what became of what an earlier incarnation had started.
    Lost { call: CallId, attempt: Attempt },
    /// A call that was started, here or by an earlier incarnation, was never begun, and that attempt never will be.
    NeverBegun { call: CallId, attempt: Attempt },
    /// A person has decided about a call that is in doubt.
    Decided { call: CallId, verdict: ApprovalDecision },
    /// A run is to be stopped; `None` means the one under way.
    Stop { run: Option<RunId>, reason: StopReason },
    /// Something is said to a run; `next` identifies the message.
    Steer { run: RunId, text: Arc<str>, next: RunId },
    /// The limits of a run are to be raised; one that has used them up goes on.
    Raise { run: RunId, by: LimitIncrease },
    /// A subagent has ended.
    ChildEnded(Arc<ChildEnded>),
    /// What a row of the inbox says: taken in, it is deleted, whatever comes of it.
    FromInbox { row: u64, input: Box<Input> },
    /// A row of the inbox that says nothing any more.
    EmptyInboxRow,
    /// A time that was waited for has come; which one, `now` tells.
    TimerFired,
    /// What was decided did not fit the budget: decide again without it.
    BudgetRefused(BudgetRefusal),
}

/// What the gates say when an attempt has failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FailoverOptions {
    /// How each link of the chain stands; one that is not here is not known to be closed.
    pub(crate) links: Vec<LinkAvailability>,
    /// Whether the model that failed can be asked in another way.
    pub(crate) recovery: CredentialRecovery,
}

/// What the executor says of a call that the model asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallAdmission {
    /// It may run.
    Admit { tool: Arc<str>, intent: Intent, arguments: Hash },
    /// It may not; the model reads why.
    Reject { rejection: CallRejection, end: CallEnd },
}

/// Why a call may not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallRejection {
    /// There is no such tool.
    UnknownTool,
    /// Its arguments are no JSON.
    Malformed,
    /// Its arguments are not acceptable.
    Unacceptable,
}

/// Something that ought to be in flight. Its identity is all of it: the shell starts what it has not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum DueAction {
    /// Make this attempt of the model call.
    CallModel { call: CallId, attempt: Attempt },
    /// Make this attempt of the tool call; if an earlier incarnation has started it, find out what became of it.
    RunTool { call: CallId, attempt: Attempt },
    /// Bring this attempt of the tool call to its end, whoever has started it.
    EndTool { call: CallId, attempt: Attempt },
    /// Wait for what the call needs before it may start: a lease (n = 0) or a permit.
    Acquire { call: CallId, attempt: Attempt },
    /// See to it that this subagent is at work, or `ends` because it was told to: its end is heard from the inbox.
    AwaitSubagent { call: CallId, n: u32, ends: bool },
    /// Wake up at this time of the wall clock.
    WakeAt(Timestamp),
    /// Wake up when the session has been alive so long, in milliseconds.
    WakeAtActive(u64),
}

impl DueAction {
    /// What brings a tool call that this makes to its end.
    pub(crate) const fn end_action(&self) -> Option<Self> {
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

    /// The call and the attempt that it wants something for.
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

    /// Whether something is brought to its end.
    pub(crate) const fn is_end(&self) -> bool {
        matches!(self, Self::EndTool { .. } | Self::AwaitSubagent { ends: true, .. })
    }

    /// Whether it is only a time to wake up.
    pub(crate) const fn is_timer(&self) -> bool {
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

/// Something that would let the draft go on at once, if it is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GrantRequest {
    /// A lease for a model call.
    Lease { call: CallId, attempt: Attempt },
    /// A permit for a tool call.
    Permit { call: CallId, attempt: Attempt },
}
