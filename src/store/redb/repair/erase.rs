//! Removes the surveyed rows, and rewrites the tails and marks of mended sessions, in one transaction. An account that
//! others need stays; if it is unreadable, it is replaced by one without limits.

use hermod_actors::model::{Amounts, BudgetAccount, Seq, SessionId};
use redb::{Database, ReadableTable};

use super::survey::{RowKey, Survey};
use crate::store::redb::{
    accounts,
    error::Result,
    log::SessionTail,
    tables::{Tables, rows_of, runs_of},
};

pub(super) fn erase(db: &Database, survey: &Survey) -> Result<()> {
    let txn = db.begin_write()?;
    let mut tables = Tables::of(&txn);
    for row in survey.rows.values().flatten() {
        remove_row(&mut tables, row)?;
    }
    for (session, rows) in &survey.mended {
        rewrite_tail_and_marks(&mut tables, *session, rows)?;
    }
    drop(tables);
    Ok(txn.commit()?)
}

/// Removes a row, and those that are derived from it.
fn remove_row(tables: &mut Tables<'_>, row: &RowKey) -> Result<()> {
    match row {
        RowKey::Session(session) => {
            let bits = session.bits();
            tables.sessions()?.remove(bits)?;
            tables.tails()?.remove(bits)?;
            tables.tombstones()?.remove(bits)?;
            tables.marks()?.retain_in(rows_of(*session), |_, _| false)?;
            tables.runs_by_session()?.retain_in(runs_of(*session), |_, ()| false)?;
            tables.messages_by_session()?.retain_in(runs_of(*session), |_, ()| false)?;
        }
        RowKey::SessionKey(key) => drop(tables.session_keys()?.remove(key.as_str())?),
        RowKey::Run(run) => {
            tables.runs()?.remove(run.bits())?;
            tables.open_runs()?.remove(run.bits())?;
        }
        RowKey::Account(run) => drop(tables.accounts()?.remove(run.bits())?),
        RowKey::NeededAccount(run) => make_readable(tables, run.bits())?,
        RowKey::OpenRun(run) => drop(tables.open_runs()?.remove(run.bits())?),
        RowKey::Message(id) => drop(tables.messages()?.remove(id.bits())?),
        RowKey::Key(key, _) => drop(tables.keys()?.remove(key.as_str())?),
        RowKey::Inbox(session, number) => drop(tables.inbox()?.remove((session.bits(), *number))?),
        RowKey::Log(position) => drop(tables.log()?.remove(position)?),
        RowKey::Model(name) => drop(tables.models()?.remove(name.as_str())?),
        RowKey::Outbox(target, number) => drop(tables.outbox()?.remove((target.as_str(), *number))?),
        RowKey::Delivered(number) => drop(tables.delivered()?.remove(number)?),
        RowKey::DeadLetter(number) => drop(tables.dead_letters()?.remove(number)?),
        RowKey::Schedule(name) => drop(tables.schedules()?.remove(name.as_str())?),
        RowKey::Occurrence(name, at) => drop(tables.occurrences()?.remove((name.as_str(), *at))?),
    }
    Ok(())
}

/// Replaces an unreadable or missing account by one without limits: it may be the parent of other accounts.
fn make_readable(tables: &mut Tables<'_>, id: u128) -> Result<()> {
    let table = tables.accounts()?;
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
fn rewrite_tail_and_marks(tables: &mut Tables<'_>, session: SessionId, rows: &[(Seq, u64)]) -> Result<()> {
    let bits = session.bits();
    tables.marks()?.retain_in(rows_of(session), |_, _| false)?;
    let mut tail = SessionTail::default();
    for (last, position) in rows {
        (tail.last, tail.position) = (*last, *position);
        if tail.grow() {
            tables.marks()?.insert((bits, *last), *position)?;
        }
    }
    tables.tails()?.insert(bits, (tail.position, tail.last, tail.rows_since_mark))?;
    Ok(())
}
