//! Reading back what is on disk.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    model::{Durable, Record, RunRow, Seq, SessionId},
    port::{Journal, Query, QueryRows, ReadError},
};

/// Records read at once on replay.
const PAGE_RECORDS: usize = 500;
/// Pages that are read while one is folded: to read one takes four times as long, and who reads is not to wait for who folds.
const PREFETCH_PAGES: usize = 4;

/// Reads a session's records from `from` on, page by page, and hands each to `each`; behind a page that is full, a journal
/// that reads on threads of its own reads the next [`PREFETCH_PAGES`] ones meanwhile.
pub(crate) async fn replay(
    journal: &dyn Journal,
    session: SessionId,
    from: Seq,
    mut each: impl FnMut(Seq, Durable<Arc<Record>>) + Send,
) -> Result<(), ReadError> {
    let mut from = from.max(1);
    let mut read = || {
        let page = journal.read(Query::Records { session, from, max: PAGE_RECORDS });
        from += PAGE_RECORDS as Seq;
        page
    };
    let mut reading = VecDeque::from([read()]);
    while let Some(page) = reading.pop_front() {
        let QueryRows::Records(page) = page.await? else {
            return Err(ReadError::Unavailable("the journal answered another question".into()));
        };
        if page.len() < PAGE_RECORDS {
            reading.clear();
        } else {
            reading.resize_with(PREFETCH_PAGES, &mut read);
        }
        for stored in page {
            each(stored.seq, Durable::mark_durable(stored.record));
        }
    }
    Ok(())
}

/// The records of a run that has ended, and of no other.
pub(crate) async fn run_records(journal: &dyn Journal, row: &RunRow) -> Result<Vec<Arc<Record>>, ReadError> {
    let (mut records, mut from) = (Vec::new(), row.first);
    while from <= row.last {
        let max = usize::try_from(row.last - from + 1).unwrap_or(PAGE_RECORDS).min(PAGE_RECORDS);
        let page = Query::Records { session: row.session, from, max };
        let QueryRows::Records(page) = journal.read(page).await? else {
            return Err(ReadError::Unavailable("the journal answered another question".into()));
        };
        let Some(last) = page.last() else { break };
        from = last.seq + 1;
        let own = page.into_iter().filter(|stored| stored.record.body.run() == Some(row.id));
        records.extend(own.map(|stored| stored.record));
    }
    Ok(records)
}
