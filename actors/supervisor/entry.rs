//! The directory's entry of one session: its phase with the messages that wait, its tasks and its crashes. Also whether
//! its runs are to be carried out here, and the next steps after its tasks have ended or its runs were force-failed.

use std::{mem::take, sync::Arc};

use ractor::{ActorRef, RpcReplyPort};

use crate::{
    model::Incarnation,
    policy::{ConsecutiveCrashes, RestartHistory},
    session::{CallTasks, SessionMsg},
    supervisor::SessionSeed,
    turn::CrashPoint,
};

/// The directory's state of one session. The default is a session that is being opened.
#[derive(Default)]
pub(super) struct SessionEntry {
    pub(super) phase: EntryPhase,
    /// The tasks of the current incarnation.
    pub(super) tasks: CallTasks,
    pub(super) restart_history: RestartHistory,
    pub(super) crash_count: u32,
    /// The error of its last crash; `None` once its journal was read after that.
    pub(super) last_crash: Option<String>,
    pub(super) crashes: ConsecutiveCrashes<Option<CrashPoint>>,
    pub(super) failed_reads: u32,
    pub(super) seed: Option<Arc<SessionSeed>>,
    /// Whether this process carries out its runs; never reset. Otherwise it is open only for write-only commands, which
    /// resume no run.
    pub(super) is_wanted: bool,
    /// Its actor has a write-only command, and stops after it.
    pub(super) is_write_only: bool,
    /// The incarnation as which it is open; `None` while it is being opened.
    pub(super) incarnation: Option<Incarnation>,
    /// A request to revive it arrived while it was being closed.
    pub(super) has_inbox: bool,
}

/// The phase of a session; messages for a session that is not live wait here.
pub(super) enum EntryPhase {
    Opening(Vec<SessionMsg>),
    Live(ActorRef<SessionMsg>),
    /// Its actor was requested to stop if idle; it stops, or declines.
    Passivating(ActorRef<SessionMsg>, Vec<SessionMsg>),
    /// Its actor has ended; its tasks are being ended.
    Ending(Vec<SessionMsg>, AfterTasksEnd),
    /// Its open runs are being ended without its actor.
    ForceFailing(Vec<SessionMsg>, AfterForceFail),
    /// Its actor and its tasks have ended, and the store is asked to close it. If its inbox is empty, the entry is then
    /// removed; otherwise the session stays open.
    Closing(Vec<SessionMsg>),
    /// Not wanted, but not closed by the store: its inbox has messages for the next opening.
    Idle,
    /// Quarantined, with the reason: not touched any more.
    Quarantined(String),
}

/// The next step after its tasks have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterTasksEnd {
    /// Open it again if it is wanted or messages wait.
    Revive,
    /// Open it again only if messages wait, or if it became wanted during a write-only command.
    ReviveIfWanted,
    /// Force-fail its runs: it keeps crashing.
    ForceFail,
}

/// The next step after a force-fail.
pub(super) enum AfterForceFail {
    /// The session's other runs resume.
    Resume,
    /// The session is forgotten until it is wanted again.
    Forget,
    /// The session is quarantined, with the reason.
    Quarantine(String),
    /// The session is forgotten until it is wanted again, and the caller gets its answer.
    Reply(RpcReplyPort<()>),
}

impl Default for EntryPhase {
    fn default() -> Self {
        Self::Opening(Vec::new())
    }
}

impl EntryPhase {
    /// Its actor, while it is live or being passivated.
    pub(super) const fn actor(&self) -> Option<&ActorRef<SessionMsg>> {
        if let Self::Live(actor) | Self::Passivating(actor, _) = self { Some(actor) } else { None }
    }

    /// Takes the waiting messages.
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
    /// Prepares a message for its actor. A write-only command to a wanted session becomes an ordinary one.
    pub(super) fn prepare_message(&mut self, message: SessionMsg) -> SessionMsg {
        if self.is_wanted {
            return message.with_resume();
        }
        self.is_write_only |= message.is_without_resume();
        message
    }

    /// Whether the session need not be opened again after its tasks have ended.
    pub(super) const fn is_done(&self) -> bool {
        let EntryPhase::Ending(waiting, next) = &self.phase else { return false };
        let is_finished = match next {
            // A session that became wanted during a write-only command is kept.
            AfterTasksEnd::ReviveIfWanted => !(self.is_wanted && self.is_write_only),
            AfterTasksEnd::Revive => !self.is_wanted,
            AfterTasksEnd::ForceFail => false,
        };
        is_finished && waiting.is_empty()
    }

    /// Whether the session is idle, or is being closed and was not wanted again since.
    pub(super) const fn is_leaving(&self) -> bool {
        if let EntryPhase::Closing(waiting) = &self.phase {
            return waiting.is_empty() && !self.has_inbox && !self.is_wanted;
        }
        matches!(self.phase, EntryPhase::Idle)
    }
}
