//! Selects the sessions and rows that a repair removes, from one snapshot.

use std::collections::{BTreeMap, BTreeSet};

use hermod_actors::model::{Body, Delivery, MessageRow, ModelRow, RunId, RunRow, Seq, SessionId, decode};
use redb::{ReadTransaction, ReadableTable};

use super::RepairTarget;
use crate::store::redb::{
    accounts,
    blobs::Blobs,
    damage::Damage,
    error::Result,
    log::{LogRow, SessionTail, session_of_row},
    schedules::{check_occurrence, check_schedule},
    tables::{
        ACCOUNTS, DEAD_LETTERS, DELIVERED, Definition, INBOX, KEYS, LOG, MESSAGES, MESSAGES_BY_SESSION,
        MODELS, OCCURRENCES, OPEN_RUNS, OUTBOX, RUNS, RUNS_BY_SESSION, SCHEDULES, SESSION_KEYS, TAILS,
        for_each_row, open_existing,
    },
};

/// The rows that a repair removes or rewrites.
#[derive(Default)]
pub(super) struct Survey {
    /// The rows to remove: of each removed session, and under `None` damaged rows that belong to no retained session.
    pub(super) rows: BTreeMap<Option<SessionId>, Vec<RowKey>>,
    /// Retained sessions whose tail and marks are rewritten: last sequence number and position of each log row, in
    /// order.
    pub(super) mended: BTreeMap<SessionId, Vec<(Seq, u64)>>,
    /// The runs of the removed sessions.
    runs: BTreeMap<RunId, SessionId>,
    /// The messages of the removed sessions that have a row.
    messages: BTreeMap<RunId, SessionId>,
}

/// A row that is set aside. Rows that can be derived from others have none of their own: they go with the session's
/// or the run's.
pub(super) enum RowKey {
    Session(SessionId),
    SessionKey(String),
    Run(RunId),
    Account(RunId),
    /// An account that retained ones may need: it stays, or is replaced.
    NeededAccount(RunId),
    OpenRun(RunId),
    Message(RunId),
    Key(String, RunId),
    Inbox(SessionId, u64),
    Log(u64),
    Model(String),
    /// A message of the outbox, by target and number.
    Outbox(String, u64),
    Delivered(u64),
    DeadLetter(u64),
    Schedule(String),
    /// An occurrence, by schedule and time.
    Occurrence(String, i64),
}

/// The tables of the log: damage in them can be mended if the session's own rows are whole.
const LOG_TABLES: [&str; 3] = ["appends", "tails", "marks"];

impl Survey {
    pub(super) fn of(
        txn: &ReadTransaction,
        blobs: &Blobs,
        target: RepairTarget,
        damages: &[Damage],
    ) -> Result<Self> {
        let mut survey = Self::default();
        match target {
            RepairTarget::Session(session) => survey.remove(session),
            RepairTarget::All => survey.choose_sessions(txn, blobs, damages)?,
        }
        survey.find_runs(txn, blobs)?;
        survey.find_rows(txn)?;
        let strays = survey.find_strays(txn, blobs, target)?;
        if !strays.is_empty() {
            survey.rows.insert(None, strays);
        }
        Ok(survey)
    }

    fn remove(&mut self, session: SessionId) {
        self.rows.insert(Some(session), vec![RowKey::Session(session)]);
    }

    /// Adds a row of a session that is removed; ignores the rows of others.
    fn add(&mut self, session: SessionId, key: RowKey) {
        if let Some(rows) = self.rows.get_mut(&Some(session)) {
            rows.push(key);
        }
    }

    /// Decides which damaged sessions are removed, and which are mended. Other damage of a mended session may come from
    /// foreign rows that claim to be its own. A later check shows whether it remains without them.
    fn choose_sessions(&mut self, txn: &ReadTransaction, blobs: &Blobs, damages: &[Damage]) -> Result<()> {
        let mut tables: BTreeMap<SessionId, BTreeSet<&str>> = BTreeMap::new();
        for (session, damage) in damages.iter().filter_map(|damage| Some((damage.session?, damage))) {
            tables.entry(session).or_default().insert(&damage.table);
        }
        for (session, tables) in tables {
            let in_log = tables.iter().any(|table| LOG_TABLES.contains(table));
            match in_log.then(|| readable_rows(txn, blobs, session)).transpose()?.flatten() {
                Some(rows) => drop(self.mended.insert(session, rows)),
                None => self.remove(session),
            }
        }
        Ok(())
    }

