//! Whether an append is to be written: the checks and their order, one for all stores.

use super::{Append, Founded, Index, Posting, Refusal, post};
use crate::{
    model::{Account, AccountId, Body, Incarnation, RunId, Seq, SessionId, check_readable},
    mutation::{Mutation, planted},
};

/// What a store knows, as the writes before this one left it.
pub trait View {
    /// Why a check ends: a refusal, or that the store cannot be read.
    type Stop: From<Refusal>;

    /// The latest incarnation of a session; revival 0 if it is not open in this epoch.
    fn latest(&mut self, session: SessionId) -> Result<Incarnation, Self::Stop>;

    /// The last sequence in a session's journal; 0 if it has none. Asked about sessions that nobody has open too.
    fn last(&mut self, session: SessionId) -> Result<Seq, Self::Stop>;

    /// The run that an idempotency key stands for.
    fn run_of_key(&mut self, key: &str) -> Result<Option<RunId>, Self::Stop>;

    /// The session that has a key.
    fn session_of_key(&mut self, key: &str) -> Result<Option<SessionId>, Self::Stop>;

    /// Whether a session's inbox has a row.
    fn waits(&mut self, session: SessionId, row: u64) -> Result<bool, Self::Stop>;

    /// An account.
    fn account(&mut self, id: AccountId) -> Result<Option<Account>, Self::Stop>;
}

/// Checks all of an append before any of it is written, and says what becomes of its accounts.
pub fn admit<V: View>(append: &Append, view: &mut V) -> Result<Vec<Posting>, V::Stop> {
    let session = append.session;
    if append.records.is_empty() && append.take.is_empty() {
        return Err(Refusal::Malformed("an append without records that takes nothing in".to_owned()).into());
    }
    if !planted(Mutation::NoFence) {
        fence(session, append.fence, view)?;
    }
    let last = view.last(session)?;
    if last.checked_add(1) != Some(append.expected) {
        return Err(Refusal::WrongSeq { expected: append.expected, last }.into());
    }
    if let Some((key, _)) = &append.key
        && let Some(run) = view.run_of_key(key)?
    {
        return Err(Refusal::Duplicate(run).into());
    }
    session_keys(append, view)?;
    for (at, row) in append.take.iter().enumerate() {
        if append.take[..at].contains(row) || !view.waits(session, *row)? {
            return Err(Refusal::Malformed(format!("the inbox of {session} has no row {row}")).into());
        }
    }
    beginnings(append, view)?;
    readable(append)?;
    post(&append.ledger, |id| view.account(id))
}

/// Refuses a record that could not be read back. A release build tries only the kinds that carry JSON from outside: every
/// other record is made of types that refuse what the reader refuses.
fn readable(append: &Append) -> Result<(), Refusal> {
    let founded = append.found.iter().flat_map(|founded| &founded.records);
    for record in append.records.iter().chain(founded) {
        if cfg!(any(debug_assertions, feature = "testkit")) || carries_foreign_json(&record.body) {
            let kind = record.body.kind().name();
            check_readable(record).map_err(|error| Refusal::Unreadable { kind, error })?;
        }
    }
    Ok(())
}

/// Whether the body may hold JSON values that this program did not make.
fn carries_foreign_json(body: &Body) -> bool {
    let has_opaque = |body: &Body| matches!(body, Body::ModelAnswered(body) if body.message.opaque.is_some());
    matches!(body, Body::RunAccepted(_)) || has_opaque(body)
}

/// Refuses whoever is not the latest incarnation of an open session.
pub fn fence<V: View>(session: SessionId, incarnation: Incarnation, view: &mut V) -> Result<(), V::Stop> {
    let latest = view.latest(session)?;
    if incarnation != latest || latest.revival == 0 {
        return Err(Refusal::Fenced(latest).into());
    }
    Ok(())
}

/// Refuses what would not be the beginning of a session of its own.
fn beginnings<V: View>(append: &Append, view: &mut V) -> Result<(), V::Stop> {
    for (at, Founded { session, records }) in append.found.iter().enumerate() {
        let why = if *session == append.session {
            "it is the one that is appended to"
        } else if append.found[..at].iter().any(|before| before.session == *session) {
            "it is named twice"
        } else if records.is_empty() {
            "it has no records"
        } else if view.last(*session)? > 0 {
            "it has begun already"
        } else {
            continue;
        };
        return Err(Refusal::Malformed(format!("session {session} cannot be founded: {why}")).into());
    }
    Ok(())
}

fn session_keys<V: View>(append: &Append, view: &mut V) -> Result<(), V::Stop> {
    let rows = || {
        append.index.iter().filter_map(|index| match index {
            Index::Session(row) => Some(row),
            Index::Run(_) | Index::Model(_) => None,
        })
    };
    for row in rows() {
        let within = rows().find(|other| other.key == row.key && other.id != row.id).map(|other| other.id);
        let stored = view.session_of_key(&row.key)?.filter(|other| *other != row.id);
        if let Some(other) = stored.or(within) {
            return Err(Refusal::KeyTaken(other).into());
        }
    }
    Ok(())
}
