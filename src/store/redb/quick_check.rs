//! A quick check after an unclean shutdown: the unfinished runs, their rows, and the ends of their sessions. Older rows
//! are checked when they are read, and all of them by [`super::check()`]. After another boot of the machine,
//! `previous_epoch.rs` has checked the pages of the file before, unless the file is large.

use std::{collections::BTreeSet, io};

use hermod_actors::model::{RunId, RunRow, SessionId, SessionRow};
use redb::{Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable};

use super::{
    blobs::{BlobError, Blobs},
    damage::Damage,
    error::StoreError,
    log::{LogRow, SessionTail},
    tables::{LOG, OPEN_RUNS, RUNS, RUNS_BY_SESSION, SESSION_KEYS, SESSIONS, TAILS},
};

/// The result of a quick check.
pub(super) struct QuickCheck {
    /// Number of unfinished runs.
    pub(super) runs: usize,
    /// Damaged places of these runs and their sessions.
    pub(super) damages: Vec<Damage>,
}

/// Checks the unfinished runs.
pub(super) fn quick_check(db: &Database, blobs: &Blobs) -> Result<QuickCheck, StoreError> {
    let txn = db.begin_read()?;
    let (runs, by_session) = (txn.open_table(RUNS)?, txn.open_table(RUNS_BY_SESSION)?);
    let ends = SessionEnds::of(&txn, blobs)?;
    let mut look = QuickCheck { runs: 0, damages: Vec::new() };
    let mut sessions = BTreeSet::new();
    for open in txn.open_table(OPEN_RUNS)?.iter()? {
        look.runs += 1;
        let id = open?.0.value();
        let row = runs.get(id)?;
        let row = match row.as_ref().map(|row| read::<RunRow>(blobs, row.value())).transpose()? {
            Some(Ok(row)) => row,
            Some(Err(why)) => {
                let text = format!("the row of run {} cannot be read: {why}", RunId::from_bits(id));
                look.damages.push(Damage::store("runs", text));
                continue;
            }
            None => {
                let text = format!("run {} has no row", RunId::from_bits(id));
                look.damages.push(Damage::store("open_runs", text));
                continue;
            }
        };
        if by_session.get((row.session.bits(), id))?.is_none() {
            let text = format!("run {} is missing", row.id);
            look.damages.push(Damage::of(row.session, "runs_by_session", text));
        }
        let last = ends.last(row.session)?;
        if !(1..=last).contains(&row.first) || !(row.first..=last).contains(&row.last) {
            let text = format!("run {} names records {} and {} of {last}", row.id, row.first, row.last);
            look.damages.push(Damage::of(row.session, "runs", text));
        }
        if sessions.insert(row.session) {
            look.damages.extend(ends.damage(row.session)?);
        }
    }
    Ok(look)
}

/// Looks up where sessions end.
struct SessionEnds<'b> {
    log: ReadOnlyTable<u64, &'static [u8]>,
    tails: ReadOnlyTable<u128, (u64, u64, u64)>,
    sessions: ReadOnlyTable<u128, &'static [u8]>,
    keys: ReadOnlyTable<&'static str, u128>,
    blobs: &'b Blobs,
}

impl<'b> SessionEnds<'b> {
    fn of(txn: &ReadTransaction, blobs: &'b Blobs) -> Result<Self, StoreError> {
        Ok(Self {
            log: txn.open_table(LOG)?,
            tails: txn.open_table(TAILS)?,
            sessions: txn.open_table(SESSIONS)?,
            keys: txn.open_table(SESSION_KEYS)?,
            blobs,
        })
    }

    fn tail(&self, session: SessionId) -> Result<SessionTail, StoreError> {
        Ok(self
            .tails
            .get(session.bits())?
            .map_or(SessionTail::default(), |tail| SessionTail::of(tail.value())))
    }

    fn last(&self, session: SessionId) -> Result<u64, StoreError> {
        Ok(self.tail(session)?.last)
    }

    /// Damaged places of a session's row and of its last log row.
    fn damage(&self, session: SessionId) -> Result<Vec<Damage>, StoreError> {
        let mut damages = Vec::new();
        let tail = self.tail(session)?;
        if let Err(why) = self.log.get(tail.position)?.map_or_else(
            || Err(format!("row {} of the log is missing", tail.position)),
            |row| check_end(session, tail, row.value()),
        ) {
            damages.push(Damage::of(session, "appends", why).at(tail.last));
        }
        let row = self.sessions.get(session.bits())?;
        match row.as_ref().map(|row| read::<SessionRow>(self.blobs, row.value())).transpose()? {
            Some(Ok(row)) => {
                let owner = self.keys.get(&*row.key)?.map(|owner| owner.value());
                if owner != Some(session.bits()) {
                    let text = format!("its key `{}` stands for another one", row.key);
                    damages.push(Damage::of(session, "session_keys", text));
                }
            }
            Some(Err(why)) => damages.push(Damage::of(session, "sessions", format!("its row: {why}"))),
            None => damages.push(Damage::of(session, "sessions", "it has no row")),
        }
        Ok(damages)
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
    let error = || {
        format!(
            "row {} of the log ends with record {last}, and the session with {}",
            tail.position, tail.last
        )
    };
    if last == tail.last { Ok(()) } else { Err(error()) }
}

/// Parses an index row; the inner error says why it is lost. A file that cannot be read now is an outer error: its
/// content may be intact.
fn read<T: serde::de::DeserializeOwned>(
    blobs: &Blobs,
    stored: &[u8],
) -> Result<Result<T, String>, StoreError> {
    match blobs.resolve(stored) {
        Ok(value) => Ok(serde_json::from_slice(&value).map_err(|error| error.to_string())),
        Err(BlobError::Lost(why)) => Ok(Err(why)),
        Err(BlobError::System(why)) => Err(StoreError::Engine(redb::Error::Io(io::Error::other(why)))),
    }
}
