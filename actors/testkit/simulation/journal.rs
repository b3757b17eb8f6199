//! The store of one process life: injects the plan's commit and read faults, records what it wrote and acknowledged.
//! Also the state of that process, such as whether it has crashed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, pending},
};
use tokio::sync::Notify;

use super::{
    external_world::ExternalWorld,
    plan::{CommitFault, Downtime, FaultTrigger, PlannedFault},
};
use crate::MemoryJournal;
use hermod_actors::{
    model::{
        AccountId, BudgetAccount, DeliveryQuery, MessageRow, ModelRef, ModelRow, Occurrence, OccurrenceId,
        OccurrenceQuery, Record, RunId, RunRow, Schedule, ScheduleName, Seq, SessionId, SessionRow,
        StoredDelivery,
    },
    port::{
        Append, FeedCursor, FeedEntry, InboxRow, Journal, JournalError, ReadError, ReadFuture, RowReader,
        StoredRecord, WriteOp, WriteOutcome,
    },
};

/// State of one process life, shared by its store and its driver.
#[derive(Debug, Default)]
pub(super) struct ProcessState {
    /// The process has crashed: no commit or read returns any more.
    dead: AtomicBool,
    died: Notify,
    /// The downtime after this life.
    downtime: std::sync::Mutex<Option<Downtime>>,
    /// The store has failed: every later commit returns an error.
    failed: AtomicBool,
    /// Number of commits under way.
    writing: AtomicUsize,
    /// Whether the runtime may end by itself without a violation.
    pub(super) may_end: AtomicBool,
    /// Number of the next reads of records that fail. `failed_reads` counts those that have failed.
    pub(super) reads_to_fail: AtomicUsize,
    failed_reads: AtomicUsize,
    /// Milliseconds added to the next commit.
    pub(super) delay_ms: AtomicU64,
    /// Milliseconds added to the next commit that spawns a subagent or delivers to an inbox.
    pub(super) notice_delay_ms: AtomicU64,
}

impl ProcessState {
    /// Crashes the process. The next life begins after `pause`, unless a downtime is already set.
    pub(super) fn kill(&self, pause: Downtime) {
        self.dead.store(true, Ordering::SeqCst);
        self.set_downtime(pause);
        self.died.notify_one();
    }

    /// Sets the downtime after this life; the first one set stays.
    pub(super) fn set_downtime(&self, pause: Downtime) {
        self.downtime.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(pause);
    }

    pub(super) fn downtime(&self) -> Downtime {
        let pause = *self.downtime.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        pause.unwrap_or(Downtime { ms: 0, reboots: false })
    }

    pub(super) async fn wait_for_end(&self) {
        self.died.notified().await;
    }

    /// Whether a commit is under way. Tasks that wait for it do not end by themselves.
    pub(super) fn is_writing(&self) -> bool {
        self.writing.load(Ordering::SeqCst) > 0
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }
}

/// The journal of one life, over the store that outlasts it.
#[derive(Debug, Clone)]
pub(super) struct LifeJournal {
    pub(super) inner: MemoryJournal,
    pub(super) outside: Arc<ExternalWorld>,
    pub(super) process: Arc<ProcessState>,
    pub(super) faults: Arc<[PlannedFault]>,
    pub(super) disk_ms: u64,
}

type SimulatedCommit = Result<Vec<WriteOutcome>, JournalError>;

/// The records of each write of a batch, by session and first sequence, to record as acknowledged after the commit.
type BatchRecords = Vec<Vec<(SessionId, Seq, Vec<Arc<Record>>)>>;

fn records_of_write(write: &WriteOp) -> Vec<(SessionId, Seq, Vec<Arc<Record>>)> {
    let WriteOp::Append(append) = write else { return Vec::new() };
    let appended = (append.session, append.expected, append.records.clone());
    let found = append.spawned.iter().map(|spawned| (spawned.session, 1, spawned.records.clone()));
    found.chain([appended]).collect()
}

impl LifeJournal {
    /// Counts a commit and returns its planned fault. Applies a stray write that is due first.
    fn fault(&self) -> Option<CommitFault> {
        let mut inner = self.outside.lock();
        inner.observations.commits += 1;
        let number = inner.observations.commits;
        inner.apply_stray_write(number);
        let (n, fault) = self.faults.iter().find_map(|fault| match fault.trigger {
            FaultTrigger::Commit(at, what) if at == number => Some((fault.n, what)),
            FaultTrigger::Commit(..) | FaultTrigger::At(..) => None,
        })?;
        inner.observations.injected.insert(n);
        inner.observations.fault_names.insert(fault.name());
        Some(fault)
    }

