//! A journal that counts what goes through it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::BoxFuture;
use hermod::store::redb::RedbJournal;
use hermod_actors::{
    model::{Seq, SessionId},
    port::{Journal, JournalError, ReadFuture, RowReader, StoredRecord, WriteOp, WriteOutcome},
};

#[derive(Debug)]
pub(crate) struct Watched {
    inner: RedbJournal,
    /// Commits, writes, records.
    counts: [AtomicUsize; 3],
}

impl Watched {
    pub(crate) fn new(inner: RedbJournal) -> Arc<Self> {
        Arc::new(Self { inner, counts: Default::default() })
    }

    /// Commits, writes and records so far.
    pub(crate) fn counts(&self) -> [usize; 3] {
        self.counts.each_ref().map(|count| count.load(Ordering::SeqCst))
    }
}

impl Journal for Watched {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        let records = batch.iter().map(|write| match write {
            WriteOp::Append(append) => {
                let founded = append.spawned.iter().map(|founded| founded.records.len());
                append.records.len() + founded.sum::<usize>()
            }
            WriteOp::Open(_)
            | WriteOp::Close(..)
            | WriteOp::Deliver(..)
            | WriteOp::UpdateDelivery(_)
            | WriteOp::RetryDelivery(..)
            | WriteOp::Schedule(_)
            | WriteOp::RemoveSchedule(..) => 0,
        });
        for (count, more) in self.counts.iter().zip([1, batch.len(), records.sum()]) {
            count.fetch_add(more, Ordering::SeqCst);
        }
        self.inner.commit(batch)
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>> {
        self.inner.records(session, from, max)
    }

    fn rows(&self) -> &dyn RowReader {
        self.inner.rows()
    }
}
