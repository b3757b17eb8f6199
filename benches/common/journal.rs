//! A journal that counts what goes through it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::BoxFuture;
use hermod::store::redb::RedbJournal;
use hermod_actors::port::{Journal, JournalError, Query, QueryRows, ReadError, WriteOp, WriteOutcome};

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
            WriteOp::Open(_) | WriteOp::Close(..) | WriteOp::Deliver(..) => 0,
        });
        for (count, more) in self.counts.iter().zip([1, batch.len(), records.sum()]) {
            count.fetch_add(more, Ordering::SeqCst);
        }
        self.inner.commit(batch)
    }

    fn read(&self, what: Query) -> BoxFuture<'static, Result<QueryRows, ReadError>> {
        self.inner.read(what)
    }
}
