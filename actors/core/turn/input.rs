//! The vocabulary of the core: inputs that a session decides, actions that should be in flight, and the grants that
//! they need. Also what inputs carry: the verdicts on tool calls, and what can be called after a failure. Decides
//! nothing.

use std::sync::Arc;

use crate::{
    model::{
        ApprovalNeed, AttemptId, BudgetRefusal, CallEnd, CallId, ChildEnded, ExpectationMiss, Failure, Hash,
        HookedCall, HookedRun, HookedSummary, Intent, Lane, LimitIncrease, MemorySave, MessageSteered,
        ModelAnswer, ModelRef, ModelStarted, PersonAnswer, QueueOverrides, RunAccepted, RunId, SessionOpened,
        SessionRevived, StopReason, Timestamp, ToolClass, UnansweredModel,
    },
    policy::{CredentialRecovery, LinkAvailability},
};

/// An event that the session has to decide.
#[derive(Debug, Clone)]
pub enum Input {
    /// The session is new.
    Opened(SessionOpened),
    /// The session was opened again: always the first input of that incarnation.
    Revived(SessionRevived),
    /// A run is submitted.
    Submitted {
        /// The record that accepts the run; it has no parent. It has a history only in a session that has not accepted
        /// a run.
        accepted: Box<RunAccepted>,
        /// The caller's idempotency key.
        key: Option<Arc<str>>,
    },
    /// The held run may begin, or hooks have refused it. A place in its lane comes with this, if it needs one.
    MayBegin {
        /// The run.
        run: RunId,
        /// What hooks have decided, if any was asked.
        hooks: Option<Arc<HookedRun>>,
    },
    /// The wanted lease was granted.
    Leased {
        /// The attempt that may start.
        id: AttemptId,
        /// The model of the lease.
        model: ModelRef,
    },
    /// The wanted lease of a summary call was granted.
    SummaryLeased {
        /// The attempt that may start.
        id: AttemptId,
        /// The model of the lease.
        model: ModelRef,
        /// What hooks have decided about the summary, if some were asked.
        hooks: Option<Arc<HookedSummary>>,
    },
    /// No lease is possible, or none before a time that a provider has named.
    NoLease {
        /// The attempt that cannot start.
        id: AttemptId,
        /// The models that were passed over, each with its reason.
        skipped: Arc<[UnansweredModel]>,
    },
    /// The wanted permit was granted.
    Permitted(AttemptId),
    /// The model answered the attempt `started`.
    Answered {
        /// The attempt's record.
        started: Arc<ModelStarted>,
        /// The answer.
        answer: Arc<ModelAnswer>,
        /// The verdicts on the answer's calls, in their order.
        admissions: Arc<[CallAdmission]>,
    },
    /// An attempt of a model call failed.
    ModelFailed {
        /// The attempt.
        id: AttemptId,
        /// The failure.
        failure: Box<Failure>,
        /// What can be called next.
        failover: FailoverOptions,
    },
    /// A tool call ended.
    ToolEnded {
        /// The attempt.
        id: AttemptId,
        /// The result for the model.
        end: CallEnd,
    },
    /// The task of a call ended without a result, or the outcome of an attempt of an earlier incarnation is unknown.
    Lost(AttemptId),
    /// The attempt, started by this or an earlier incarnation, was never executed and never will be.
    NeverStarted(AttemptId),
    /// A person has answered a request about a call.
    Approval {
        /// The call.
        call: CallId,
        /// The answer.
        answer: PersonAnswer,
    },
    /// A request to stop a run.
    Stop {
        /// The run; `None` means the one under way.
        run: Option<RunId>,
        /// The reason.
        reason: StopReason,
    },
    /// A steering message for a run.
    Steer(MessageSteered),
    /// A request to raise the limits of a run; a run that has used them up is resumed.
    Raise {
        /// The run.
        run: RunId,
        /// The amounts that are added.
        by: LimitIncrease,
    },
    /// A request to set how the messages of the session queue.
    SetQueue(QueueOverrides),
    /// A subagent has ended.
    ChildEnded(Arc<ChildEnded>),
    /// The expectations of the run were checked.
    Verified {
        /// The model call of the answer that was given before.
        call: CallId,
        /// The expectations that do not hold.
        misses: Vec<ExpectationMiss>,
    },
    /// The entries of a memory flush were written, or refused.
    MemorySaved {
        /// The flush.
        call: CallId,
        /// What became of them.
        save: MemorySave,
    },
    /// The input of an inbox row.
    FromInbox {
        /// The row; deleted whatever the decision is.
        row: u64,
        /// Its input.
        input: Box<Input>,
    },
    /// An inbox row that has no effect any more; it is only deleted.
    EmptyInboxRow,
    /// A timer fired; the decision's `now` tells which limits are over.
    TimerFired,
    /// The store refused the reservation of the previous decision: it exceeds a budget. The same inputs are decided
    /// again, with this one in front.
    BudgetRefused(BudgetRefusal),
}

