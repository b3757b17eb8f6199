//! What the directory knows of one session.

use std::{mem::take, sync::Arc};

use ractor::{ActorRef, RpcReplyPort};

use crate::{
    model::Incarnation,
    policy::{Deaths, InARow},
    session::{CallTasks, SessionMsg},
    supervisor::NewSession,
    turn::CrashPoint,
};

/// A session that the directory knows.
pub(super) struct Entry {
    pub(super) place: Place,
    /// Those of the present incarnation.
    pub(super) tasks: CallTasks,
    pub(super) deaths: Deaths,
    pub(super) died: u32,
    /// What it has died of since its journal was last read.
    pub(super) died_of: Option<String>,
    pub(super) crashes: InARow<Option<CrashPoint>>,
    pub(super) reads: u32,
    pub(super) new: Option<Arc<NewSession>>,
    /// Somebody wants its runs to go on here; once so, always so. Else it is only here for orders at rest.
    pub(super) goes_on: bool,
    /// Its actor was given an order at rest, and ends when that is carried out.
    pub(super) rests: bool,
    /// As whom it is open; `None` while it is being opened, and nobody knows yet.
    pub(super) incarnation: Option<Incarnation>,
    /// It was called to go on while it was let go.
    pub(super) rung: bool,
}

/// Where it is; what comes in while it is not live waits here.
pub(super) enum Place {
    Opening(Vec<SessionMsg>),
    Live(ActorRef<SessionMsg>),
    /// Its actor is to end if it has nothing to do; it ends, or says that it stays.
    Resting(ActorRef<SessionMsg>, Vec<SessionMsg>),
    /// Its actor is dead; its tasks are being ended.
    Ending(Vec<SessionMsg>, Next),
    /// Open runs of it are being ended without it.
    Burying(Vec<SessionMsg>, Then),
    /// Nobody wants it any more: the store is told, which looks into its inbox, and then it is forgotten.
    Closing(Vec<SessionMsg>),
    /// Nobody wants it, and the store does not let it go: something waits in its inbox for who takes it up.
    Kept,
    /// Nothing is done with it any more: why.
    Quarantined(String),
}

/// What is done when the tasks have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Open it again.
    Revive,
    /// Open it again if somebody wants it.
    Rest,
    /// It keeps dying.
    GiveUp,
}

/// What follows on a burial.
pub(super) enum Then {
    /// The session's other runs go on.
    GoOn,
    /// The session is left alone until somebody wants it.
    Forget,
    /// The session is left alone: why.
    Quarantine(String),
    /// The session is left alone until somebody wants it; whoever wanted the burial is told.
    Tell(RpcReplyPort<()>),
}

impl Place {
    /// Takes out what waits.
    pub(super) fn take_waiting(&mut self) -> Vec<SessionMsg> {
        match self {
            Self::Opening(waiting)
            | Self::Resting(_, waiting)
            | Self::Ending(waiting, _)
            | Self::Burying(waiting, _)
            | Self::Closing(waiting) => take(waiting),
            Self::Live(_) | Self::Kept | Self::Quarantined(_) => Vec::new(),
        }
    }
}

impl Entry {
    /// One whose journal is being read.
    pub(super) fn new(new: Option<Arc<NewSession>>) -> Self {
        Self {
            place: Place::Opening(Vec::new()),
            tasks: CallTasks::default(),
            deaths: Deaths::default(),
            died: 0,
            died_of: None,
            crashes: InARow::default(),
            reads: 0,
            new,
            goes_on: false,
            rests: false,
            incarnation: None,
            rung: false,
        }
    }

    /// What its actor is given of a message: what is told at rest to a session that goes on does not bring it to rest.
    pub(super) fn hand(&mut self, message: SessionMsg) -> SessionMsg {
        if self.goes_on {
            return message.under_way();
        }
        self.rests |= message.is_at_rest();
        message
    }

    /// Whether there is nothing to open it for when its tasks have ended.
    pub(super) const fn is_done(&self) -> bool {
        match &self.place {
            Place::Ending(waiting, _) if !waiting.is_empty() => false,
            // Who wants it to go on and came while it was at rest is not forgotten.
            Place::Ending(_, Next::Rest) => !(self.goes_on && self.rests),
            Place::Ending(_, Next::Revive) => !self.goes_on,
            Place::Ending(_, Next::GiveUp)
            | Place::Opening(_)
            | Place::Live(_)
            | Place::Resting(..)
            | Place::Burying(..)
            | Place::Closing(_)
            | Place::Kept
            | Place::Quarantined(_) => false,
        }
    }

    /// Whether nothing is done with it, and nobody has asked for it since.
    pub(super) const fn is_leaving(&self) -> bool {
        match &self.place {
            Place::Closing(waiting) => waiting.is_empty() && !self.rung && !self.goes_on,
            Place::Kept => true,
            Place::Opening(_)
            | Place::Live(_)
            | Place::Resting(..)
            | Place::Ending(..)
            | Place::Burying(..)
            | Place::Quarantined(_) => false,
        }
    }
}
