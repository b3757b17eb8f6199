//! Selects the sessions and rows that a repair removes, from one snapshot.

use std::collections::{BTreeMap, BTreeSet};

use hermod_actors::model::{Body, ModelRow, RunId, RunRow, Seq, SessionId, decode};
use redb::{ReadTransaction, ReadableTable};

use super::RepairTarget;
use crate::store::redb::{
    accounts,
    blobs::Blobs,
    damage::Damage,
    error::StoreError,
    log::{LogRow, SessionTail, session_of_row},
    tables::{
        ACCOUNTS, KEYS, LOG, MODELS, OPEN_RUNS, RUNS, RUNS_BY_SESSION, TAILS, for_each_row, open_existing,
    },
};

/// The sessions and rows that a repair removes or rewrites.
#[derive(Default)]
pub(super) struct Survey {
    /// The sessions to remove.
    pub(super) removable: BTreeSet<SessionId>,
    /// Their runs.
    pub(super) runs: BTreeMap<RunId, SessionId>,
    /// The positions of their log rows.
    pub(super) positions: BTreeMap<u64, SessionId>,
    /// Retained sessions whose tail and marks are rewritten: last sequence number and position of each log row, in
    /// order.
    pub(super) mended: BTreeMap<SessionId, Vec<(Seq, u64)>>,
    pub(super) strays: StrayRows,
    /// Accounts of removed runs that are parents of retained accounts.
    pub(super) needed: BTreeSet<u128>,
}

/// Damaged rows that belong to no retained session, by their keys.
#[derive(Default, PartialEq, Eq)]
pub(super) struct StrayRows {
    pub(super) log: BTreeSet<u64>,
    pub(super) runs: BTreeSet<u128>,
    pub(super) open_runs: BTreeSet<u128>,
    pub(super) accounts: BTreeSet<u128>,
    pub(super) keys: BTreeSet<String>,
    pub(super) models: BTreeSet<String>,
}

/// The tables of the log: damage in them can be mended if the session's own rows are whole.
const LOG_TABLES: [&str; 3] = ["appends", "tails", "marks"];

impl Survey {
    pub(super) fn of(
        txn: &ReadTransaction,
        blobs: &Blobs,
        target: RepairTarget,
        damages: &[Damage],
    ) -> Result<Self, StoreError> {
        let mut survey = Self::default();
        match target {
            RepairTarget::Session(session) => drop(survey.removable.insert(session)),
            RepairTarget::All => survey.choose_sessions(txn, blobs, damages)?,
        }
        survey.find_runs(txn, blobs)?;
        survey.find_rows(txn, target)?;
        survey.find_accounts(txn)?;
        if target == RepairTarget::All {
            survey.find_strays(txn, blobs)?;
        }
        Ok(survey)
    }

    /// Decides which damaged sessions are removed, and which are mended. Other damage of a mended session may come from
    /// foreign rows that claim to be its own. A later check shows whether it remains without them.
    fn choose_sessions(
        &mut self,
        txn: &ReadTransaction,
        blobs: &Blobs,
        damages: &[Damage],
    ) -> Result<(), StoreError> {
        let mut tables: BTreeMap<SessionId, BTreeSet<&str>> = BTreeMap::new();
        for (session, damage) in damages.iter().filter_map(|damage| Some((damage.session?, damage))) {
            tables.entry(session).or_default().insert(&damage.table);
        }
        for (session, tables) in tables {
            let in_log = tables.iter().any(|table| LOG_TABLES.contains(table));
            match in_log.then(|| readable_rows(txn, blobs, session)).transpose()?.flatten() {
                Some(rows) => drop(self.mended.insert(session, rows)),
                None => drop(self.removable.insert(session)),
            }
        }
        Ok(())
    }

    fn find_runs(&mut self, txn: &ReadTransaction, blobs: &Blobs) -> Result<(), StoreError> {
        for_each_row(txn, RUNS_BY_SESSION, |(session, run), ()| {
            let session = SessionId::from_bits(session);
            if self.removable.contains(&session) {
                self.runs.insert(RunId::from_bits(run), session);
            }
            Ok(())
        })?;
        for_each_row(txn, RUNS, |id, stored| {
            if let Ok(row) = blobs.json::<RunRow>(stored)
                && self.removable.contains(&row.session)
            {
                self.runs.entry(RunId::from_bits(id)).or_insert(row.session);
            }
            Ok(())
        })
    }

