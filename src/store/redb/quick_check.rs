//! A quick check after an unclean shutdown: the unfinished runs, their rows, and the ends of their sessions. Older rows
//! are checked when they are read, and all of them by [`super::check()`]. After another boot of the machine,
//! `previous_epoch.rs` has checked the pages of the file before, unless the file is large.

use std::{collections::BTreeSet, io};

use hermod_actors::model::{RunId, RunRow, SessionId, SessionRow};
use redb::{Database, ReadTransaction, ReadableDatabase};
use serde::de::DeserializeOwned;

use super::{
    blobs::{BlobError, Blobs},
    damage::Damage,
    error::Result,
    log::{LogRow, SessionTail},
    tables::{LOG, OPEN_RUNS, RUNS, RUNS_BY_SESSION, SESSION_KEYS, SESSIONS, TAILS, for_each_row},
};

/// The result of a quick check.
#[derive(Default)]
pub(super) struct QuickCheck {
    /// Number of unfinished runs.
    pub(super) runs: usize,
    /// Damaged places of these runs and their sessions.
    pub(super) damages: Vec<Damage>,
}

/// Checks the unfinished runs.
pub(super) fn quick_check(db: &Database, blobs: &Blobs) -> Result<QuickCheck> {
    let txn = db.begin_read()?;
    let (runs, by_session) = (txn.open_table(RUNS)?, txn.open_table(RUNS_BY_SESSION)?);
    let tails = txn.open_table(TAILS)?;
    let mut check = QuickCheck::default();
    let mut sessions = BTreeSet::new();
    for_each_row(&txn, OPEN_RUNS, |id, ()| {
        check.runs += 1;
        let row = match runs.get(id)?.map(|row| read::<RunRow>(blobs, row.value())).transpose()? {
            Some(Ok(row)) => row,
            Some(Err(why)) => {
                let text = format!("the row of run {} cannot be read: {why}", RunId::from_bits(id));
                check.damages.push(Damage::store("runs", text));
                return Ok(());
            }
            None => {
                let text = format!("run {} has no row", RunId::from_bits(id));
                check.damages.push(Damage::store("open_runs", text));
                return Ok(());
            }
        };
        if by_session.get((row.session.bits(), id))?.is_none() {
            let text = format!("run {} is missing", row.id);
            check.damages.push(Damage::of(row.session, "runs_by_session", text));
        }
        let tail = SessionTail::read(&tails, row.session)?.unwrap_or_default();
        let last = tail.last;
        if !(1..=last).contains(&row.first) || !(row.first..=last).contains(&row.last) {
            let text = format!("run {} names records {} and {} of {last}", row.id, row.first, row.last);
            check.damages.push(Damage::of(row.session, "runs", text));
        }
        if sessions.insert(row.session) {
            check.session(&txn, row.session, tail, blobs)?;
        }
        Ok(())
    })?;
    Ok(check)
}

impl QuickCheck {
    /// Checks a session's row and its last log row.
    fn session(
        &mut self,
        txn: &ReadTransaction,
        session: SessionId,
        tail: SessionTail,
        blobs: &Blobs,
    ) -> Result<()> {
        let end = txn.open_table(LOG)?.get(tail.position)?.map_or_else(
            || Err(format!("row {} of the log is missing", tail.position)),
            |row| check_end(session, tail, row.value()),
        );
        if let Err(why) = end {
            self.damages.push(Damage::of(session, "appends", why).at(tail.last));
        }
        let row = txn.open_table(SESSIONS)?.get(session.bits())?;
        let (table, what) = match row.map(|row| read::<SessionRow>(blobs, row.value())).transpose()? {
            Some(Ok(row)) => {
                let owner = txn.open_table(SESSION_KEYS)?.get(&*row.key)?;
                if owner.is_some_and(|owner| owner.value() == session.bits()) {
                    return Ok(());
                }
                ("session_keys", format!("its key `{}` stands for another one", row.key))
            }
            Some(Err(why)) => ("sessions", format!("its row: {why}")),
            None => ("sessions", "it has no row".to_owned()),
        };
        self.damages.push(Damage::of(session, table, what));
        Ok(())
    }
}

/// Fails unless a session's last log row ends with the session's last record.
fn check_end(session: SessionId, tail: SessionTail, row: &[u8]) -> Result<(), String> {
    let row = LogRow::parse(session, tail.position, row)?;
    let mut last = row.first.saturating_sub(1);
    for (seq, record) in row.records() {
        record.map_err(|why| format!("record {seq}: {why}"))?;
        last = seq;
    }
    if last == tail.last {
        return Ok(());
    }
    Err(format!(
        "row {} of the log ends with record {last}, and the session with {}",
        tail.position, tail.last
    ))
}

/// Parses an index row; the inner error says why it is lost. A file that cannot be read now is an outer error: its
/// content may be intact.
fn read<T: DeserializeOwned>(blobs: &Blobs, stored: &[u8]) -> Result<Result<T, String>> {
    match blobs.json(stored) {
        Ok(row) => Ok(Ok(row)),
        Err(BlobError::Lost(why)) => Ok(Err(why)),
        Err(BlobError::System(why)) => Err(io::Error::other(why).into()),
    }
}
