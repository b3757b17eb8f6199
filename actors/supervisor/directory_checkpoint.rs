//! What outlives a directory of what it knows.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::take,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    model::{Incarnation, SessionId},
    session::CallTasks,
    supervisor::entry::SessionEntry,
};

/// What the next directory has to know of the sessions that this one knows: their tasks, so that it can end them before it
/// revives; whether they go on; and as whom they were opened. And whose runs are to go on of which no directory has heard.
#[derive(Debug, Default)]
pub(crate) struct DirectoryCheckpoint(Mutex<(BTreeMap<SessionId, CheckpointEntry>, BTreeSet<SessionId>)>);

pub(super) type CheckpointEntry = (CallTasks, bool, Option<Incarnation>);

impl DirectoryCheckpoint {
    fn lock(&self) -> MutexGuard<'_, (BTreeMap<SessionId, CheckpointEntry>, BTreeSet<SessionId>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the session's runs are to go on: whoever is told to see to it may die before.
    pub(crate) fn add_wanted(&self, session: SessionId) {
        self.lock().1.insert(session);
    }

    /// A directory has heard of it.
    pub(super) fn remove_wanted(&self, session: SessionId) {
        self.lock().1.remove(&session);
    }

    /// What a directory begins with: of what is wanted it has heard with this.
    pub(super) fn restore(&self) -> BTreeMap<SessionId, CheckpointEntry> {
        let (known, wanted) = &mut *self.lock();
        for session in take(wanted) {
            known.entry(session).or_default().1 = true;
        }
        known.clone()
    }

    pub(super) fn record(&self, session: SessionId, entry: &SessionEntry) {
        let known = (entry.tasks.clone(), entry.is_wanted, entry.incarnation);
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
        let (roster, session) = (DirectoryCheckpoint::default(), SessionId::from_bits(1));
        let wanted =
            |roster: &DirectoryCheckpoint| roster.restore().get(&session).map(|(_, goes_on, _)| *goes_on);
        let forgotten = |entry: &SessionEntry| {
            roster.record(session, entry);
            roster.forget(session);
        };
        roster.add_wanted(session);
        roster.record(session, &SessionEntry::new(None));
        assert_eq!(wanted(&roster), Some(true), "noted by a directory that has not heard of it");
        forgotten(&SessionEntry::new(None));
        assert_eq!(wanted(&roster), None, "it was heard of with the beginning");
        roster.add_wanted(session);
        forgotten(&SessionEntry::new(None));
        assert_eq!(wanted(&roster), Some(true), "forgotten by a directory that has not heard of it");
        forgotten(&SessionEntry::new(None));
        roster.add_wanted(session);
        roster.remove_wanted(session);
        assert_eq!(wanted(&roster), None);
    }
}
