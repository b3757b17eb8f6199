//! The part of a directory that outlives it. After a crash of SessionSupervisor, the next directory ends the old tasks
//! and revives the sessions by it. Kept in memory only.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::take,
    sync::Mutex,
};

use crate::{
    lock,
    model::{Incarnation, SessionId},
    session::CallTasks,
    supervisor::entry::SessionEntry,
};

/// The state that a restarted directory needs: the tasks of each session, which it ends before it revives; whether the
/// session is wanted (its runs are to be carried out here); its incarnation. Also the wanted sessions that no directory
/// has received yet.
#[derive(Debug, Default)]
pub(crate) struct DirectoryCheckpoint(Mutex<(BTreeMap<SessionId, CheckpointEntry>, BTreeSet<SessionId>)>);

pub(super) type CheckpointEntry = (CallTasks, bool, Option<Incarnation>);

impl DirectoryCheckpoint {
    /// Notes that the session's runs are to be resumed. The supervisor may crash before it handles the request to
    /// revive.
    pub(crate) fn add_wanted(&self, session: SessionId) {
        lock(&self.0).1.insert(session);
    }

    /// A directory has received the request to revive.
    pub(super) fn remove_wanted(&self, session: SessionId) {
        lock(&self.0).1.remove(&session);
    }

    /// The initial state of a directory; it includes the wanted sessions.
    pub(super) fn restore(&self) -> BTreeMap<SessionId, CheckpointEntry> {
        let (known, wanted) = &mut *lock(&self.0);
        for session in take(wanted) {
            known.entry(session).or_default().1 = true;
        }
        known.clone()
    }

    pub(super) fn record(&self, session: SessionId, entry: &SessionEntry) {
        let known = (entry.tasks.clone(), entry.is_wanted, entry.incarnation);
        lock(&self.0).0.insert(session, known);
    }

    pub(super) fn forget(&self, session: SessionId) {
        lock(&self.0).0.remove(&session);
    }

    pub(super) fn clear(&self) {
        *lock(&self.0) = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_stays_wanted_until_a_directory_hears_of_it() {
        let (checkpoint, session) = (DirectoryCheckpoint::default(), SessionId::from_bits(1));
        let wanted = |checkpoint: &DirectoryCheckpoint| {
            checkpoint.restore().get(&session).map(|(_, is_wanted, _)| *is_wanted)
        };
        let forgotten = |entry: &SessionEntry| {
            checkpoint.record(session, entry);
            checkpoint.forget(session);
        };
        checkpoint.add_wanted(session);
        checkpoint.record(session, &SessionEntry::default());
        assert_eq!(wanted(&checkpoint), Some(true), "noted by a directory that has not heard of it");
        forgotten(&SessionEntry::default());
        assert_eq!(wanted(&checkpoint), None, "it was heard of with the beginning");
        checkpoint.add_wanted(session);
        forgotten(&SessionEntry::default());
        assert_eq!(wanted(&checkpoint), Some(true), "forgotten by a directory that has not heard of it");
        forgotten(&SessionEntry::default());
        checkpoint.add_wanted(session);
        checkpoint.remove_wanted(session);
        assert_eq!(wanted(&checkpoint), None);
    }
}