    /// Milliseconds added to a batch that notifies other sessions. If any, records the notifying session.
    fn notice_delay_ms(&self, batch: &[WriteOp]) -> u64 {
        let notifies = |append: &Append| !append.deliver.is_empty() || !append.spawned.is_empty();
        let notifier = batch.iter().find_map(|write| match write {
            WriteOp::Append(append) if notifies(append) => Some(append.session),
            WriteOp::Append(_)
            | WriteOp::Open(_)
            | WriteOp::Close(..)
            | WriteOp::Deliver(..)
            | WriteOp::UpdateDelivery(_)
            | WriteOp::RetryDelivery(..)
            | WriteOp::Schedule(_)
            | WriteOp::RemoveSchedule(..) => None,
        });
        let Some(notifier) = notifier else { return 0 };
        let ms = self.process.notice_delay_ms.swap(0, Ordering::SeqCst);
        if ms > 0 {
            self.outside.lock().notifying_session = Some(notifier);
        }
        ms
    }

    /// Applies a batch and records its appends. Never returns if the process has crashed in the meantime.
    async fn write(self, batch: Vec<WriteOp>) -> SimulatedCommit {
        if self.process.is_dead() {
            return pending().await;
        }
        let appends: Vec<Option<Append>> = batch
            .iter()
            .map(|write| match write {
                WriteOp::Append(append) => Some(Append::clone(append)),
                WriteOp::Open(_)
                | WriteOp::Close(..)
                | WriteOp::Deliver(..)
                | WriteOp::UpdateDelivery(_)
                | WriteOp::RetryDelivery(..)
                | WriteOp::Schedule(_)
                | WriteOp::RemoveSchedule(..) => None,
            })
            .collect();
        let written = self.inner.commit(batch).await?;
        let mut inner = self.outside.lock();
        for (append, written) in appends.iter().zip(&written) {
            if let (Some(append), WriteOutcome::Appended(appended)) = (append, written) {
                inner.observations.on_appended(append, appended);
            }
        }
        Ok(written)
    }

    /// Returns the result, and records the batch's appended records as acknowledged.
    fn acknowledge(&self, batch_records: &BatchRecords, committed: SimulatedCommit) -> SimulatedCommit {
        let mut inner = self.outside.lock();
        for (appends, written) in batch_records.iter().zip(committed.iter().flatten()) {
            if !matches!(written, WriteOutcome::Appended(_)) {
                continue;
            }
            for (session, first, records) in appends {
                for (record, seq) in records.iter().zip(*first..) {
                    inner.observations.on_acknowledged(*session, seq, record);
                }
            }
        }
        committed
    }

    async fn commit_with_fault(self, batch: Vec<WriteOp>, fault: Option<CommitFault>) -> SimulatedCommit {
        let process = Arc::clone(&self.process);
        match fault {
            None => {
                let ms =
                    self.disk_ms + process.delay_ms.swap(0, Ordering::SeqCst) + self.notice_delay_ms(&batch);
                if ms > 0 {
                    sleep(ms).await;
                }
                self.write(batch).await
            }
            Some(CommitFault::Slow(ms)) => {
                sleep(ms).await;
                self.write(batch).await
            }
            Some(CommitFault::CrashBefore(pause)) => {
                process.kill(pause);
                pending().await
            }
            Some(CommitFault::Strays(commits, pause)) => {
                {
                    let mut inner = self.outside.lock();
                    let before = inner.observations.commits + commits;
                    inner.stray = Some((self.inner.clone(), batch, before));
                }
                process.kill(pause);
                pending().await
            }
            Some(CommitFault::CrashAfter(pause)) => {
                self.write(batch).await?;
                process.kill(pause);
                pending().await
            }
            Some(CommitFault::Hangs(is_written, ms, pause)) => {
                if is_written {
                    self.write(batch).await?;
                }
                sleep(ms).await;
                process.kill(pause);
                pending().await
            }
            Some(CommitFault::Fails(fault, pause)) => {
                process.failed.store(true, Ordering::SeqCst);
                process.may_end.store(true, Ordering::SeqCst);
                process.set_downtime(pause);
                if fault.is_written() {
                    self.write(batch).await?;
                }
                match fault.error() {
                    Some(error) => Err(error),
                    None => panic!("planned: the journal panics"),
                }
            }
        }
    }
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

impl Journal for LifeJournal {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, SimulatedCommit> {
        if self.process.is_dead() {
            return pending().boxed();
        }
        let fault = self.fault();
        if self.process.failed.load(Ordering::SeqCst) {
            return async { Err(JournalError::Unavailable("the store has failed".into())) }.boxed();
        }
        let batch_records: BatchRecords = batch.iter().map(records_of_write).collect();
        let this = self.clone();
        async move {
            this.process.writing.fetch_add(1, Ordering::SeqCst);
            let committed = this.clone().commit_with_fault(batch, fault).await;
            this.process.writing.fetch_sub(1, Ordering::SeqCst);
            this.acknowledge(&batch_records, committed)
        }
        .boxed()
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>> {
        if self.process.is_dead() {
            return pending().boxed();
        }
        let fails = self
            .process
            .reads_to_fail
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok();
        if fails {
            self.outside.record_fault("unreadable records");
        }
        // The third failed read of a session ends the runtime. The count covers all sessions of the life.
        if fails && self.process.failed_reads.fetch_add(1, Ordering::SeqCst) >= 2 {
            self.process.may_end.store(true, Ordering::SeqCst);
        }
        match fails {
            true => async { Err(ReadError::Unavailable("planned: input/output error".into())) }.boxed(),
            false => self.inner.records(session, from, max),
        }
    }

