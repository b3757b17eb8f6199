//! Lookups in a snapshot of the store: of sessions, runs and scripts, for gc of their files. Selects the sessions to
//! remove, and follows their log rows backwards.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use hermod_actors::model::{ArtifactName, Body, Delivery, RunId, RunRow, SessionId, SessionRow, Timestamp};
use redb::{ReadTransaction, ReadableTable, ReadableTableMetadata};

use super::{
    super::{
        accounts,
        error::Result,
        log::{LogRow, SessionTail},
        read::SnapshotReader,
        tables::{
            DEAD_LETTERS, INBOX, KEYS, LOG, MESSAGES_BY_SESSION, OPEN_RUNS, OUTBOX, RUNS, RUNS_BY_SESSION,
            SESSIONS, TAILS, TOMBSTONES, for_each_row, open_existing, rows_of, runs_of,
        },
    },
    collector::{GcError, RemovedSet},
    steps::MAX_ROWS_PER_STEP,
    tally::{Tally, why},
};

/// A session to remove if it is still unchanged, and the rows that are removed with it.
#[derive(Debug, Clone)]
pub(super) struct RemovableSession {
    pub(super) session: SessionId,
    pub(super) key: Arc<str>,
    pub(super) tail: SessionTail,
    pub(super) runs: Vec<u128>,
    /// The messages that have a row.
    pub(super) messages: Vec<u128>,
    /// The idempotency keys of its runs and messages.
    pub(super) keys: Vec<String>,
    /// The log rows of its records; none until they are searched.
    pub(super) rows: RowChain,
}

/// Remaining log rows of a removed session, as many as fit in one step.
pub(super) struct Tombstone {
    pub(super) session: SessionId,
    pub(super) rows: RowChain,
}

/// Rows of a session's log, from the last one backwards.
#[derive(Debug, Clone, Default)]
pub(super) struct RowChain {
    pub(super) positions: Vec<u64>,
    /// The position of the row before them, 0 if there is none; `None` if the chain is broken.
    pub(super) next: Option<u64>,
    pub(super) bytes: u64,
}

/// Lookups in one snapshot. They block the calling thread.
#[derive(Debug)]
pub struct GcSnapshot {
    pub(super) reader: SnapshotReader,
}

impl GcSnapshot {
    pub(super) fn txn(&self) -> &ReadTransaction {
        &self.reader.txn
    }

    /// Whether the session exists.
    pub fn has_session(&self, session: SessionId) -> Result<bool, GcError> {
        let is_there = || Ok(self.txn().open_table(SESSIONS)?.get(session.bits())?.is_some());
        Ok(self.reader.file.run(is_there)?)
    }

    /// The row of a run; `None` if the run does not exist.
    pub fn run(&mut self, run: RunId) -> Result<Option<RunRow>, GcError> {
        self.reader.read(|rows| rows.run(run)).map_err(|error| GcError::Failed(error.to_string()))
    }

    /// The artifacts that go with messages which are pending or dead; `None` if one of those cannot be read.
    pub fn attachments(&self) -> Result<Option<BTreeSet<ArtifactName>>, GcError> {
        let read = || {
            let (mut found, mut is_whole) = (BTreeSet::new(), true);
            let mut add = |stored: &[u8]| match serde_json::from_slice::<Delivery>(stored) {
                Ok(delivery) => found.extend(delivery.message.artifacts().filter_map(|(_, name)| name)),
                Err(_) => is_whole = false,
            };
            if let Some(table) = open_existing(self.txn(), OUTBOX)? {
                table.range::<(&str, u64)>(..)?.try_for_each(|row| row.map(|(_, row)| add(row.value())))?;
            }
            if let Some(table) = open_existing(self.txn(), DEAD_LETTERS)? {
                table.range::<u64>(..)?.try_for_each(|row| row.map(|(_, row)| add(row.value())))?;
            }
            Ok(is_whole.then_some(found))
        };
        Ok(self.reader.file.run(read)?)
    }