    fn find_runs(&mut self, txn: &ReadTransaction, blobs: &Blobs) -> Result<()> {
        for_each_row(txn, RUNS_BY_SESSION, |(session, run), ()| {
            self.runs.insert(RunId::from_bits(run), SessionId::from_bits(session));
            Ok(())
        })?;
        for_each_row(txn, RUNS, |id, stored| {
            if let Ok(row) = blobs.json::<RunRow>(stored) {
                self.runs.entry(RunId::from_bits(id)).or_insert(row.session);
            }
            Ok(())
        })?;
        self.runs.retain(|_, session| self.rows.contains_key(&Some(*session)));
        let Some(messages) = open_existing(txn, MESSAGES_BY_SESSION)? else { return Ok(()) };
        for row in messages.iter()? {
            let (session, message) = row?.0.value();
            let session = SessionId::from_bits(session);
            if self.rows.contains_key(&Some(session)) {
                self.messages.insert(RunId::from_bits(message), session);
            }
        }
        Ok(())
    }

    fn find_rows(&mut self, txn: &ReadTransaction) -> Result<()> {
        for_each_row(txn, SESSION_KEYS, |key, session| {
            self.add(SessionId::from_bits(session), RowKey::SessionKey(key.to_owned()));
            Ok(())
        })?;
        let needed = self.needed_accounts(txn)?;
        for (run, session) in self.runs.clone() {
            let is_needed = needed.contains(&run);
            self.add(session, RowKey::Run(run));
            self.add(session, if is_needed { RowKey::NeededAccount(run) } else { RowKey::Account(run) });
        }
        for (message, session) in self.messages.clone() {
            self.add(session, RowKey::Message(message));
        }
        for_each_row(txn, KEYS, |key, run| {
            let run = RunId::from_bits(run);
            if let Some(session) = self.runs.get(&run).or_else(|| self.messages.get(&run)).copied() {
                self.add(session, RowKey::Key(key.to_owned(), run));
            }
            Ok(())
        })?;
        for_each_row(txn, INBOX, |(session, number), _| {
            let session = SessionId::from_bits(session);
            self.add(session, RowKey::Inbox(session, number));
            Ok(())
        })?;
        for_each_row(txn, LOG, |position, row| {
            if let Ok(session) = session_of_row(row) {
                self.add(session, RowKey::Log(position));
            }
            Ok(())
        })
    }

    /// The accounts of removed runs that are ancestors of retained accounts, whichever session they belong to.
    fn needed_accounts(&self, txn: &ReadTransaction) -> Result<BTreeSet<RunId>> {
        let parents = accounts::parents(txn)?;
        let mut needed = BTreeSet::new();
        loop {
            let before = needed.len();
            for (id, parent) in &parents {
                let (run, parent) = (RunId::from_bits(*id), RunId::from_bits(*parent));
                let is_retained = !self.runs.contains_key(&run) || needed.contains(&run);
                if is_retained && self.runs.contains_key(&parent) {
                    needed.insert(parent);
                }
            }
            if needed.len() == before {
                return Ok(needed);
            }
        }
    }

    /// Foreign rows in the logs of mended sessions, and with [`RepairTarget::All`] the damaged rows of no session.
    fn find_strays(&self, txn: &ReadTransaction, blobs: &Blobs, target: RepairTarget) -> Result<Vec<RowKey>> {
        let mut strays = Vec::new();
        let mended_rows: BTreeSet<u64> =
            self.mended.values().flatten().map(|(_, position)| *position).collect();
        for_each_row(txn, LOG, |position, row| {
            let is_stray = session_of_row(row).map_or(target == RepairTarget::All, |session| {
                self.mended.contains_key(&session) && !mended_rows.contains(&position)
            });
            strays.extend(is_stray.then_some(RowKey::Log(position)));
            Ok(())
        })?;
        if target != RepairTarget::All {
            return Ok(strays);
        }
        let mut lost_runs = BTreeSet::new();
        for_each_row(txn, RUNS, |id, stored| {
            let run = RunId::from_bits(id);
            if !self.runs.contains_key(&run) && blobs.json::<RunRow>(stored).is_err() {
                lost_runs.insert(id);
                strays.push(RowKey::Run(run));
            }
            Ok(())
        })?;
        let runs = txn.open_table(RUNS)?;
        let lost_run = |id: u128| -> Result<Option<RunId>> {
            let run = RunId::from_bits(id);
            let is_lost =
                !self.runs.contains_key(&run) && (lost_runs.contains(&id) || runs.get(id)?.is_none());
            Ok(is_lost.then_some(run))
        };
        for_each_row(txn, ACCOUNTS, |id, account| {
            if accounts::decode(account).is_err() {
                strays.extend(lost_run(id)?.map(RowKey::NeededAccount));
            }
            Ok(())
        })?;
        for_each_row(txn, OPEN_RUNS, |id, ()| {
            strays.extend(lost_run(id)?.map(RowKey::OpenRun));
            Ok(())
        })?;
        strays.extend(damaged_message_rows(txn, blobs)?);
        let messages = open_existing(txn, MESSAGES)?;
        for_each_row(txn, KEYS, |key, run| {
            if let Some(messages) = &messages
                && messages.get(run)?.is_some()
            {
                return Ok(());
            }
            strays.extend(lost_run(run)?.map(|run| RowKey::Key(key.to_owned(), run)));
            Ok(())
        })?;
        strays.extend(damaged_model_rows(txn, blobs)?);
        strays.extend(damaged_deliveries(txn)?);
        strays.extend(damaged_schedules(txn)?);
        Ok(strays)
    }
}

