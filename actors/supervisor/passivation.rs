//! How sessions with nothing to do are put to rest and forgotten: their actor ends, and nothing is kept of them in memory.
//!
//! From the moment in which an actor is asked to end until it has said what it does, what comes in waits with the
//! directory, so that nothing is lost in a mailbox that nobody reads any more, and nothing is overtaken.

use std::{mem::take, sync::Arc, time::Duration};

use ractor::{ActorId, ActorRef};
use tokio::{sync::oneshot, task::JoinSet};

use crate::{
    model::{Incarnation, SessionId},
    persistence::Stored,
    port::{JournalError, Write},
    session::SessionMsg,
    supervisor::{
        SessionsMsg, Writer,
        burial::write,
        directory::{Directory, tell},
        entry::{Entry, Place},
        sessions::Inner,
    },
};

/// An idle session is found late by at most this part of the time that it may be idle,
const LATE: u32 = 8;
/// or by this: it is not looked more often.
const SHORTEST: Duration = Duration::from_millis(100);

impl Directory {
    /// Looks for idle sessions after this time, unless that is to be done already.
    pub(super) fn look_in(&mut self, time: Duration) {
        if self.looking.is_some() || self.suspended {
            return;
        }
        let (me, mut timer) = (self.me.clone(), JoinSet::new());
        timer.spawn(async move {
            tokio::time::sleep(time.max(SHORTEST)).await;
            tell(&me, Inner::Look);
        });
        self.looking = Some(timer);
    }

    /// Asks those to end that have been idle for long, and looks again when the next of them will have been.
    pub(super) fn look(&mut self) {
        self.looking = None;
        let idle = self.foundation.idle;
        let now = Duration::from_millis(self.foundation.wiring.clock.monotonic_ms());
        let mut next = None::<Duration>;
        for (session, entry) in &mut self.entries {
            let Place::Live(_) = entry.place else { continue };
            let since = entry.tasks.idle_since().map(Duration::from_millis);
            let left = since.map_or(idle, |since| since.saturating_add(idle).saturating_sub(now));
            if left.is_zero() {
                ask_to_end(&self.me, *session, entry);
            } else {
                next = Some(next.map_or(left, |next| next.min(left)));
            }
        }
        if let Some(next) = next {
            self.look_in(next.max(idle / LATE));
        }
    }

    /// An actor that was asked to end has something to do.
    pub(super) fn stays(&mut self, session: SessionId, actor: ActorId) {
        let Some(entry) = self.entries.get_mut(&session) else { return };
        let Place::Resting(resting, waiting) = &mut entry.place else { return };
        if resting.get_id() != actor {
            return;
        }
        let (actor, waiting) = (resting.clone(), take(waiting));
        entry.place = Place::Live(actor);
        waiting.into_iter().for_each(|message| self.deliver(session, None, Some(message)));
        self.look_in(self.foundation.idle);
    }

    /// Forgets a session that nobody wants: the store first, so that it never takes it for open while nobody knows it.
    pub(super) fn forget(&mut self, session: SessionId) {
        let Some(entry) = self.entries.get_mut(&session) else { return };
        let incarnation = entry.incarnation;
        let (goes_on, waiting) = (entry.goes_on, entry.place.take_waiting());
        *entry = Entry { place: Place::Closing(waiting), goes_on, ..Entry::new(None) };
        entry.incarnation = incarnation;
        let (wiring, me) = (Arc::clone(&self.foundation.wiring), self.me.clone());
        // Somebody was about to open it, perhaps in an earlier directory: that is behind this, or never comes.
        let opening = incarnation.is_none().then(|| write(&wiring.persistence, Write::Open(session)));
        tokio::spawn(async move {
            let closed = close(&wiring.persistence, session, (incarnation, opening)).await;
            tell(&me, Inner::Closed(session, closed));
        });
    }

    /// The store has let a session go, or something waits in its inbox.
    pub(super) fn closed(&mut self, session: SessionId, closed: Result<Stored, JournalError>) {
        let Some(entry) = self.entries.get_mut(&session) else { return };
        let Place::Closing(waiting) = &mut entry.place else { return };
        let has_inbox = match closed {
            Ok(Stored::Closed(is_gone)) => !is_gone,
            // Somebody has taken it over.
            Ok(Stored::Refused(_) | Stored::Appended(_) | Stored::Opened(_) | Stored::Delivered) => false,
            // The runtime is about to end of that.
            Err(error) => return tracing::debug!(%session, %error, "not closed"),
        };
        let is_wanted = !waiting.is_empty() || entry.rung || (has_inbox && entry.goes_on);
        if is_wanted {
            entry.rung = false;
            entry.place = Place::Opening(take(waiting));
            self.open(session);
        } else if has_inbox {
            entry.place = Place::Kept;
        } else {
            self.entries.remove(&session);
            self.foundation.roster.forget(session);
        }
    }
}

/// Lets the session go that is open as this incarnation, or as the one that `opening` gives it.
async fn close(
    writer: &Writer,
    session: SessionId,
    (incarnation, opening): (Option<Incarnation>, Option<impl Future<Output = Result<Stored, JournalError>>>),
) -> Result<Stored, JournalError> {
    let incarnation = match (incarnation, opening) {
        (Some(incarnation), _) => incarnation,
        (None, Some(opening)) => match opening.await? {
            Stored::Opened(opened) => opened.incarnation,
            other @ (Stored::Refused(_) | Stored::Appended(_) | Stored::Closed(_) | Stored::Delivered) => {
                return Ok(other);
            }
        },
        (None, None) => return Ok(Stored::Closed(true)),
    };
    write(writer, Write::Close(session, incarnation)).await
}

/// Asks a live session to end if it has nothing to do.
fn ask_to_end(me: &ActorRef<SessionsMsg>, session: SessionId, entry: &mut Entry) {
    let Place::Live(actor) = &entry.place else { return };
    let (stays, staying) = oneshot::channel();
    // The event of a dead one is on its way.
    if actor.cast(SessionMsg::Rest(stays.into())).is_err() {
        return;
    }
    let (me, actor) = (me.clone(), actor.clone());
    let id = actor.get_id();
    entry.place = Place::Resting(actor, Vec::new());
    tokio::spawn(async move {
        if staying.await.is_ok() {
            tell(&me, Inner::Stays(session, id));
        }
    });
}
