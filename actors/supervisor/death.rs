//! What is done about sessions that die, and about those that nobody can open: their tasks are ended, and they are opened
//! again, or their runs are ended without them.

use std::{mem::take, sync::Arc};

use ractor::{ActorId, ActorProcessingErr, RpcReplyPort};

use crate::{
    model::{Cause, Incarnation, RunId, SessionId},
    policy::{Intensity, Verdict},
    port::JournalError,
    session::NotAccepted,
    supervisor::{
        burial::bury,
        directory::{Directory, refuse, tell},
        entry::{Entry, Next, Place, Then},
        opening::Unopened,
        sessions::Inner,
    },
};

/// A session may die so often, at whatever steps; then all its runs are.
const INTENSITY: Intensity = Intensity { deaths: 12, within_ms: 60_000 };

impl Directory {
    /// An actor has ended: by itself, or by an error.
    pub(super) fn ended(&mut self, actor: ActorId, error: Option<ActorProcessingErr>) {
        let Some(session) = self.actors.remove(&actor) else { return };
        match error {
            _ if self.suspended => {}
            Some(error) => self.died(session, &error),
            None => self.end_tasks(session, Next::Rest),
        }
    }

    pub(super) fn died(&mut self, session: SessionId, error: &ActorProcessingErr) {
        let now_ms = self.foundation.wiring.clock.monotonic_ms();
        let Some(entry) = self.entries.get_mut(&session) else { return };
        // The runtime is about to end of that; it says nothing of the session.
        if error.is::<JournalError>() {
            return self.end_tasks(session, Next::Rest);
        }
        entry.died += 1;
        entry.died_of = Some(error.to_string());
        let next = match entry.deaths.count(now_ms, INTENSITY) {
            Verdict::Restart => Next::Revive,
            Verdict::GiveUp => Next::GiveUp,
        };
        tracing::warn!(%session, %error, ?next, "session actor died");
        self.end_tasks(session, next);
    }

    pub(super) fn end_tasks(&mut self, session: SessionId, next: Next) {
        let Some(entry) = self.entries.get_mut(&session) else { return };
        entry.place = Place::Ending(entry.place.take_waiting(), next);
        let (tasks, me) = (entry.tasks.clone(), self.me.clone());
        tokio::spawn(async move {
            #[cfg(feature = "testkit")]
            if crate::mutation::planted(crate::mutation::Mutation::ReviveEarly) {
                tasks.outlive();
            }
            tasks.end().await;
            tell(&me, Inner::TasksEnded(session));
        });
    }

    pub(super) fn tasks_ended(&mut self, session: SessionId) {
        let Some(entry) = self.entries.get_mut(&session) else { return };
        if entry.is_done() {
            return self.forget(session);
        }
        let Place::Ending(waiting, next) = &mut entry.place else { return };
        match *next {
            Next::GiveUp => {
                let error = entry.died_of.take().unwrap_or_else(|| "its actor keeps dying".into());
                self.bury(session, None, Cause::CrashLoop { error }, Then::Forget);
            }
            Next::Rest | Next::Revive => {
                entry.place = Place::Opening(take(waiting));
                self.open(session);
            }
        }
    }

    /// Ends a run as `failed(crash_loop)` without opening its session, which must not be here yet.
    pub(super) fn give_up(
        &mut self,
        (session, run): (SessionId, RunId),
        error: String,
        reply: RpcReplyPort<()>,
    ) {
        let is_here = self.entries.get(&session).is_some_and(|entry| !entry.is_leaving());
        if self.suspended || is_here {
            tracing::warn!(%session, %run, "a run of a session that is here is not given up");
            return;
        }
        self.entries.entry(session).or_insert_with(|| Entry::new(None));
        self.bury(session, Some(run), Cause::CrashLoop { error }, Then::Tell(reply));
    }

    /// Ends open runs of the session, or one of them, for nobody else will; until that is done, what comes in waits.
    pub(super) fn bury(&mut self, session: SessionId, run: Option<RunId>, cause: Cause, then: Then) {
        tracing::error!(%session, %cause, "the session's runs are ended");
        let Some(entry) = self.entries.get_mut(&session) else { return };
        entry.place = Place::Burying(entry.place.take_waiting(), then);
        let (foundation, me) = (Arc::clone(&self.foundation), self.me.clone());
        let opening = self.take_over(session);
        tokio::spawn(async move {
            let buried = bury(&*foundation.journal, &foundation.wiring, (session, run), cause, opening).await;
            tell(&me, Inner::Buried(session, buried));
        });
    }

    /// The runs have their end, or not. An error is one of the store and ends this actor.
    pub(super) fn buried(
        &mut self,
        session: SessionId,
        buried: Result<Incarnation, Unopened>,
    ) -> Result<(), ActorProcessingErr> {
        let incarnation = match buried {
            Ok(incarnation) => Some(incarnation),
            Err(Unopened::Write(_)) => return Ok(()),
            Err(Unopened::Read(error)) => return Err(error.into()),
            Err(Unopened::Unreadable(error)) => {
                tracing::error!(%session, error, "its runs cannot be ended");
                None
            }
        };
        let Some(entry) = self.entries.get_mut(&session) else { return Ok(()) };
        entry.incarnation = incarnation;
        let waiting = entry.place.take_waiting();
        match std::mem::replace(&mut entry.place, Place::Opening(Vec::new())) {
            Place::Burying(_, Then::GoOn) => {
                entry.place = Place::Opening(waiting);
                self.open(session);
            }
            Place::Burying(_, Then::Forget) => {
                self.forget(session);
                let why = NotAccepted::KeepsDying(session);
                waiting.into_iter().for_each(|message| refuse(Some(message), &why));
            }
            Place::Burying(_, Then::Tell(reply)) => {
                if waiting.is_empty() && !entry.goes_on {
                    self.forget(session);
                } else {
                    entry.place = Place::Opening(waiting);
                    self.open(session);
                }
                if reply.send(()).is_err() {
                    tracing::debug!(%session, "nobody waits for the burial any more");
                }
            }
            Place::Burying(_, Then::Quarantine(why)) => {
                let refusal = NotAccepted::Quarantined { session, error: why.clone() };
                entry.place = Place::Quarantined(why);
                waiting.into_iter().for_each(|message| refuse(Some(message), &refusal));
            }
            other @ (Place::Opening(_)
            | Place::Live(_)
            | Place::Resting(..)
            | Place::Ending(..)
            | Place::Closing(_)
            | Place::Kept
            | Place::Quarantined(_)) => entry.place = other,
        }
        Ok(())
    }
}
