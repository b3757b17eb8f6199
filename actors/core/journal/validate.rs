//! Validates appends: which checks there are and their order, shared by all stores. Also the check of a fence alone.
//! Writes nothing.

use super::{Append, IndexRow, Posting, SpawnedSession, WriteRefusal, post};
use crate::{
    model::{
        AccountId, Body, BudgetAccount, Incarnation, Occurrence, OccurrenceId, RunId, Seq, SessionId,
        check_readable,
    },
    mutants::{Mutant, mutant_enabled},
};

/// The state of a store after the preceding writes of the batch.
pub trait StoreView {
    /// A refusal of the write, or a failure to read the store.
    type Error: From<WriteRefusal>;

    /// The latest incarnation of a session; its revival is 0 if the session is not open in this epoch.
    fn latest_incarnation(&mut self, session: SessionId) -> Result<Incarnation, Self::Error>;

    /// The last sequence in a session's journal; 0 if it is empty. Also called for sessions that are not open.
    fn last_seq(&mut self, session: SessionId) -> Result<Seq, Self::Error>;

    /// The run of an idempotency key.
    fn run_of_key(&mut self, key: &str) -> Result<Option<RunId>, Self::Error>;

    /// The session of a session key.
    fn session_of_key(&mut self, key: &str) -> Result<Option<SessionId>, Self::Error>;

    /// True if the session's inbox has this row.
    fn has_inbox_row(&mut self, session: SessionId, row: u64) -> Result<bool, Self::Error>;

    /// The row of an occurrence of a schedule.
    fn occurrence(&mut self, id: &OccurrenceId) -> Result<Option<Occurrence>, Self::Error>;

    /// A budget account; `None` if it does not exist.
    fn account(&mut self, id: AccountId) -> Result<Option<BudgetAccount>, Self::Error>;
}

/// Checks the whole append before anything is written and returns the new state of its accounts.
pub fn validate_append<V: StoreView>(append: &Append, view: &mut V) -> Result<Vec<Posting>, V::Error> {
    let session = append.session;
    if append.is_empty() {
        return Err(
            WriteRefusal::Malformed("an append without records that takes nothing in".to_owned()).into()
        );
    }
    if !mutant_enabled(Mutant::NoFence) {
        fence(session, append.fence, view)?;
    }
    let last = view.last_seq(session)?;
    if last.checked_add(1) != Some(append.expected) {
        return Err(WriteRefusal::WrongSeq { expected: append.expected, last }.into());
    }
    if let Some((key, _)) = &append.key
        && let Some(run) = view.run_of_key(key)?
    {
        return Err(WriteRefusal::Duplicate(run).into());
    }
    validate_occurrences(append, view)?;
    validate_session_keys(append, view)?;
    for (at, row) in append.consumed.iter().enumerate() {
        if append.consumed[..at].contains(row) || !view.has_inbox_row(session, *row)? {
            return Err(WriteRefusal::Malformed(format!("the inbox of {session} has no row {row}")).into());
        }
    }
    validate_spawned(append, view)?;
    validate_records(append)?;
    post(&append.ledger, |id| view.account(id))
}

/// Refuses a record that could not be decoded again. A release build checks only the kinds that carry foreign JSON: the
/// types of all other records already refuse what the decoder refuses.
fn validate_records(append: &Append) -> Result<(), WriteRefusal> {
    let spawned = append.spawned.iter().flat_map(|spawned| &spawned.records);
    for record in append.records.iter().chain(spawned) {
        if cfg!(any(debug_assertions, feature = "mutants")) || carries_foreign_json(&record.body) {
            let kind = record.body.kind().name();
            check_readable(record).map_err(|error| WriteRefusal::Unreadable { kind, error })?;
        }
    }
    Ok(())
}

/// True if the body may hold JSON values that this program did not produce.
fn carries_foreign_json(body: &Body) -> bool {
    let has_opaque = |body: &Body| matches!(body, Body::ModelAnswered(body) if body.message.opaque.is_some());
    matches!(body, Body::RunAccepted(_)) || has_opaque(body)
}

/// Refuses a write whose incarnation is not the latest of an open session.
pub fn fence<V: StoreView>(
    session: SessionId,
    incarnation: Incarnation,
    view: &mut V,
) -> Result<(), V::Error> {
    let latest = view.latest_incarnation(session)?;
    if incarnation != latest || latest.revival == 0 {
        return Err(WriteRefusal::Fenced(latest).into());
    }
    Ok(())
}

/// Refuses sessions to spawn that exist, have no records, occur twice, or are the appending session.
fn validate_spawned<V: StoreView>(append: &Append, view: &mut V) -> Result<(), V::Error> {
    for (at, SpawnedSession { session, records }) in append.spawned.iter().enumerate() {
        let why = if *session == append.session {
            "it is the one that is appended to"
        } else if append.spawned[..at].iter().any(|before| before.session == *session) {
            "it is named twice"
        } else if records.is_empty() {
            "it has no records"
        } else if view.last_seq(*session)? > 0 {
            "it has begun already"
        } else {
            continue;
        };
        return Err(WriteRefusal::Malformed(format!("session {session} cannot be founded: {why}")).into());
    }
    Ok(())
}

/// Refuses occurrences that have a row, or occur twice.
fn validate_occurrences<V: StoreView>(append: &Append, view: &mut V) -> Result<(), V::Error> {
    if mutant_enabled(Mutant::RepeatOccurrence) {
        return Ok(());
    }
    let rows = || {
        let rows = append.index.iter();
        rows.filter_map(|index| if let IndexRow::Occurrence(row) = index { Some(row) } else { None })
    };
    for (at, row) in rows().enumerate() {
        let before = rows().take(at).find(|before| before.id == row.id).cloned();
        let Some(known) = before.map_or_else(|| view.occurrence(&row.id), |before| Ok(Some(before)))? else {
            continue;
        };
        let refusal = known.state.run().map(WriteRefusal::Duplicate);
        return Err(refusal.unwrap_or(WriteRefusal::OccurrenceLeftOut(known.id)).into());
    }
    Ok(())
}

fn validate_session_keys<V: StoreView>(append: &Append, view: &mut V) -> Result<(), V::Error> {
    let rows = || {
        let rows = append.index.iter();
        rows.filter_map(|index| if let IndexRow::Session(row) = index { Some(row) } else { None })
    };
    for row in rows() {
        let within = rows().find(|other| other.key == row.key && other.id != row.id).map(|other| other.id);
        let stored = view.session_of_key(&row.key)?.filter(|other| *other != row.id);
        if let Some(other) = stored.or(within) {
            return Err(WriteRefusal::KeyTaken(other).into());
        }
    }
    Ok(())
}