    fn find_rows(&mut self, txn: &ReadTransaction, target: RepairTarget) -> Result<(), StoreError> {
        let mended_rows: BTreeSet<u64> =
            self.mended.values().flatten().map(|(_, position)| *position).collect();
        for_each_row(txn, LOG, |position, row| {
            match session_of_row(row) {
                Ok(session) if self.removable.contains(&session) => {
                    self.positions.insert(position, session);
                }
                Ok(session) if self.mended.contains_key(&session) && !mended_rows.contains(&position) => {
                    self.strays.log.insert(position);
                }
                Err(_) if target == RepairTarget::All => drop(self.strays.log.insert(position)),
                Ok(_) | Err(_) => {}
            }
            Ok(())
        })
    }

    /// Retains all ancestors of retained accounts, whichever session they belong to.
    fn find_accounts(&mut self, txn: &ReadTransaction) -> Result<(), StoreError> {
        let parents = accounts::parents(txn)?;
        let is_removed = |id: u128| self.runs.contains_key(&RunId::from_bits(id));
        loop {
            let before = self.needed.len();
            for (id, parent) in &parents {
                if is_removed(*parent) && (!is_removed(*id) || self.needed.contains(id)) {
                    self.needed.insert(*parent);
                }
            }
            if self.needed.len() == before {
                return Ok(());
            }
        }
    }

    fn find_strays(&mut self, txn: &ReadTransaction, blobs: &Blobs) -> Result<(), StoreError> {
        let is_removed = |id: u128| self.runs.contains_key(&RunId::from_bits(id));
        let strays = &mut self.strays;
        for_each_row(txn, RUNS, |id, stored| {
            if !is_removed(id) && blobs.json::<RunRow>(stored).is_err() {
                strays.runs.insert(id);
            }
            Ok(())
        })?;
        let runs = txn.open_table(RUNS)?;
        let lost_runs = &strays.runs;
        let is_lost = |id: u128| -> Result<bool, StoreError> {
            Ok(!is_removed(id) && (lost_runs.contains(&id) || runs.get(id)?.is_none()))
        };
        for_each_row(txn, OPEN_RUNS, |id, ()| {
            if is_lost(id)? {
                strays.open_runs.insert(id);
            }
            Ok(())
        })?;
        for_each_row(txn, KEYS, |key, run| {
            if is_lost(run)? {
                strays.keys.insert(key.to_owned());
            }
            Ok(())
        })?;
        for_each_row(txn, ACCOUNTS, |id, account| {
            if accounts::decode(account).is_err() && is_lost(id)? {
                strays.accounts.insert(id);
            }
            Ok(())
        })?;
        let Some(models) = open_existing(txn, MODELS)? else { return Ok(()) };
        for row in models.iter()? {
            let (name, stored) = row?;
            let row = blobs.json::<ModelRow>(stored.value());
            if !row.is_ok_and(|row| row.model.to_string() == name.value()) {
                strays.models.insert(name.value().to_owned());
            }
        }
        Ok(())
    }
}

/// The log rows of a session, followed backwards from its tail: last sequence number and position of each, in order.
/// `None` if a record cannot be read.
fn readable_rows(
    txn: &ReadTransaction,
    blobs: &Blobs,
    session: SessionId,
) -> Result<Option<Vec<(Seq, u64)>>, StoreError> {
    let Some(tail) = SessionTail::read(&txn.open_table(TAILS)?, session)? else { return Ok(None) };
    let log = txn.open_table(LOG)?;
    let (mut position, mut last, mut rows) = (tail.position, tail.last, Vec::new());
    while position != 0 {
        let Some(stored) = log.get(position)? else { return Ok(None) };
        let Ok(row) = LogRow::parse(session, position, stored.value()) else { return Ok(None) };
        let mut end = row.first.saturating_sub(1);
        for (seq, record) in row.records() {
            let value = record.ok().and_then(|stored| blobs.resolve(stored).ok());
            // Records after a lost beginning are no whole session.
            let is_whole = value
                .and_then(|value| decode(&value).ok())
                .is_some_and(|record| (seq == 1) == matches!(record.body, Body::SessionOpened(_)));
            if !is_whole {
                return Ok(None);
            }
            end = seq;
        }
        if end != last {
            return Ok(None);
        }
        rows.push((last, position));
        (position, last) = (row.previous, row.first.saturating_sub(1));
    }
    rows.reverse();
    Ok((last == 0).then_some(rows))
}
