//! Passivation: the actor of an idle session stops, and nothing of the session stays in memory. `forget` also closes
//! other sessions in the store: those that were force-failed, or have nothing to do.
//!
//! From the request until the actor's answer, messages wait in the directory. So none is lost in the mailbox of a
//! stopped actor, and none overtakes another.

use std::{mem::take, sync::Arc, time::Duration};

use ractor::{ActorId, ActorRef};
use tokio::{sync::oneshot, task::JoinSet};

use crate::{
    model::{Incarnation, SessionId},
    persistence::{self, WriteResult},
    port::OpenedSession,
    session::SessionMsg,
    supervisor::{
        PersistenceRef, SessionsMsg,
        directory::{Directory, send},
        entry::{EntryPhase, SessionEntry},
        sessions::SessionsInternalMsg,
    },
};

/// The least time between two scans is the idle time divided by this: an idle session is found late by at most that.
const SCAN_DIVISOR: u32 = 8;
/// Scans are not more frequent than this.
const MIN_SCAN_INTERVAL: Duration = Duration::from_millis(100);

impl Directory {
    /// Scans for idle sessions after this time, unless a scan is scheduled already.
    pub(super) fn schedule_scan(&mut self, time: Duration) {
        if self.scan_timer.is_some() || self.is_suspended {
            return;
        }
        let (me, mut timer) = (self.me.clone(), JoinSet::new());
        timer.spawn(async move {
            tokio::time::sleep(time.max(MIN_SCAN_INTERVAL)).await;
            send(&me, SessionsInternalMsg::ScanIdle);
        });
        self.scan_timer = Some(timer);
    }

    /// Requests the passivation of sessions that are idle for long enough, and schedules the next scan.
    pub(super) fn scan_idle(&mut self) {
        self.scan_timer = None;
        let idle = self.parts.idle;
        let now = Duration::from_millis(self.parts.clock.monotonic_ms());
        let mut next = None::<Duration>;
        for (session, entry) in &mut self.entries {
            let EntryPhase::Live(_) = entry.phase else { continue };
            let since = entry.tasks.idle_since().map(Duration::from_millis);
            let left = since.map_or(idle, |since| since.saturating_add(idle).saturating_sub(now));
            if left.is_zero() {
                request_passivation(&self.me, *session, entry);
            } else {
                next = Some(next.map_or(left, |next| next.min(left)));
            }
        }
        if let Some(next) = next {
            self.schedule_scan(next.max(idle / SCAN_DIVISOR));
        }
    }

    /// Requests the passivation of a session, however long it is idle.
    pub(super) fn passivate(&mut self, session: SessionId) {
        if let Some(entry) = self.entries.get_mut(&session) {
            request_passivation(&self.me, session, entry);
        }
    }

    /// An actor declined its passivation: it has work.
    pub(super) fn on_passivation_declined(&mut self, session: SessionId, actor: ActorId) {
        let Some(entry) = self.entries.get_mut(&session) else { return };
        let EntryPhase::Passivating(resting, waiting) = &mut entry.phase else { return };
        if resting.get_id() != actor {
            return;
        }
        let (actor, waiting) = (resting.clone(), take(waiting));
        entry.phase = EntryPhase::Live(actor);
        waiting.into_iter().for_each(|message| self.deliver(session, None, Some(message)));
        self.schedule_scan(self.parts.idle);
    }

    /// Closes a session in the store; `on_closed` then forgets it. Until then its entry stays, because each session
    /// that is open in the store has one.
    pub(super) fn forget(&mut self, session: SessionId) {
        let Some(entry) = self.entries.get_mut(&session) else { return };
        let incarnation = entry.incarnation;
        let (is_wanted, waiting) = (entry.is_wanted, entry.phase.take_waiting());
        *entry = SessionEntry { phase: EntryPhase::Closing(waiting), is_wanted, ..SessionEntry::default() };
        entry.incarnation = incarnation;
        let (parts, me) = (Arc::clone(&self.parts), self.me.clone());
        // An opening was under way, perhaps of an earlier directory: its write is queued before this one, or never
        // comes.
        let opening = incarnation.is_none().then(|| persistence::open(&parts.persistence, session));
        tokio::spawn(async move {
            let closed = close(&parts.persistence, session, incarnation, opening).await;
            send(&me, SessionsInternalMsg::Closed(session, closed));
        });
    }

    /// The store has closed a session, or its inbox has messages.
    pub(super) fn on_closed(&mut self, session: SessionId, closed: WriteResult<bool>) {
        let Some(entry) = self.entries.get_mut(&session) else { return };
        let EntryPhase::Closing(waiting) = &mut entry.phase else { return };
        let has_inbox = match closed {
            Ok(Ok(is_closed)) => !is_closed,
            // Another opening has taken it over.
            Ok(Err(_)) => false,
            // The runtime is about to end.
            Err(error) => return tracing::debug!(%session, %error, "not closed"),
        };
        let is_wanted = !waiting.is_empty() || entry.has_inbox || (has_inbox && entry.is_wanted);
        if is_wanted {
            entry.has_inbox = false;
            entry.phase = EntryPhase::Opening(take(waiting));
            self.open(session);
        } else if has_inbox {
            entry.phase = EntryPhase::Idle;
        } else {
            self.entries.remove(&session);
            self.parts.checkpoint.forget(session);
        }
    }
}

/// Closes the session as this incarnation, or as the one that `opening` returns.
async fn close(
    writer: &PersistenceRef,
    session: SessionId,
    incarnation: Option<Incarnation>,
    opening: Option<impl Future<Output = WriteResult<OpenedSession>>>,
) -> WriteResult<bool> {
    let incarnation = match (incarnation, opening) {
        (Some(incarnation), _) => incarnation,
        (None, Some(opening)) => match opening.await? {
            Ok(opened) => opened.incarnation,
            Err(refusal) => return Ok(Err(refusal)),
        },
        (None, None) => return Ok(Ok(true)),
    };
    persistence::close(writer, session, incarnation).await
}

/// Asks a live session to stop if it is idle.
fn request_passivation(me: &ActorRef<SessionsMsg>, session: SessionId, entry: &mut SessionEntry) {
    let EntryPhase::Live(actor) = &entry.phase else { return };
    let (declined, on_decline) = oneshot::channel();
    // The supervision event of a crashed actor is on its way.
    if actor.cast(SessionMsg::Passivate(declined.into())).is_err() {
        return;
    }
    let (me, actor) = (me.clone(), actor.clone());
    let id = actor.get_id();
    entry.phase = EntryPhase::Passivating(actor, Vec::new());
    tokio::spawn(async move {
        if on_decline.await.is_ok() {
            send(&me, SessionsInternalMsg::PassivationDeclined(session, id));
        }
    });
}
