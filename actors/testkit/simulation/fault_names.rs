//! The names of all faults of plans, so that tests can show that each of them occurs.

use super::{
    loops::LOOP,
    plan::{CommitFault, ModelFault, PlannedEvent, PlannedTarget, ToolBehaviour},
};
use crate::{ActorFault, JournalFault};

/// The names of all faults that can occur in a plan.
pub const FAULT_NAMES: [&str; 75] = [
    "crash before a commit",
    "crash after a commit",
    "slow commit",
    "store error",
    "full disk",
    "ambiguous commit that is written",
    "ambiguous commit that is not written",
    "panic of the store",
    "commit that hangs and is written",
    "commit that hangs and is not written",
    "commit that strays",
    "crash",
    "suspension",
    "panic of an actor",
    "error of an actor",
    "kill of an actor",
    "strike at the root",
    "strike at persistence",
    "strike at the supervisor of providers",
    "strike at a provider",
    "strike at the executor of tools",
    "strike at the compressor",
    "strike at the supervisor of sessions",
    "strike at a session",
    "strike at a subagent",
    "strike at whoever has told",
    "clock jump",
    "stop",
    "stop at rest",
    "stop while the model answers",
    "stop of a subagent",
    "limits raised",
    "limits raised at rest",
    "message",
    "message once more",
    "message that steers",
    "message that follows",
    "message that is collected",
    "message that interrupts",
    "queue of a session set",
    "task once more",
    "decision",
    "decision at rest",
    "unreadable records",
    "model: rate limited",
    "model: overloaded",
    "model: server error",
    "model: network error",
    "model: not reached",
    "model: broken, with usage",
    "model: cut",
    "model: not authorized",
    "model: hangs",
    "model: panics",
    "model: empty",
    "model: only a thought",
    "model: a part",
    "model: calls cut off",
    "model: unknown tool",
    "model: malformed call",
    "model: refuses",
    "model: babbles",
    "model: no usage",
    "model: impossible usage",
    "model: too long a request",
    "model: no summary",
    LOOP,
    "encoder: panics",
    "tool: fails",
    "tool: panics once",
    "tool: panics always",
    "tool: hangs",
    "tool: ignores stops",
    "tool: panics at its arguments",
    "machine starts anew",
];

impl CommitFault {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::CrashBefore(_) => "crash before a commit",
            Self::CrashAfter(_) => "crash after a commit",
            Self::Slow(_) => "slow commit",
            Self::Fails(JournalFault::Error, _) => "store error",
            Self::Fails(JournalFault::FullDisk, _) => "full disk",
            Self::Fails(JournalFault::AmbiguousWritten, _) => "ambiguous commit that is written",
            Self::Fails(JournalFault::AmbiguousUnwritten, _) => "ambiguous commit that is not written",
            Self::Fails(JournalFault::Panic, _) => "panic of the store",
            Self::Fails(JournalFault::LostAnswer | JournalFault::Slow(_), _) => "no failure of the store",
            Self::Hangs(true, ..) => "commit that hangs and is written",
            Self::Hangs(false, ..) => "commit that hangs and is not written",
            Self::Strays(..) => "commit that strays",
        }
    }
}

impl PlannedEvent {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Crash(_) => "crash",
            Self::Suspend(_) => "suspension",
            Self::ActorFault(_, ActorFault::Panic) => "panic of an actor",
            Self::ActorFault(_, ActorFault::Error) => "error of an actor",
            Self::ActorFault(_, ActorFault::Kill) => "kill of an actor",
            Self::ClockJump(_) => "clock jump",
            Self::Stop(_) => "stop",
            Self::StopWithoutResume(_) => "stop at rest",
            Self::StopLate(_) => "stop while the model answers",
            Self::FaultBeforeNotice(_) => "strike at whoever has told",
            Self::StopSubagent(_) => "stop of a subagent",
            Self::Raise(..) => "limits raised",
            Self::RaiseWithoutResume(..) => "limits raised at rest",
            Self::Steer(_) => "message",
            Self::Resubmit(_) => "task once more",
            Self::Decide(_) => "decision",
            Self::DecideWithoutResume(_) => "decision at rest",
            Self::Unreadable(_) => "unreadable records",
        }
    }
}

impl PlannedTarget {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Root => "strike at the root",
            Self::Persistence => "strike at persistence",
            Self::ProviderSupervisor => "strike at the supervisor of providers",
            Self::Provider => "strike at a provider",
            Self::ToolExecutor => "strike at the executor of tools",
            Self::Compressor => "strike at the compressor",
            Self::SessionSupervisor => "strike at the supervisor of sessions",
            Self::Session(_) => "strike at a session",
            Self::Subagent(_) => "strike at a subagent",
        }
    }
}

impl ModelFault {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::RateLimited(_) => "model: rate limited",
            Self::Overloaded => "model: overloaded",
            Self::Server => "model: server error",
            Self::Network => "model: network error",
            Self::NotConnected => "model: not reached",
            Self::FailedWithUsage(_) => "model: broken, with usage",
            Self::IncompleteStream => "model: cut",
            Self::Auth => "model: not authorized",
            Self::Hang => "model: hangs",
            Self::Panic => "model: panics",
            Self::Empty => "model: empty",
            Self::ReasoningOnly => "model: only a thought",
            Self::Truncated => "model: a part",
            Self::TruncatedCalls => "model: calls cut off",
            Self::UnknownTool => "model: unknown tool",
            Self::Malformed => "model: malformed call",
            Self::Refused => "model: refuses",
            Self::TooLong => "model: babbles",
            Self::NoUsage => "model: no usage",
            Self::WrongUsage => "model: impossible usage",
        }
    }
}

impl ToolBehaviour {
    /// `None` if nothing goes wrong.
    pub(super) const fn name(self) -> Option<&'static str> {
        match self {
            Self::Well => None,
            Self::Fail => Some("tool: fails"),
            Self::PanicOnce => Some("tool: panics once"),
            Self::PanicAlways => Some("tool: panics always"),
            Self::Hang => Some("tool: hangs"),
            Self::IgnoreStop => Some("tool: ignores stops"),
            Self::PlanPanics => Some("tool: panics at its arguments"),
        }
    }
}
