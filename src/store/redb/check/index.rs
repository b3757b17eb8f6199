//! Checks the rows beside the log: whether each can be read and agrees with the records.

use std::collections::BTreeMap;

use hermod_actors::model::{ModelRow, RunId, RunRow, RunState, SessionId, SessionRow};
use redb::{ReadTransaction, ReadableTable, TableError};
use serde::de::IgnoredAny;

use super::{
    log::{NUMBERS_ROW_BYTES, RecordFacts},
    pass::CheckPass,
};
use crate::store::redb::{
    accounts,
    damage::Damage,
    error::StoreError,
    tables::{ACCOUNTS, INBOX, KEYS, MODELS, OPEN_RUNS, RUNS, RUNS_BY_SESSION, SESSION_KEYS, SESSIONS},
};

/// Checks all index rows, accounts, models and inbox rows.
pub(super) fn check_index(pass: &mut CheckPass<'_>, facts: &RecordFacts) -> Result<(), StoreError> {
    sessions(pass, facts)?;
    runs(pass, facts)?;
    runs_by_session(pass, facts)?;
    open_runs(pass, facts)?;
    keys(pass, facts)?;
    let txn = pass.txn;
    let owners = owners(txn)?;
    for account in txn.open_table(ACCOUNTS)?.iter()? {
        let (id, account) = account?;
        pass.count_bytes(account.value().len())?;
        pass.checked.counts.accounts += 1;
        if let Err(why) = accounts::decode(account.value()) {
            let run = RunId::from_bits(id.value());
            let what = format!("the account of run {run}: {why}");
            pass.damage(run_damage(&owners, run, "accounts", what));
        }
    }
    models(pass)?;
    for row in txn.open_table(INBOX)?.iter()? {
        let (key, item) = row?;
        let (session, row) = key.value();
        pass.count_bytes(item.value().len())?;
        pass.checked.counts.inbox += 1;
        if let Err(why) = pass.json::<IgnoredAny>(item.value()) {
            let what = format!("row {row}: {why}");
            pass.damage(Damage::of(SessionId::from_bits(session), "inbox", what));
        }
    }
    Ok(())
}

/// The session of each run, by the table of runs by session.
fn owners(txn: &ReadTransaction) -> Result<BTreeMap<RunId, SessionId>, StoreError> {
    let mut owners = BTreeMap::new();
    for row in txn.open_table(RUNS_BY_SESSION)?.iter()? {
        let (session, run) = row?.0.value();
        owners.insert(RunId::from_bits(run), SessionId::from_bits(session));
    }
    Ok(owners)
}

/// Damage of the run's session, or of the store if no session lists the run.
fn run_damage(owners: &BTreeMap<RunId, SessionId>, run: RunId, table: &'static str, what: String) -> Damage {
    match owners.get(&run) {
        Some(session) => Damage::of(*session, table, what),
        None => Damage::store(table, what),
    }
}

fn models(pass: &mut CheckPass<'_>) -> Result<(), StoreError> {
    let models = match pass.txn.open_table(MODELS) {
        // No version that writes this table has opened the store yet.
        Err(TableError::TableDoesNotExist(_)) => return Ok(()),
        models => models?,
    };
    for row in models.iter()? {
        let (name, row) = row?;
        pass.count_bytes(row.value().len())?;
        let what = match pass.json::<ModelRow>(row.value()) {
            Ok(known) if known.model.to_string() == name.value() => continue,
            Ok(known) => format!("the row of model {} is that of {}", name.value(), known.model),
            Err(why) => format!("the row of model {}: {why}", name.value()),
        };
        pass.damage(Damage::store("models", what));
    }
    Ok(())
}

fn keys(pass: &mut CheckPass<'_>, facts: &RecordFacts) -> Result<(), StoreError> {
    let runs = pass.txn.open_table(RUNS)?;
    for key in pass.txn.open_table(KEYS)?.iter()? {
        let (key, id) = key?;
        pass.count_bytes(key.value().len() + NUMBERS_ROW_BYTES)?;
        pass.checked.counts.keys += 1;
        let run = RunId::from_bits(id.value());
        let is_known = facts.runs.contains_key(&run) || facts.any_damage();
        if !is_known || runs.get(id.value())?.is_none() {
            let what = format!("key `{}` stands for run {run}, which is not there", key.value());
            pass.damage(Damage::store("keys", what));
        }
    }
    Ok(())
}

fn sessions(pass: &mut CheckPass<'_>, facts: &RecordFacts) -> Result<(), StoreError> {
    let txn = pass.txn;
    let (rows, keys) = (txn.open_table(SESSIONS)?, txn.open_table(SESSION_KEYS)?);
    for row in rows.iter()? {
        let (id, row) = row?;
        pass.count_bytes(row.value().len())?;
        let session = SessionId::from_bits(id.value());
        let row = match pass.json::<SessionRow>(row.value()) {
            Ok(row) => row,
            Err(why) => {
                pass.damage(Damage::of(session, "sessions", format!("its row: {why}")));
                continue;
            }
        };
        let mut wrong = |table, what: String| pass.damage(Damage::of(session, table, what));
        let known = facts.sessions.get(&session);
        match known.map(|known| (known.key.as_ref(), known.damaged)) {
            Some((Some(key), _)) if *key == row.key => {}
            Some((None, true)) => {}
            Some((Some(key), _)) => {
                wrong("sessions", format!("its key is `{}`, and by its records `{key}`", row.key));
            }
            Some((None, false)) | None => wrong("sessions", "it has a row, and was never opened".to_owned()),
        }
        if keys.get(&*row.key)?.map(|owner| owner.value()) != Some(id.value()) {
            wrong("session_keys", format!("its key `{}` does not stand for it", row.key));
        }
    }
    for key in keys.iter()? {
        let (key, id) = key?;
        if rows.get(id.value())?.is_none() {
            let what = format!("key `{}` stands for it, and it has no row", key.value());
            pass.damage(Damage::of(SessionId::from_bits(id.value()), "session_keys", what));
        }
    }
    for session in facts.sessions.keys() {
        if rows.get(session.bits())?.is_none() {
            pass.damage(Damage::of(*session, "sessions", "it has records, and no row"));
        }
    }
    Ok(())
}

