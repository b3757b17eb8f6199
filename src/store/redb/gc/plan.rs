//! Selects the sessions to remove, from a snapshot.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use hermod_actors::model::{Record, SessionId, SessionRow, Timestamp};
use redb::{ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata};

use super::{
    super::{
        accounts,
        blobs::Blobs,
        error::StoreError,
        log::{LogRow, SessionTail},
        read::SnapshotReader,
        tables::{ACCOUNTS, GRAVES, INBOX, KEYS, LOG, OPEN_RUNS, RUNS_BY_SESSION, SESSIONS, TAILS},
    },
    steps::MAX_ROWS_PER_STEP,
    tally::{Tally, why},
};

/// A session to remove if it is still unchanged, and the rows that are removed with it.
#[derive(Debug, Clone)]
pub(in super::super) struct RemovableSession {
    pub(super) session: u128,
    pub(super) key: String,
    pub(super) tail: (u64, u64, u64),
    /// The log rows of its records, the last one first.
    pub(super) positions: Vec<u64>,
    pub(super) runs: Vec<u128>,
    /// The idempotency keys of its runs.
    pub(super) keys: Vec<String>,
    /// Bytes of the log rows.
    pub(super) bytes: u64,
}

/// Remaining log rows of a removed session, as many as fit in one step. `next` is the position of the row before them;
/// 0 if there is none.
#[derive(Debug, Clone)]
pub(in super::super) struct Tombstone {
    pub(super) session: u128,
    pub(super) positions: Vec<u64>,
    pub(super) next: u64,
}

/// A session whose retention time is over, and its runs.
#[derive(Debug)]
pub(super) struct ExpiredSession {
    session: u128,
    key: String,
    tail: (u64, u64, u64),
    runs: Vec<u128>,
    keys: Vec<String>,
}

/// The sessions in one snapshot.
pub(super) struct GcSnapshot {
    reader: SnapshotReader,
    blobs: Blobs,
}

impl GcSnapshot {
    pub(super) const fn new(reader: SnapshotReader, blobs: Blobs) -> Self {
        Self { reader, blobs }
    }

    fn txn(&self) -> &ReadTransaction {
        self.reader.txn()
    }

    /// Number of sessions.
    pub(super) fn sessions(&self) -> Result<u64, StoreError> {
        Ok(self.txn().open_table(SESSIONS)?.len()?)
    }

    /// Number of idempotency keys.
    pub(super) fn keys(&self) -> Result<u64, StoreError> {
        Ok(self.txn().open_table(KEYS)?.len()?)
    }

    /// The sessions whose last record is not newer than `before`, without unfinished runs and without unread messages.
    pub(super) fn expired(
        &mut self,
        before: Timestamp,
        tally: &mut Tally,
    ) -> Result<Vec<ExpiredSession>, StoreError> {
        let mut expired = Vec::new();
        for row in self.txn().open_table(SESSIONS)?.iter()? {
            let (id, stored) = row?;
            let row = self.blobs.resolve(stored.value()).ok();
            let row = row.and_then(|row| serde_json::from_slice::<SessionRow>(&row).ok());
            match self.check_expired(id.value(), row, before)? {
                Ok(found) => expired.push(found),
                Err(why) => tally.retain(why, 1),
            }
        }
        self.retain_parents(&mut expired, tally)?;
        self.find_keys(&mut expired)?;
        Ok(expired)
    }

