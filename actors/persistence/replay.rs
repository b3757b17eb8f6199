//! Reads records back from the journal: all of a session, one page, or those of one run. The first two mark the records
//! as durable.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    model::{Durable, Record, RunRow, Seq, SessionId},
    port::{Journal, ReadError},
};

/// Records of one page on replay.
const PAGE_RECORDS: usize = 500;
/// Records of one page for a watcher. There may be many watchers, and a record may be large.
const WATCHED_RECORDS: usize = 32;
/// Pages that are read ahead: reading a page takes four times as long as folding it, and reads must not wait for folds.
const PREFETCH_PAGES: usize = 4;

/// Reads a session's records in order, beginning with `from`, and passes each to `each`. After a full page, a journal
/// with its own threads reads up to [`PREFETCH_PAGES`] pages ahead.
pub(crate) async fn replay(
    journal: &dyn Journal,
    session: SessionId,
    from: Seq,
    mut each: impl FnMut(Seq, Durable<Arc<Record>>) + Send,
) -> Result<(), ReadError> {
    let mut from = from.max(1);
    let mut read = || {
        let page = journal.records(session, from, PAGE_RECORDS);
        from += PAGE_RECORDS as Seq;
        page
    };
    let mut reading = VecDeque::from([read()]);
    while let Some(page) = reading.pop_front() {
        let page = page.await?;
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

/// One page of a session's records for a watcher, beginning with `from`; empty if there are none.
pub(crate) async fn replay_page(
    journal: &dyn Journal,
    session: SessionId,
    from: Seq,
) -> Result<VecDeque<(Seq, Durable<Arc<Record>>)>, ReadError> {
    let page = journal.records(session, from.max(1), WATCHED_RECORDS).await?;
    Ok(page.into_iter().map(|stored| (stored.seq, Durable::mark_durable(stored.record))).collect())
}

/// The records of one run, as far as its row reaches, without those of other runs.
pub(crate) async fn run_records(journal: &dyn Journal, row: &RunRow) -> Result<Vec<Arc<Record>>, ReadError> {
    let (mut records, mut from) = (Vec::new(), row.first);
    while from <= row.last {
        let max = usize::try_from(row.last - from + 1).unwrap_or(PAGE_RECORDS).min(PAGE_RECORDS);
        let page = journal.records(row.session, from, max).await?;
        let Some(last) = page.last() else { break };
        from = last.seq + 1;
        let of_run = page.into_iter().filter(|stored| stored.record.body.run() == Some(row.id));
        records.extend(of_run.map(|stored| stored.record));
    }
    Ok(records)
}