fn runs(pass: &mut CheckPass<'_>, facts: &RecordFacts) -> Result<(), StoreError> {
    let txn = pass.txn;
    let (rows, accounts) = (txn.open_table(RUNS)?, txn.open_table(ACCOUNTS)?);
    let (open, by_session) = (txn.open_table(OPEN_RUNS)?, txn.open_table(RUNS_BY_SESSION)?);
    let owners = owners(txn)?;
    for row in rows.iter()? {
        let (id, row) = row?;
        pass.count_bytes(row.value().len())?;
        pass.checked.counts.runs += 1;
        let run = RunId::from_bits(id.value());
        let row = match pass.json::<RunRow>(row.value()) {
            Ok(row) => row,
            Err(why) => {
                pass.damage(run_damage(&owners, run, "runs", format!("the row of run {run}: {why}")));
                continue;
            }
        };
        let mut wrong = |table, what: String| pass.damage(Damage::of(row.session, table, what));
        if let Some(what) = disagreement(&row, facts) {
            wrong("runs", format!("run {run}: {what}"));
        }
        if by_session.get((row.session.bits(), id.value()))?.is_none() {
            wrong("runs_by_session", format!("run {run} is missing"));
        }
        if open.get(id.value())?.is_some() != (row.state != RunState::Ended) {
            let listed =
                if row.state == RunState::Ended { "has ended, and is listed" } else { "is not listed" };
            wrong("open_runs", format!("run {run} {listed}"));
        }
        if accounts.get(row.account.bits())?.is_none() {
            wrong("accounts", format!("run {run} has none"));
        }
    }
    for (run, known) in &facts.runs {
        if rows.get(run.bits())?.is_none() {
            pass.damage(Damage::of(known.session, "runs", format!("run {run} has no row")).at(known.first));
        }
    }
    Ok(())
}

/// How a run's row contradicts the records.
fn disagreement(row: &RunRow, facts: &RecordFacts) -> Option<String> {
    if facts.sessions.get(&row.session).is_some_and(|session| session.damaged) {
        return None;
    }
    let Some(known) = facts.runs.get(&row.id) else { return Some("it was never accepted".to_owned()) };
    if (known.session, known.first) != (row.session, row.first) {
        return Some(format!("it was accepted by record {} of session {}", known.first, known.session));
    }
    match (&known.ended, row.state, &row.ended) {
        (Some((last, ended)), RunState::Ended, Some(of_row)) if (*last, ended) == (row.last, of_row) => None,
        (None, RunState::Queued | RunState::Running | RunState::Parked, None) => None,
        (Some((last, ended)), ..) => Some(format!("it has ended as {ended} with record {last}")),
        (None, ..) => Some("it has not ended".to_owned()),
    }
}

fn runs_by_session(pass: &mut CheckPass<'_>, facts: &RecordFacts) -> Result<(), StoreError> {
    let txn = pass.txn;
    let rows = txn.open_table(RUNS)?;
    for row in txn.open_table(RUNS_BY_SESSION)?.iter()? {
        let (session, id) = row?.0.value();
        pass.count_bytes(NUMBERS_ROW_BYTES)?;
        let (session, run) = (SessionId::from_bits(session), RunId::from_bits(id));
        let is_known = facts.runs.get(&run).is_some_and(|known| known.session == session);
        let damaged = facts.sessions.get(&session).is_some_and(|session| session.damaged);
        let what = match rows.get(id)? {
            None => format!("run {run} has no row"),
            Some(_) if is_known || damaged => continue,
            Some(_) => format!("run {run} is not of this session"),
        };
        pass.damage(Damage::of(session, "runs_by_session", what));
    }
    Ok(())
}

fn open_runs(pass: &mut CheckPass<'_>, facts: &RecordFacts) -> Result<(), StoreError> {
    let txn = pass.txn;
    let rows = txn.open_table(RUNS)?;
    let owners = owners(txn)?;
    for row in txn.open_table(OPEN_RUNS)?.iter()? {
        let id = row?.0.value();
        pass.count_bytes(NUMBERS_ROW_BYTES)?;
        pass.checked.counts.open_runs += 1;
        if rows.get(id)?.is_none() {
            let run = RunId::from_bits(id);
            let what = format!("run {run} has no row");
            pass.damage(match facts.runs.get(&run) {
                Some(known) => Damage::of(known.session, "open_runs", what),
                None => run_damage(&owners, run, "open_runs", what),
            });
        }
    }
    Ok(())
}

impl RecordFacts {
    fn any_damage(&self) -> bool {
        self.sessions.values().any(|session| session.damaged)
    }
}