    fn runs(&self) -> Result<Vec<RunId>> {
        self.reader.file.run(|| {
            let rows = self.txn().open_table(RUNS)?;
            rows.iter()?.map(|row| Ok(RunId::from_bits(row?.0.value()))).collect()
        })
    }

    /// The hashes of the rehearsal scripts of retained runs; `None` if the record of one such run cannot be read.
    pub fn scripts(&mut self, removed: &RemovedSet) -> Result<Option<BTreeSet<String>>, GcError> {
        let mut scripts = BTreeSet::new();
        for run in self.runs()?.into_iter().filter(|run| !removed.runs.contains(run)) {
            let Ok(Some(row)) = self.run(run) else { return Ok(None) };
            let read = self.reader.read(|rows| rows.records(row.session, row.first, 1));
            let Ok(records) = read else { return Ok(None) };
            let Some(Body::RunAccepted(accepted)) = records.first().map(|stored| &stored.record.body) else {
                return Ok(None);
            };
            scripts.extend(accepted.spec.script.map(|hash| hash.to_string()));
        }
        Ok(Some(scripts))
    }

    /// Number of sessions.
    pub(super) fn sessions(&self) -> Result<u64> {
        Ok(self.txn().open_table(SESSIONS)?.len()?)
    }

    /// Number of idempotency keys.
    pub(super) fn keys(&self) -> Result<u64> {
        Ok(self.txn().open_table(KEYS)?.len()?)
    }

    /// The sessions whose last record is not newer than `before`, without unfinished runs and unread messages. Sessions
    /// with the parent account of a retained one are retained, too.
    pub(super) fn expired(&mut self, before: Timestamp, tally: &mut Tally) -> Result<Vec<RemovableSession>> {
        let mut expired = Vec::new();
        for row in self.txn().open_table(SESSIONS)?.iter()? {
            let (id, stored) = row?;
            let row = self.reader.blobs.json::<SessionRow>(stored.value()).ok();
            match self.check_expired(SessionId::from_bits(id.value()), row, before)? {
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
        session: SessionId,
        row: Option<SessionRow>,
        before: Timestamp,
    ) -> Result<Result<RemovableSession, &'static str>> {
        let Some(row) = row else { return Ok(Err(why::UNREADABLE)) };
        if row.opened_at > before {
            return Ok(Err(why::YOUNG));
        }
        let Some(tail) = SessionTail::read(&self.txn().open_table(TAILS)?, session)? else {
            return Ok(Err(why::UNREADABLE));
        };
        let open = self.txn().open_table(OPEN_RUNS)?;
        let mut runs = Vec::new();
        for run in self.txn().open_table(RUNS_BY_SESSION)?.range(runs_of(session))? {
            let run = run?.0.value().1;
            if open.get(run)?.is_some() {
                return Ok(Err(why::UNFINISHED));
            }
            runs.push(run);
        }
        if self.txn().open_table(INBOX)?.range(rows_of(session))?.next().transpose()?.is_some() {
            return Ok(Err(why::MESSAGE));
        }
        let mut messages = Vec::new();
        for message in self.txn().open_table(MESSAGES_BY_SESSION)?.range(runs_of(session))? {
            messages.push(message?.0.value().1);
        }
        let last = self.reader.read(|rows| rows.records(session, tail.last, 1)).unwrap_or_default().pop();
        Ok(match last {
            None => Err(why::UNREADABLE),
            Some(last) if last.record.at > before => Err(why::YOUNG),
            Some(_) => {
                let (keys, rows) = (Vec::new(), RowChain::default());
                Ok(RemovableSession { session, key: row.key, tail, runs, messages, keys, rows })
            }
        })
    }

    /// Retains sessions whose accounts are parents of retained accounts.
    fn retain_parents(&self, expired: &mut Vec<RemovableSession>, tally: &mut Tally) -> Result<()> {
        let parents = accounts::parents(self.txn())?;
        loop {
            let removed: HashSet<u128> = expired.iter().flat_map(|one| one.runs.iter().copied()).collect();
            let is_retained = |(id, _): &&(u128, u128)| !removed.contains(id);
            let needed: HashSet<u128> =
                parents.iter().filter(is_retained).map(|(_, parent)| *parent).collect();
            let before = expired.len();
            expired.retain(|one| !one.runs.iter().any(|run| needed.contains(run)));
            let retained = before - expired.len();
            tally.retain(why::PARENT, retained as u64);
            // The sessions retained now may have parents too.
            if retained == 0 {
                return Ok(());
            }
        }
    }

    fn find_keys(&self, expired: &mut [RemovableSession]) -> Result<()> {
        let mut owners = HashMap::new();
        for (at, one) in expired.iter().enumerate() {
            owners.extend(one.runs.iter().chain(&one.messages).map(|id| (*id, at)));
        }
        if owners.is_empty() {
            return Ok(());
        }
        for_each_row(self.txn(), KEYS, |key, run| {
            if let Some(at) = owners.get(&run) {
                expired[*at].keys.push(key.to_owned());
            }
            Ok(())
        })
    }

    /// A session and those of its subagents, which come first; the reason if one of them must stay.
    pub(super) fn with_subagents(
        &mut self,
        session: SessionId,
    ) -> Result<Result<Vec<RemovableSession>, &'static str>> {
        let parents = accounts::parents(self.txn())?;
        let (mut found, mut seen, mut next) = (Vec::new(), HashSet::from([session]), vec![session]);
        while let Some(session) = next.pop() {
            let row = self.txn().open_table(SESSIONS)?.get(session.bits())?;
            let row = row.and_then(|stored| self.reader.blobs.json::<SessionRow>(stored.value()).ok());
            let one = match self.check_expired(session, row, Timestamp(i64::MAX))? {
                Ok(one) => one,
                Err(why) => return Ok(Err(why)),
            };
            let runs: HashSet<u128> = one.runs.iter().copied().collect();
            for (run, _) in parents.iter().filter(|(_, parent)| runs.contains(parent)) {
                let row = self.reader.read(|rows| rows.run(RunId::from_bits(*run)));
                match row {
                    Ok(Some(row)) if seen.insert(row.session) => next.push(row.session),
                    Ok(_) => {}
                    Err(_) => return Ok(Err(why::UNREADABLE)),
                }
            }
            found.push(one);
        }
        found.reverse();
        self.find_keys(&mut found)?;
        Ok(Ok(found))
    }