/// The rows of messages that cannot be read, or are of another message.
fn damaged_message_rows(txn: &ReadTransaction, blobs: &Blobs) -> Result<Vec<RowKey>> {
    let mut damaged = Vec::new();
    let Some(messages) = open_existing(txn, MESSAGES)? else { return Ok(damaged) };
    for row in messages.iter()? {
        let (id, stored) = row?;
        let id = RunId::from_bits(id.value());
        if !blobs.json::<MessageRow>(stored.value()).is_ok_and(|row| row.id == id) {
            damaged.push(RowKey::Message(id));
        }
    }
    Ok(damaged)
}

/// The rows of models that cannot be read, or are of another model.
fn damaged_model_rows(txn: &ReadTransaction, blobs: &Blobs) -> Result<Vec<RowKey>> {
    let mut damaged = Vec::new();
    let Some(models) = open_existing(txn, MODELS)? else { return Ok(damaged) };
    for row in models.iter()? {
        let (name, stored) = row?;
        let row = blobs.json::<ModelRow>(stored.value());
        if !row.is_ok_and(|row| row.model.to_string() == name.value()) {
            damaged.push(RowKey::Model(name.value().to_owned()));
        }
    }
    Ok(damaged)
}

/// The messages of the outbox that cannot be read, or are of another target.
fn damaged_deliveries(txn: &ReadTransaction) -> Result<Vec<RowKey>> {
    let mut damaged = Vec::new();
    if let Some(outbox) = open_existing(txn, OUTBOX)? {
        for row in outbox.iter()? {
            let (key, stored) = row?;
            let (target, number) = key.value();
            if read_delivery(stored.value()).is_none_or(|delivery| *delivery.message.target != *target) {
                damaged.push(RowKey::Outbox(target.to_owned(), number));
            }
        }
    }
    for number in damaged_numbers(txn, DELIVERED)? {
        damaged.push(RowKey::Delivered(number));
    }
    for number in damaged_numbers(txn, DEAD_LETTERS)? {
        damaged.push(RowKey::DeadLetter(number));
    }
    Ok(damaged)
}

/// The rows of schedules and occurrences that cannot be read, or are of another one.
fn damaged_schedules(txn: &ReadTransaction) -> Result<Vec<RowKey>> {
    let mut damaged = Vec::new();
    if let Some(schedules) = open_existing(txn, SCHEDULES)? {
        for row in schedules.iter()? {
            let (name, stored) = row?;
            if check_schedule(name.value(), stored.value()).is_err() {
                damaged.push(RowKey::Schedule(name.value().to_owned()));
            }
        }
    }
    if let Some(occurrences) = open_existing(txn, OCCURRENCES)? {
        for row in occurrences.iter()? {
            let (key, stored) = row?;
            if check_occurrence(key.value(), stored.value()).is_err() {
                let (name, at) = key.value();
                damaged.push(RowKey::Occurrence(name.to_owned(), at));
            }
        }
    }
    Ok(damaged)
}

/// The numbers of the deliveries in a table that cannot be read.
fn damaged_numbers(txn: &ReadTransaction, table: Definition<u64, &'static [u8]>) -> Result<Vec<u64>> {
    let mut damaged = Vec::new();
    if let Some(table) = open_existing(txn, table)? {
        for row in table.iter()? {
            let (number, stored) = row?;
            damaged.extend(read_delivery(stored.value()).is_none().then(|| number.value()));
        }
    }
    Ok(damaged)
}

fn read_delivery(stored: &[u8]) -> Option<Delivery> {
    serde_json::from_slice(stored).ok()
}

/// The log rows of a session, followed backwards from its tail: last sequence number and position of each, in order.
/// `None` if a record cannot be read.
fn readable_rows(
    txn: &ReadTransaction,
    blobs: &Blobs,
    session: SessionId,
) -> Result<Option<Vec<(Seq, u64)>>> {
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
