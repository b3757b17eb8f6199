//! Which session a client continues that brings its whole conversation. Kept in memory only: after a restart, such a client
//! gets a new session with the history that it brings.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hermod_actors::model::{Hash, RunId, SessionId};

/// Most conversations that are remembered; the oldest is forgotten first.
const MAX_CONVERSATIONS: usize = 10_000;

/// The session of a conversation, and the run that gave its last answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastAnswer {
    pub(super) session: SessionId,
    pub(super) run: RunId,
}

/// The sessions of conversations, by the hash of all that was said. A clone shares them.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownSessions(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// With the number of the insertion.
    by_prefix: HashMap<Hash, (u64, LastAnswer)>,
    by_age: BTreeMap<u64, Hash>,
    insertions: u64,
    /// Sessions to which a run is being submitted.
    claimed: HashSet<SessionId>,
}

/// The right to submit the next run of a session; given back when it is dropped.
#[derive(Debug)]
pub(super) struct SessionClaim {
    sessions: KnownSessions,
    session: SessionId,
}

impl KnownSessions {
    /// Remembers that this conversation is in a session.
    pub(super) fn put(&self, prefix: Hash, answer: LastAnswer) {
        let mut state = self.state();
        state.remove(prefix);
        state.insertions += 1;
        let number = state.insertions;
        state.by_prefix.insert(prefix, (number, answer));
        state.by_age.insert(number, prefix);
        while state.by_prefix.len() > MAX_CONVERSATIONS
            && let Some((_, oldest)) = state.by_age.pop_first()
        {
            state.by_prefix.remove(&oldest);
        }
    }

    /// The session of a conversation. It is forgotten: another request with the same conversation begins a new session.
    pub(super) fn take(&self, prefix: Hash) -> Option<LastAnswer> {
        self.state().remove(prefix)
    }

    /// Claims the next run of a session; `None` if another request has claimed it.
    pub(super) fn claim(&self, session: SessionId) -> Option<SessionClaim> {
        let is_free = self.state().claimed.insert(session);
        is_free.then(|| SessionClaim { sessions: self.clone(), session })
    }

    /// Ignores poisoning: a panic between two updates only forgets a conversation.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remove(&mut self, prefix: Hash) -> Option<LastAnswer> {
        let (number, answer) = self.by_prefix.remove(&prefix)?;
        self.by_age.remove(&number);
        Some(answer)
    }
}

impl SessionClaim {
    pub(super) const fn session(&self) -> SessionId {
        self.session
    }
}

impl Drop for SessionClaim {
    fn drop(&mut self) {
        self.sessions.state().claimed.remove(&self.session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(n: u128) -> LastAnswer {
        LastAnswer { session: SessionId::from_bits(n), run: RunId::from_bits(n) }
    }

    fn prefix(n: usize) -> Hash {
        Hash::of(&n.to_le_bytes())
    }

    #[test]
    fn a_conversation_is_taken_once() {
        let sessions = KnownSessions::default();
        sessions.put(prefix(1), answer(1));
        sessions.put(prefix(1), answer(2));
        assert_eq!(sessions.take(prefix(1)), Some(answer(2)));
        assert_eq!(sessions.take(prefix(1)), None);
    }

    #[test]
    fn the_oldest_conversations_are_forgotten() {
        let sessions = KnownSessions::default();
        (0..MAX_CONVERSATIONS).for_each(|n| sessions.put(prefix(n), answer(1)));
        sessions.put(prefix(0), answer(2));
        sessions.put(prefix(MAX_CONVERSATIONS), answer(3));
        assert_eq!(sessions.take(prefix(1)), None);
        assert_eq!(sessions.take(prefix(0)), Some(answer(2)));
        assert_eq!(sessions.take(prefix(2)), Some(answer(1)));
        let state = sessions.state();
        assert_eq!(
            (state.by_prefix.len(), state.by_age.len()),
            (MAX_CONVERSATIONS - 2, MAX_CONVERSATIONS - 2)
        );
    }

    #[test]
    fn one_request_at_a_time_continues_a_session() {
        let sessions = KnownSessions::default();
        let session = SessionId::from_bits(1);
        let claim = sessions.claim(session);
        assert!(claim.is_some() && sessions.claim(session).is_none());
        drop(claim);
        assert!(sessions.claim(session).is_some());
    }
}