    /// Adds the log rows of its records; `None` if their chain cannot be followed.
    pub(super) fn removable(&self, expired: RemovableSession) -> Result<Option<RemovableSession>> {
        let rows = self.chain(expired.session, expired.tail.position, usize::MAX)?;
        Ok((rows.next == Some(0)).then_some(RemovableSession { rows, ..expired }))
    }

    /// The remaining rows of removed sessions, as many of each as fit in one step.
    pub(super) fn tombstones(&self) -> Result<Vec<Tombstone>> {
        let mut tombstones = Vec::new();
        for_each_row(self.txn(), TOMBSTONES, |session, position| {
            let session = SessionId::from_bits(session);
            tombstones.push(Tombstone { session, rows: self.chain(session, position, MAX_ROWS_PER_STEP)? });
            Ok(())
        })?;
        Ok(tombstones)
    }

    /// At most `max` rows of a session, from the position `from` backwards.
    fn chain(&self, session: SessionId, from: u64, max: usize) -> Result<RowChain> {
        let log = self.txn().open_table(LOG)?;
        let mut chain = RowChain { next: Some(from), ..RowChain::default() };
        while let Some(position) = chain.next.filter(|position| *position != 0 && chain.positions.len() < max)
        {
            chain.next = None;
            if let Some(stored) = log.get(position)?
                && let Ok(row) = LogRow::parse(session, position, stored.value())
            {
                chain.next = Some(row.previous);
                chain.positions.push(position);
                chain.bytes += stored.value().len() as u64;
            }
        }
        Ok(chain)
    }
}
