//! What outlives a directory of what it knows.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::take,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    model::{Incarnation, SessionId},
    session::CallTasks,
    supervisor::entry::Entry,
};

/// What the next directory has to know of the sessions that this one knows: their tasks, so that it can end them before it
/// revives; whether they go on; and as whom they were opened. And whose runs are to go on of which no directory has heard.
#[derive(Debug, Default)]
pub(crate) struct Roster(Mutex<(BTreeMap<SessionId, Known>, BTreeSet<SessionId>)>);

pub(super) type Known = (CallTasks, bool, Option<Incarnation>);

impl Roster {
    fn lock(&self) -> MutexGuard<'_, (BTreeMap<SessionId, Known>, BTreeSet<SessionId>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the session's runs are to go on: whoever is told to see to it may die before.
    pub(crate) fn want(&self, session: SessionId) {
        self.lock().1.insert(session);
    }

    /// A directory has heard of it.
    pub(super) fn heard(&self, session: SessionId) {
        self.lock().1.remove(&session);
    }

    /// What a directory begins with: of what is wanted it has heard with this.
    pub(super) fn begin(&self) -> BTreeMap<SessionId, Known> {
        let (known, wanted) = &mut *self.lock();
        for session in take(wanted) {
            known.entry(session).or_default().1 = true;
        }
        known.clone()
    }

    pub(super) fn note(&self, session: SessionId, entry: &Entry) {
        let known = (entry.tasks.clone(), entry.goes_on, entry.incarnation);
        self.lock().0.insert(session, known);
    }

    pub(super) fn forget(&self, session: SessionId) {
        self.lock().0.remove(&session);
    }

    pub(super) fn clear(&self) {
        *self.lock() = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_stays_wanted_until_a_directory_hears_of_it() {
        let (roster, session) = (Roster::default(), SessionId::from_bits(1));
        let wanted = |roster: &Roster| roster.begin().get(&session).map(|(_, goes_on, _)| *goes_on);
        let forgotten = |entry: &Entry| {
            roster.note(session, entry);
            roster.forget(session);
        };
        roster.want(session);
        roster.note(session, &Entry::new(None));
        assert_eq!(wanted(&roster), Some(true), "noted by a directory that has not heard of it");
        forgotten(&Entry::new(None));
        assert_eq!(wanted(&roster), None, "it was heard of with the beginning");
        roster.want(session);
        forgotten(&Entry::new(None));
        assert_eq!(wanted(&roster), Some(true), "forgotten by a directory that has not heard of it");
        forgotten(&Entry::new(None));
        roster.want(session);
        roster.heard(session);
        assert_eq!(wanted(&roster), None);
    }
}
