//! Migration of older schemas when a store is opened, in the transaction that starts the epoch: a crash in between
//! leaves the old store.

use std::borrow::Cow;

use hermod_actors::model::SessionId;
use redb::{ReadableTable, TableDefinition, WriteTransaction};

use super::{
    error::Result,
    log::{self, SessionTail},
    tables::{CompositeKey, Tables},
};

/// Schema 1: a row for each record, by (session, sequence number).
const RECORDS: TableDefinition<CompositeKey, &[u8]> = TableDefinition::new("log");

/// From schema 1: moves the records to rows of whole appends.
pub(super) fn from_1(txn: &WriteTransaction) -> Result<()> {
    let records = txn.open_table(RECORDS)?;
    let (mut tables, mut last_position) = (Tables::of(txn), 0);
    let mut session: Option<u128> = records.first()?.map(|(key, _)| key.value().0);
    while let Some(bits) = session {
        let rows = records.range((bits, 0)..=(bits, u64::MAX))?;
        let stored = rows.map(|row| Ok(Cow::Owned(row?.1.value().to_vec())));
        let id = SessionId::from_bits(bits);
        log::append(&mut tables, &mut last_position, id, SessionTail::default(), stored)?;
        let next = bits.checked_add(1).map(|next| records.range((next, 0)..)).transpose()?;
        session = next.and_then(|mut rows| rows.next()).transpose()?.map(|(key, _)| key.value().0);
    }
    drop((records, tables));
    txn.delete_table(RECORDS)?;
    Ok(())
}
