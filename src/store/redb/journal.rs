//! [`RedbJournal`], the implementation of the port `Journal`: commits through the committer's thread, and reads on
//! snapshots.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
    thread::{Builder, JoinHandle},
};

use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use hermod_actors::{
    model::{
        AccountId, BudgetAccount, DeliveryQuery, DiskFull, MessageRow, ModelRef, ModelRow, Occurrence,
        OccurrenceId, OccurrenceQuery, RunId, RunRow, Schedule, ScheduleName, Seq, SessionId, SessionRow,
        StoredDelivery,
    },
    port::{
        FeedCursor, FeedEntry, InboxRow, Journal, JournalError, ReadError, ReadFuture, RowReader,
        StoredRecord, WriteOp, WriteOutcome,
    },
};
use redb::ReadableDatabase;
use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot},
};

use super::{
    backup::RESTORE_GENERATION,
    batch::CommitterState,
    blobs::Blobs,
    committer::{Committer, CommitterJob},
    disk_full_wait::DiskFullWait,
    engine::Engine,
    error::Result,
    gc::{GarbageCollector, GcStep},
    open::{self, OpenError, OpenStore},
    read::{ReadAbort, SnapshotReader},
    tables::META,
};
use crate::files::IoResult as _;

/// When a commit is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// A commit is acknowledged when it is on disk. It survives `kill -9` and power loss. After `kill -9` the store
    /// opens in a millisecond; after another boot a check of the file takes up to a second.
    Strict,
    /// A commit is acknowledged when it can be read. Commits go to disk after a second of idle time, every 4096
    /// commits, and on closing: newer commits are lost with the process.
    Relaxed,
}

/// A journal in a folder of this machine.
///
/// Dropping it writes what is queued and waits for that, but not for space on a full disk.
pub struct RedbJournal {
    dir: PathBuf,
    pub(super) db: Arc<Engine>,
    blobs: Blobs,
    /// How often the store was restored.
    restore_generation: u64,
    disk_wait: Arc<DiskFullWait>,
    /// Held while rows are removed, or while nothing may be removed.
    pub(super) gc_gate: Arc<Semaphore>,
    /// `None` only during its drop.
    committer: Option<(Sender<CommitterJob>, JoinHandle<()>)>,
}

impl RedbJournal {
    /// Opens the store in `dir`, or creates an empty one. Blocks: a millisecond after a clean shutdown or with strict
    /// durability, otherwise seconds per gigabyte. An opening after another boot checks the file, and an opening may
    /// shrink it; both take longer.
    pub fn open(dir: &Path, durability: Durability) -> Result<Self, OpenError> {
        Self::start(open::open(dir)?, durability)
    }

    pub(super) fn start(store: OpenStore, durability: Durability) -> Result<Self, OpenError> {
        let OpenStore { dir, db, epoch, last_position, spiller, disk_wait } = store;
        let row = db.file.run(|| Ok(db.begin_read()?.open_table(META)?.get(RESTORE_GENERATION)?));
        let row = row.map_err(|error| open::explain(&db.file.path, error))?;
        let restore_generation = row.map_or(0, |row| row.value());
        let (db, blobs) = (Arc::new(db), spiller.blobs.clone());
        let (jobs, queue) = channel();
        let committer = Committer {
            db: Arc::clone(&db),
            state: CommitterState::new(epoch, last_position),
            spiller,
            disk_wait: Arc::clone(&disk_wait),
            durability,
            pending: 0,
            failure: None,
        };
        let thread =
            Builder::new().name("committer".to_owned()).spawn(move || committer.run(&queue)).at(&dir)?;
        Ok(Self {
            dir,
            db,
            blobs,
            restore_generation,
            disk_wait,
            gc_gate: Arc::new(Semaphore::new(1)),
            committer: Some((jobs, thread)),
        })
    }

    /// A garbage collector that works while this store is open.
    pub fn garbage_collector(self: &Arc<Self>) -> GarbageCollector {
        GarbageCollector { journal: Arc::downgrade(self) }
    }

    pub(super) fn reader(&self) -> Result<SnapshotReader> {
        let file = &self.db.file;
        file.run(|| Ok(SnapshotReader::new(self.db.begin_read()?, self.blobs.clone(), file.clone())))
    }

    /// Reads in the calling task, or on the blocking pool if the read is not short.
    fn read<T: Send + 'static>(
        &self,
        read: impl Fn(&mut SnapshotReader) -> Result<T, ReadAbort> + Send + 'static,
    ) -> ReadFuture<T> {
        let mut reader = match self.reader() {
            Ok(reader) => reader,
            Err(error) => return ready(Err(ReadError::Unavailable(error.to_string()))).boxed(),
        };
        let short = if self.disk_wait.may_block_readers() {
            Err(ReadAbort::TooLong)
        } else {
            reader.read_short(&read)
        };
        match short {
            Err(ReadAbort::TooLong) => match Handle::try_current() {
                Ok(runtime) => {
                    let rows = runtime.spawn_blocking(move || reader.read(&read));
                    let ended = |error| Err(ReadError::Unavailable(format!("a read ended early: {error}")));
                    rows.map(move |rows| rows.unwrap_or_else(ended)).boxed()
                }
                Err(_) => ready(reader.read(&read)).boxed(),
            },
            read => ready(read.map_err(ReadError::from)).boxed(),
        }
    }

    /// Sends a step to the committer; `false` if the committer's thread has ended.
    pub(super) fn send_gc_step(&self, step: GcStep) -> bool {
        self.committer.as_ref().is_some_and(|(jobs, _)| jobs.send(CommitterJob::Gc(step)).is_ok())
    }
}