    fn check_expired(
        &mut self,
        bits: u128,
        row: Option<SessionRow>,
        before: Timestamp,
    ) -> Result<Result<ExpiredSession, &'static str>, StoreError> {
        let Some(row) = row else { return Ok(Err(why::UNREADABLE)) };
        if row.opened_at > before {
            return Ok(Err(why::YOUNG));
        }
        let Some(tail) = self.txn().open_table(TAILS)?.get(bits)?.map(|tail| tail.value()) else {
            return Ok(Err(why::UNREADABLE));
        };
        let open = self.txn().open_table(OPEN_RUNS)?;
        let mut runs = Vec::new();
        for run in self.txn().open_table(RUNS_BY_SESSION)?.range((bits, 0)..=(bits, u128::MAX))? {
            let run = run?.0.value().1;
            if open.get(run)?.is_some() {
                return Ok(Err(why::UNFINISHED));
            }
            runs.push(run);
        }
        if self.txn().open_table(INBOX)?.range((bits, 0)..=(bits, u64::MAX))?.next().transpose()?.is_some() {
            return Ok(Err(why::MESSAGE));
        }
        Ok(match self.last_record(bits, tail) {
            None => Err(why::UNREADABLE),
            Some(last) if last.at > before => Err(why::YOUNG),
            Some(_) => {
                Ok(ExpiredSession { session: bits, key: row.key.to_string(), tail, runs, keys: Vec::new() })
            }
        })
    }

    fn last_record(&mut self, bits: u128, tail: (u64, u64, u64)) -> Option<Arc<Record>> {
        let session = SessionId::from_bits(bits);
        let read = self.reader.read(|rows| rows.records(session, SessionTail::of(tail).last, 1));
        read.ok()?.pop().map(|stored| stored.record)
    }

    /// Retains sessions whose accounts are parents of retained accounts.
    fn retain_parents(&self, expired: &mut Vec<ExpiredSession>, tally: &mut Tally) -> Result<(), StoreError> {
        let mut family = Vec::new();
        for row in self.txn().open_table(ACCOUNTS)?.iter()? {
            let (id, account) = row?;
            let parent = accounts::decode(account.value()).ok().and_then(|account| account.parent);
            family.extend(parent.map(|parent| (id.value(), parent.bits())));
        }
        loop {
            let going: HashSet<u128> = expired.iter().flat_map(|one| one.runs.iter().copied()).collect();
            let stays = |(id, _): &&(u128, u128)| !going.contains(id);
            let needed: HashSet<u128> = family.iter().filter(stays).map(|(_, parent)| *parent).collect();
            let before = expired.len();
            expired.retain(|one| !one.runs.iter().any(|run| needed.contains(run)));
            let kept = before - expired.len();
            tally.retain(why::PARENT, kept as u64);
            // The sessions retained now may have parents too.
            if kept == 0 {
                return Ok(());
            }
        }
    }

    fn find_keys(&self, expired: &mut [ExpiredSession]) -> Result<(), StoreError> {
        let runs = |(at, one): (usize, &ExpiredSession)| {
            one.runs.iter().map(move |run| (*run, at)).collect::<Vec<_>>()
        };
        let owners: HashMap<u128, usize> = expired.iter().enumerate().flat_map(runs).collect();
        if owners.is_empty() {
            return Ok(());
        }
        for row in self.txn().open_table(KEYS)?.iter()? {
            let (key, run) = row?;
            if let Some(at) = owners.get(&run.value()) {
                expired[*at].keys.push(key.value().to_owned());
            }
        }
        Ok(())
    }

    /// Adds the log rows of its records; `None` if their chain cannot be followed.
    pub(super) fn removable(&self, expired: ExpiredSession) -> Result<Option<RemovableSession>, StoreError> {
        let ExpiredSession { session, key, tail, runs, keys } = expired;
        let log = self.txn().open_table(LOG)?;
        let RowChain { positions: places, next, bytes } =
            read_chain(&log, session, SessionTail::of(tail).position, usize::MAX)?;
        Ok((next == Some(0)).then_some(RemovableSession {
            session,
            key,
            tail,
            positions: places,
            runs,
            keys,
            bytes,
        }))
    }

    /// The remaining rows of removed sessions, as many of each as fit in one step.
    pub(super) fn tombstones(&self) -> Result<Vec<Tombstone>, StoreError> {
        let log = self.txn().open_table(LOG)?;
        let mut graves = Vec::new();
        for row in self.txn().open_table(GRAVES)?.iter()? {
            let (session, place) = row?;
            let session = session.value();
            let RowChain { positions: places, next, .. } =
                read_chain(&log, session, place.value(), MAX_ROWS_PER_STEP)?;
            // Rows before a lost one cannot be found: they stay.
            graves.push(Tombstone { session, positions: places, next: next.unwrap_or(0) });
        }
        Ok(graves)
    }
}

/// Rows of a session's log, from the last one backwards.
struct RowChain {
    positions: Vec<u64>,
    /// The position of the row before them; `None` if the chain is broken.
    next: Option<u64>,
    bytes: u64,
}

fn read_chain(
    log: &ReadOnlyTable<u64, &'static [u8]>,
    session: u128,
    from: u64,
    max: usize,
) -> Result<RowChain, StoreError> {
    let mut followed = RowChain { positions: Vec::new(), next: Some(from), bytes: 0 };
    while let Some(place) = followed.next.filter(|place| *place != 0 && followed.positions.len() < max) {
        let row = log.get(place)?;
        let parsed = row.as_ref().map(|row| LogRow::parse(SessionId::from_bits(session), place, row.value()));
        followed.next = parsed.and_then(Result::ok).map(|row| row.previous);
        if followed.next.is_some() {
            followed.positions.push(place);
            followed.bytes += row.map_or(0, |row| row.value().len() as u64);
        }
    }
    Ok(followed)
}
