//! What the directory knows of one session.

use std::{mem::take, sync::Arc};

use ractor::{ActorRef, RpcReplyPort};

use crate::{
    model::Incarnation,
    policy::{ConsecutiveCrashes, RestartHistory},
    session::{CallTasks, SessionMsg},
    supervisor::SessionSeed,
    turn::CrashPoint,
};

/// A session that the directory knows.
pub(super) struct SessionEntry {
    pub(super) phase: EntryPhase,
    /// Those of the present incarnation.
    pub(super) tasks: CallTasks,
    pub(super) restart_history: RestartHistory,
    pub(super) crash_count: u32,
    /// What it has died of since its journal was last read.
    pub(super) last_crash: Option<String>,
    pub(super) crashes: ConsecutiveCrashes<Option<CrashPoint>>,
    pub(super) failed_reads: u32,
    pub(super) seed: Option<Arc<SessionSeed>>,
    /// Somebody wants its runs to go on here; once so, always so. Else it is only here for orders at rest.
    pub(super) is_wanted: bool,
    /// Its actor was given an order at rest, and ends when that is carried out.
    pub(super) is_write_only: bool,
    /// As whom it is open; `None` while it is being opened, and nobody knows yet.
    pub(super) incarnation: Option<Incarnation>,
    /// It was called to go on while it was let go.
    pub(super) has_inbox: bool,
}

/// Where it is; what comes in while it is not live waits here.
pub(super) enum EntryPhase {
    Opening(Vec<SessionMsg>),
    Live(ActorRef<SessionMsg>),
    /// Its actor is to end if it has nothing to do; it ends, or says that it stays.
    Passivating(ActorRef<SessionMsg>, Vec<SessionMsg>),
    /// Its actor is dead; its tasks are being ended.
    Ending(Vec<SessionMsg>, AfterTasksEnd),
    /// Open runs of it are being ended without it.
    ForceFailing(Vec<SessionMsg>, AfterForceFail),
    /// Nobody wants it any more: the store is told, which looks into its inbox, and then it is forgotten.
    Closing(Vec<SessionMsg>),
    /// Nobody wants it, and the store does not let it go: something waits in its inbox for who takes it up.
    Idle,
    /// Nothing is done with it any more: why.
    Quarantined(String),
}

/// What is done when the tasks have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterTasksEnd {
    /// Open it again.
    Revive,
    /// Open it again if somebody wants it.
    ReviveIfWanted,
    /// It keeps dying.
    ForceFail,
}

/// What follows on a burial.
pub(super) enum AfterForceFail {
    /// The session's other runs go on.
    Resume,
    /// The session is left alone until somebody wants it.
    Forget,
    /// The session is left alone: why.
    Quarantine(String),
    /// The session is left alone until somebody wants it; whoever wanted the burial is told.
    Reply(RpcReplyPort<()>),
}

impl EntryPhase {
    /// Takes out what waits.
    pub(super) fn take_waiting(&mut self) -> Vec<SessionMsg> {
        match self {
            Self::Opening(waiting)
            | Self::Passivating(_, waiting)
            | Self::Ending(waiting, _)
            | Self::ForceFailing(waiting, _)
            | Self::Closing(waiting) => take(waiting),
            Self::Live(_) | Self::Idle | Self::Quarantined(_) => Vec::new(),
        }
    }
}

impl SessionEntry {
    /// One whose journal is being read.
    pub(super) fn new(seed: Option<Arc<SessionSeed>>) -> Self {
        Self {
            phase: EntryPhase::Opening(Vec::new()),
            tasks: CallTasks::default(),
            restart_history: RestartHistory::default(),
            crash_count: 0,
            last_crash: None,
            crashes: ConsecutiveCrashes::default(),
            failed_reads: 0,
            seed,
            is_wanted: false,
            is_write_only: false,
            incarnation: None,
            has_inbox: false,
        }
    }

    /// What its actor is given of a message: what is told at rest to a session that goes on does not bring it to rest.
    pub(super) fn prepare_message(&mut self, message: SessionMsg) -> SessionMsg {
        if self.is_wanted {
            return message.with_resume();
        }
        self.is_write_only |= message.is_without_resume();
        message
    }

    /// Whether there is nothing to open it for when its tasks have ended.
    pub(super) const fn is_done(&self) -> bool {
        match &self.phase {
            EntryPhase::Ending(waiting, _) if !waiting.is_empty() => false,
            // Who wants it to go on and came while it was at rest is not forgotten.
            EntryPhase::Ending(_, AfterTasksEnd::ReviveIfWanted) => !(self.is_wanted && self.is_write_only),
            EntryPhase::Ending(_, AfterTasksEnd::Revive) => !self.is_wanted,
            EntryPhase::Ending(_, AfterTasksEnd::ForceFail)
            | EntryPhase::Opening(_)
            | EntryPhase::Live(_)
            | EntryPhase::Passivating(..)
            | EntryPhase::ForceFailing(..)
            | EntryPhase::Closing(_)
            | EntryPhase::Idle
            | EntryPhase::Quarantined(_) => false,
        }
    }

    /// Whether nothing is done with it, and nobody has asked for it since.
    pub(super) const fn is_leaving(&self) -> bool {
        match &self.phase {
            EntryPhase::Closing(waiting) => waiting.is_empty() && !self.has_inbox && !self.is_wanted,
            EntryPhase::Idle => true,
            EntryPhase::Opening(_)
            | EntryPhase::Live(_)
            | EntryPhase::Passivating(..)
            | EntryPhase::Ending(..)
            | EntryPhase::ForceFailing(..)
            | EntryPhase::Quarantined(_) => false,
        }
    }
}