impl Journal for RedbJournal {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        let (answer, receiver) = oneshot::channel();
        if let Some((jobs, _)) = &self.committer {
            // If the committer has ended, `answer` is dropped, and `receiver` reports it.
            let _ = jobs.send(CommitterJob::Write { batch, answer });
        }
        let ended = |_| Err(JournalError::Unavailable("the committer's thread has ended".to_owned()));
        receiver.map(move |answer| answer.unwrap_or_else(ended)).boxed()
    }

    fn restore_generation(&self) -> u64 {
        self.restore_generation
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>> {
        self.read(move |rows| rows.records(session, from, max))
    }

    fn rows(&self) -> &dyn RowReader {
        self
    }

    fn disk_full(&self) -> Option<DiskFull> {
        self.disk_wait.missing()
    }
}

impl RowReader for RedbJournal {
    fn inbox(&self, session: SessionId) -> ReadFuture<Vec<InboxRow>> {
        self.read(move |rows| rows.inbox(session))
    }

    fn session(&self, id: SessionId) -> ReadFuture<Option<SessionRow>> {
        self.read(move |rows| rows.session(id))
    }

    fn session_of_key(&self, key: &str) -> ReadFuture<Option<SessionRow>> {
        let key = key.to_owned();
        self.read(move |rows| rows.session_of_key(&key))
    }

    fn sessions(&self, max: usize) -> ReadFuture<Vec<SessionRow>> {
        self.read(move |rows| rows.sessions(max))
    }

    fn sessions_before(&self, before: SessionId, max: usize) -> ReadFuture<Vec<SessionRow>> {
        self.read(move |rows| rows.sessions_before(before, max))
    }

    fn run(&self, id: RunId) -> ReadFuture<Option<RunRow>> {
        self.read(move |rows| rows.run(id))
    }

    fn run_of_key(&self, key: &str) -> ReadFuture<Option<RunRow>> {
        let key = key.to_owned();
        self.read(move |rows| rows.run_of_key(&key))
    }

    fn id_of_key(&self, key: &str) -> ReadFuture<Option<RunId>> {
        let key = key.to_owned();
        self.read(move |rows| rows.id_of_key(&key))
    }

    fn message(&self, id: RunId) -> ReadFuture<Option<MessageRow>> {
        self.read(move |rows| rows.message(id))
    }

    fn runs(&self, session: Option<SessionId>, max: usize) -> ReadFuture<Vec<RunRow>> {
        self.read(move |rows| rows.runs(session, max))
    }

    fn runs_before(&self, before: RunId, max: usize) -> ReadFuture<Vec<RunRow>> {
        self.read(move |rows| rows.runs_before(before, max))
    }

    fn feed(&self, after: FeedCursor, max: usize) -> ReadFuture<Vec<FeedEntry>> {
        self.read(move |rows| rows.feed(after, max))
    }

    fn feed_end(&self) -> ReadFuture<FeedCursor> {
        self.read(SnapshotReader::feed_end)
    }

    fn open_runs(&self) -> ReadFuture<Vec<RunRow>> {
        self.read(SnapshotReader::open_runs)
    }

    fn account(&self, id: AccountId) -> ReadFuture<Option<BudgetAccount>> {
        self.read(move |rows| rows.account(id))
    }

    fn models(&self, models: Vec<ModelRef>) -> ReadFuture<Vec<ModelRow>> {
        self.read(move |rows| rows.models(&models))
    }

    fn all_models(&self) -> ReadFuture<Vec<ModelRow>> {
        self.read(SnapshotReader::all_models)
    }

    fn deliveries(&self, query: DeliveryQuery) -> ReadFuture<Vec<StoredDelivery>> {
        self.read(move |rows| rows.deliveries(&query))
    }

    fn schedules(&self) -> ReadFuture<Vec<Schedule>> {
        self.read(SnapshotReader::schedules)
    }

    fn schedule(&self, name: ScheduleName) -> ReadFuture<Option<Schedule>> {
        self.read(move |rows| rows.schedule(&name))
    }

    fn occurrence(&self, id: OccurrenceId) -> ReadFuture<Option<Occurrence>> {
        self.read(move |rows| rows.occurrence(&id))
    }

    fn occurrences(&self, query: OccurrenceQuery) -> ReadFuture<Vec<Occurrence>> {
        self.read(move |rows| rows.occurrences(&query))
    }
}

impl fmt::Debug for RedbJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbJournal").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Drop for RedbJournal {
    fn drop(&mut self) {
        if let Some((jobs, thread)) = self.committer.take() {
            self.disk_wait.stop_waiting();
            drop(jobs);
            if thread.join().is_err() {
                tracing::error!(dir = %self.dir.display(), "the committer's thread has panicked");
            }
        }
    }
}