    fn rows(&self) -> &dyn RowReader {
        if self.process.is_dead() { &DeadRows } else { self.inner.rows() }
    }
}

/// The rows of a crashed process: no read returns.
struct DeadRows;

impl RowReader for DeadRows {
    fn inbox(&self, _: SessionId) -> ReadFuture<Vec<InboxRow>> {
        pending().boxed()
    }

    fn session(&self, _: SessionId) -> ReadFuture<Option<SessionRow>> {
        pending().boxed()
    }

    fn session_of_key(&self, _: &str) -> ReadFuture<Option<SessionRow>> {
        pending().boxed()
    }

    fn sessions(&self, _: usize) -> ReadFuture<Vec<SessionRow>> {
        pending().boxed()
    }

    fn sessions_before(&self, _: SessionId, _: usize) -> ReadFuture<Vec<SessionRow>> {
        pending().boxed()
    }

    fn run(&self, _: RunId) -> ReadFuture<Option<RunRow>> {
        pending().boxed()
    }

    fn run_of_key(&self, _: &str) -> ReadFuture<Option<RunRow>> {
        pending().boxed()
    }

    fn id_of_key(&self, _: &str) -> ReadFuture<Option<RunId>> {
        pending().boxed()
    }

    fn message(&self, _: RunId) -> ReadFuture<Option<MessageRow>> {
        pending().boxed()
    }

    fn runs(&self, _: Option<SessionId>, _: usize) -> ReadFuture<Vec<RunRow>> {
        pending().boxed()
    }

    fn runs_before(&self, _: RunId, _: usize) -> ReadFuture<Vec<RunRow>> {
        pending().boxed()
    }

    fn feed(&self, _: FeedCursor, _: usize) -> ReadFuture<Vec<FeedEntry>> {
        pending().boxed()
    }

    fn feed_end(&self) -> ReadFuture<FeedCursor> {
        pending().boxed()
    }

    fn open_runs(&self) -> ReadFuture<Vec<RunRow>> {
        pending().boxed()
    }

    fn account(&self, _: AccountId) -> ReadFuture<Option<BudgetAccount>> {
        pending().boxed()
    }

    fn models(&self, _: Vec<ModelRef>) -> ReadFuture<Vec<ModelRow>> {
        pending().boxed()
    }

    fn all_models(&self) -> ReadFuture<Vec<ModelRow>> {
        pending().boxed()
    }

    fn deliveries(&self, _: DeliveryQuery) -> ReadFuture<Vec<StoredDelivery>> {
        pending().boxed()
    }

    fn schedules(&self) -> ReadFuture<Vec<Schedule>> {
        pending().boxed()
    }

    fn schedule(&self, _: ScheduleName) -> ReadFuture<Option<Schedule>> {
        pending().boxed()
    }

    fn occurrence(&self, _: OccurrenceId) -> ReadFuture<Option<Occurrence>> {
        pending().boxed()
    }

    fn occurrences(&self, _: OccurrenceQuery) -> ReadFuture<Vec<Occurrence>> {
        pending().boxed()
    }
}
