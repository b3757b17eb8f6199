//! A journal adapter that fails at a chosen commit, or at chosen reads.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, pending},
};

use tokio::time::Instant;

use hermod_actors::{
    model::{Seq, SessionId},
    port::{Journal, JournalError, ReadError, ReadFuture, RowReader, StoredRecord, WriteOp, WriteOutcome},
};

/// How a commit fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalFault {
    /// Nothing is written; the store returns an I/O error.
    Error,
    /// The disk is full: nothing is written.
    FullDisk,
    /// The commit is written; its future never resolves.
    LostAnswer,
    /// The commit is written; the store reports an ambiguous outcome.
    AmbiguousWritten,
    /// The commit is not written; the store reports an ambiguous outcome.
    AmbiguousUnwritten,
    /// The adapter panics; nothing is written.
    Panic,
    /// Each commit is written after this time. The only fault that keeps the whole contract.
    Slow(Duration),
}

impl JournalFault {
    /// True if the commit's writes are in the store afterwards.
    pub const fn is_written(self) -> bool {
        match self {
            Self::LostAnswer | Self::AmbiguousWritten | Self::Slow(_) => true,
            Self::Error | Self::FullDisk | Self::AmbiguousUnwritten | Self::Panic => false,
        }
    }

    /// The error for this commit and every later one. `None` if the commit succeeds, panics or never resolves.
    pub fn error(self) -> Option<JournalError> {
        match self {
            Self::Error => Some(JournalError::Unavailable("input/output error".into())),
            Self::FullDisk => Some(JournalError::Unavailable("No space left on device (os error 28)".into())),
            Self::AmbiguousWritten | Self::AmbiguousUnwritten => {
                Some(JournalError::Ambiguous("the connection broke".into()))
            }
            Self::LostAnswer | Self::Panic | Self::Slow(_) => None,
        }
    }
}

/// A journal that fails from commit number `at` (counted from 1). Earlier commits succeed, commit `at` meets the fault,
/// and later ones find a failed store. Reads still succeed, except after [`FaultyJournal::fail_reads`].
#[derive(Debug, Clone)]
pub struct FaultyJournal {
    inner: Arc<dyn Journal>,
    fault: JournalFault,
    at: usize,
    commits: Arc<AtomicUsize>,
    met: Arc<OnceLock<Instant>>,
    /// Number of the next reads of records that fail.
    unreadable: Arc<Mutex<usize>>,
}

impl FaultyJournal {
    /// Wraps `inner`; commit number `at` (counted from 1) meets the fault.
    pub fn new(inner: Arc<dyn Journal>, fault: JournalFault, at: usize) -> Self {
        Self { inner, fault, at, commits: Arc::default(), met: Arc::default(), unreadable: Arc::default() }
    }

    /// Wraps `inner` without failing commits; reads can still be made to fail.
    pub fn sound(inner: Arc<dyn Journal>) -> Self {
        Self::new(inner, JournalFault::Error, usize::MAX)
    }

    /// Makes the next `reads` reads of records fail.
    pub fn fail_reads(&self, reads: usize) {
        *self.unreadable.lock().unwrap_or_else(PoisonError::into_inner) = reads;
    }

    /// When the first commit met the fault. `None` before that, and always for [`JournalFault::Slow`].
    pub fn met_at(&self) -> Option<Instant> {
        self.met.get().copied()
    }

    /// Whether the next read of records succeeds.
    fn may_read(&self) -> bool {
        let mut unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        let fails = *unreadable > 0;
        *unreadable -= usize::from(fails);
        !fails
    }
}

impl Journal for FaultyJournal {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        let number = self.commits.fetch_add(1, Ordering::SeqCst) + 1;
        let fault = self.fault;
        if let JournalFault::Slow(delay) = fault {
            let inner = Arc::clone(&self.inner);
            return async move {
                tokio::time::sleep(delay).await;
                inner.commit(batch).await
            }
            .boxed();
        }
        if number < self.at {
            return self.inner.commit(batch);
        }
        self.met.get_or_init(Instant::now);
        let written = (number == self.at && fault.is_written()).then(|| self.inner.commit(batch));
        async move {
            if let Some(written) = written {
                written.await?;
            }
            match fault.error() {
                Some(error) => Err(error),
                None if fault == JournalFault::Panic => panic!("the journal panics"),
                None => pending().await,
            }
        }
        .boxed()
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>> {
        match self.may_read() {
            true => self.inner.records(session, from, max),
            false => async { Err(ReadError::Unavailable("input/output error".into())) }.boxed(),
        }
    }

    fn rows(&self) -> &dyn RowReader {
        self.inner.rows()
    }
}