impl Input {
    /// Whether it submits a run with an idempotency key, or of an occurrence: the store may know one already.
    pub fn is_unique_submission(&self) -> bool {
        matches!(self, Self::Submitted { accepted, key } if key.is_some() || accepted.occurrence.is_some())
    }
}

/// What the gates report after a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FailoverOptions {
    /// Availability of the chain's links, by index; a missing entry counts as available.
    pub links: Vec<LinkAvailability>,
    /// Whether the failed model can be called again at once with another credential.
    pub recovery: CredentialRecovery,
}

/// The ToolExecutor's verdict on a tool call of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallAdmission {
    /// The call may run.
    Admit {
        /// The tool's name.
        tool: Arc<str>,
        /// What the call will touch, and whether it may be repeated.
        intent: Intent,
        /// Hash of the arguments.
        arguments: Hash,
        /// Why a person has to approve the call before its start, if so.
        approval: Option<Arc<ApprovalNeed>>,
        /// What hooks have decided about the call, if any was asked.
        hooks: Option<Arc<HookedCall>>,
    },
    /// The call may not run.
    Reject {
        /// The reason.
        rejection: CallRejection,
        /// The result for the model.
        end: CallEnd,
    },
}

/// Why the ToolExecutor rejects a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallRejection {
    /// No tool has this name.
    UnknownTool,
    /// The arguments are not JSON.
    Malformed,
    /// The arguments are too long, not acceptable to the tool or the policy, or could not be checked.
    Unacceptable,
}

/// An action that should be in flight. Its identity is its whole value: the shell starts each value that is not started
/// yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DueAction {
    /// Get permission for the held run to begin: a place in its lane, and the verdict of hooks.
    Begin(RunId),
    /// Run this attempt of the model call.
    CallModel(AttemptId),
    /// Run this attempt of the tool call; if an earlier incarnation started it, find out what became of it.
    RunTool(AttemptId),
    /// Bring this attempt of the tool call to its end, also if an earlier incarnation started it.
    EndTool(AttemptId),
    /// Check the expectations of the run that has given its answer with this model call.
    Verify(CallId),
    /// Write the entries of this memory flush.
    SaveMemory(CallId),
    /// Wait for the grant that the call needs before its start: a lease for a model call, a permit for a tool call.
    Acquire(AttemptId),
    /// Keep this subagent running, or bring it to its end; its end arrives in the inbox.
    AwaitSubagent {
        /// The call that delegated.
        call: CallId,
        /// The subagent's number within the call.
        n: u32,
        /// True if the subagent must end.
        ends: bool,
    },
    /// Wake up at this time of the wall clock.
    WakeAt(Timestamp),
    /// Wake up at this active time of the session, in milliseconds.
    WakeAtActive(u64),
}

impl DueAction {
    /// The action that ends the tool call of this action.
    pub const fn end_action(&self) -> Option<Self> {
        if let Self::RunTool(id) = *self { Some(Self::EndTool(id)) } else { None }
    }

    /// The attempt of `Acquire`.
    pub const fn acquired_attempt(&self) -> Option<AttemptId> {
        if let Self::Acquire(id) = *self { Some(id) } else { None }
    }

    /// Whether this action brings a call or a subagent to its end, or keeps what a call has found. A session that is being
    /// suspended waits for it.
    pub const fn is_end(&self) -> bool {
        matches!(self, Self::EndTool { .. } | Self::AwaitSubagent { ends: true, .. } | Self::SaveMemory(_))
    }

    /// Whether this is only a timer.
    pub const fn is_timer(&self) -> bool {
        matches!(self, Self::WakeAt(_) | Self::WakeAtActive(_))
    }
}

/// A grant that would let the draft continue at once, if one is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantRequest {
    /// A lease for an attempt of a model call.
    Lease(AttemptId),
    /// A permit of this class for an attempt of a tool call.
    Permit(AttemptId, ToolClass),
    /// A place in this lane for the held run that begins next.
    Place(RunId, Lane),
}
