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

use crate::port::{Journal, JournalError, Query, QueryRows, ReadError, WriteOp, WriteOutcome};

/// What goes wrong with a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalFault {
    /// Nothing is written, and the store says why.
    Error,
    /// There is no room: nothing is written.
    FullDisk,
    /// It is written, and nobody ever says so.
    LostAnswer,
    /// It is written, and the store does not know whether it is.
    AmbiguousWritten,
    /// It is not written, and the store does not know whether it is.
    AmbiguousUnwritten,
    /// The adapter panics; nothing is written.
    Panic,
    /// It is written, after this time; every other commit takes as long. The only fault that keeps the whole contract.
    Slow(Duration),
}

impl JournalFault {
    /// Whether what the commit carried is in the store afterwards.
    pub const fn is_written(self) -> bool {
        match self {
            Self::LostAnswer | Self::AmbiguousWritten | Self::Slow(_) => true,
            Self::Error | Self::FullDisk | Self::AmbiguousUnwritten | Self::Panic => false,
        }
    }

    /// What the store says of the commit and of every later one; `None` if it says nothing, or nothing bad.
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

/// A journal that fails: the commits before the one with the number `at` (from 1) go well, that one meets the fault, and
/// the later ones find a store that has failed. Reads go on.
#[derive(Debug, Clone)]
pub struct FaultyJournal {
    inner: Arc<dyn Journal>,
    fault: JournalFault,
    at: usize,
    commits: Arc<AtomicUsize>,
    met: Arc<OnceLock<Instant>>,
    /// How many of the next reads fail.
    unreadable: Arc<Mutex<usize>>,
}

impl FaultyJournal {
    /// `inner`, whose commit number `at` meets the fault.
    pub fn new(inner: Arc<dyn Journal>, fault: JournalFault, at: usize) -> Self {
        Self { inner, fault, at, commits: Arc::default(), met: Arc::default(), unreadable: Arc::default() }
    }

    /// A journal whose commits go well; what can fail are reads.
    pub fn sound(inner: Arc<dyn Journal>) -> Self {
        Self::new(inner, JournalFault::Error, usize::MAX)
    }

    /// Lets the next `reads` of records fail.
    pub fn fail_reads(&self, reads: usize) {
        *self.unreadable.lock().unwrap_or_else(PoisonError::into_inner) = reads;
    }

    /// When the fault was met.
    pub fn met_at(&self) -> Option<Instant> {
        self.met.get().copied()
    }

    fn may_read(&self, what: &Query) -> bool {
        let mut unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        let fails = *unreadable > 0 && matches!(what, Query::Records { .. });
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

    fn read(&self, what: Query) -> BoxFuture<'static, Result<QueryRows, ReadError>> {
        match self.may_read(&what) {
            true => self.inner.read(what),
            false => async { Err(ReadError::Unavailable("input/output error".into())) }.boxed(),
        }
    }
}
