//! Removes the surveyed rows, and rewrites the tails and marks of mended sessions, in one transaction. An account that
//! others need stays; if it is unreadable, it is replaced by one without limits.

use hermod_actors::model::{Amounts, BudgetAccount, RunId, Seq, SessionId};
use redb::{Database, ReadableTable};

use super::survey::{StrayRows, Survey};
use crate::store::redb::{
    accounts,
    error::StoreError,
    log::SessionTail,
    tables::{Tables, rows_of, runs_of},
};

pub(super) fn erase(db: &Database, survey: &Survey) -> Result<(), StoreError> {
    let txn = db.begin_write()?;
    let mut tables = Tables::of(&txn);
    for session in &survey.removable {
        remove_session(&mut tables, *session)?;
    }
    let is_removable = |id: u128| survey.removable.contains(&SessionId::from_bits(id));
    tables.session_keys.open()?.retain(|_, session| !is_removable(session))?;
    let runs = |id: u128| survey.runs.contains_key(&RunId::from_bits(id));
    tables.keys.open()?.retain(|key, run| !runs(run) && !survey.strays.keys.contains(key))?;
    for run in survey.runs.keys() {
        let id = run.bits();
        tables.runs.open()?.remove(id)?;
        tables.open_runs.open()?.remove(id)?;
        if survey.needed.contains(&id) {
            make_readable(&mut tables, id)?;
        } else {
            tables.accounts.open()?.remove(id)?;
        }
    }
    for position in survey.positions.keys() {
        tables.log.open()?.remove(position)?;
    }
    remove_strays(&mut tables, &survey.strays)?;
    for (session, rows) in &survey.mended {
        rewrite_tail_and_marks(&mut tables, *session, rows)?;
    }
    drop(tables);
    txn.commit()?;
    Ok(())
}

/// Removes the rows whose key is the session's id.
fn remove_session(tables: &mut Tables<'_>, session: SessionId) -> Result<(), StoreError> {
    let bits = session.bits();
    tables.sessions.open()?.remove(bits)?;
    tables.tails.open()?.remove(bits)?;
    tables.tombstones.open()?.remove(bits)?;
    tables.marks.open()?.retain_in(rows_of(session), |_, _| false)?;
    tables.inbox.open()?.retain_in(rows_of(session), |_, _| false)?;
    tables.runs_by_session.open()?.retain_in(runs_of(session), |_, ()| false)?;
    Ok(())
}

fn remove_strays(tables: &mut Tables<'_>, strays: &StrayRows) -> Result<(), StoreError> {
    let StrayRows { log, runs, open_runs, accounts, keys: _, models } = strays;
    for position in log {
        tables.log.open()?.remove(position)?;
    }
    for run in runs {
        tables.runs.open()?.remove(run)?;
    }
    for run in open_runs {
        tables.open_runs.open()?.remove(run)?;
    }
    for account in accounts {
        make_readable(tables, *account)?;
    }
    for model in models {
        tables.models.open()?.remove(model.as_str())?;
    }
    Ok(())
}

/// Replaces an unreadable or missing account by one without limits: it may be the parent of other accounts.
fn make_readable(tables: &mut Tables<'_>, id: u128) -> Result<(), StoreError> {
    let table = tables.accounts.open()?;
    let is_readable = table.get(id)?.is_some_and(|account| accounts::decode(account.value()).is_ok());
    if !is_readable {
        let none = Amounts::default();
        let account =
            BudgetAccount { parent: None, limits: none, spent: none, reserved: none, owns_iterations: false };
        table.insert(id, &*accounts::encode(&account))?;
    }
    Ok(())
}

/// Rewrites a session's tail and marks according to its rows.
fn rewrite_tail_and_marks(
    tables: &mut Tables<'_>,
    session: SessionId,
    rows: &[(Seq, u64)],
) -> Result<(), StoreError> {
    let bits = session.bits();
    tables.marks.open()?.retain_in(rows_of(session), |_, _| false)?;
    let mut tail = SessionTail::default();
    for (last, position) in rows {
        (tail.last, tail.position) = (*last, *position);
        if tail.grow() {
            tables.marks.open()?.insert((bits, *last), *position)?;
        }
    }
    tables.tails.open()?.insert(bits, (tail.position, tail.last, tail.rows_since_mark))?;
    Ok(())
}
