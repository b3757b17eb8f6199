//! The store of one life, which fails as the plan says, and notes what it wrote and what it answered.

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
    outside::Outside,
    plan::{CommitFault, Fault, Pause, What},
};
use crate::{
    model::{Record, Seq, SessionId},
    port::{Append, Journal, JournalError, Read, ReadError, Rows, Write, Written},
    testkit::MemoryJournal,
};

/// What decides about one life of the process.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// Nothing is written or read by it any more.
    dead: AtomicBool,
    died: Notify,
    /// What follows on its end.
    pause: std::sync::Mutex<Option<Pause>>,
    /// Its store has failed.
    failed: AtomicBool,
    /// How many commits are under way.
    writing: AtomicUsize,
    /// Whether the runtime may end by itself.
    pub(super) may_end: AtomicBool,
    /// How many of the next reads fail, and how many have failed.
    pub(super) unreadable: AtomicUsize,
    unread: AtomicUsize,
    /// What the next commit takes beyond the usual, in milliseconds.
    pub(super) slows: AtomicU64,
    /// What the next commit takes that founds a subagent or has something for an inbox.
    pub(super) slows_news: AtomicU64,
}

impl Process {
    /// The process ends, and the next one begins after this pause.
    pub(super) fn die(&self, pause: Pause) {
        self.dead.store(true, Ordering::SeqCst);
        self.follow_with(pause);
        self.died.notify_one();
    }

    /// What comes after its end, by whatever that is.
    pub(super) fn follow_with(&self, pause: Pause) {
        self.pause.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(pause);
    }

    pub(super) fn pause(&self) -> Pause {
        let pause = *self.pause.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        pause.unwrap_or(Pause { ms: 0, reboots: false })
    }

    pub(super) async fn died(&self) {
        self.died.notified().await;
    }

    /// Whether the store has something to answer, for which tasks wait that nothing ends.
    pub(super) fn is_writing(&self) -> bool {
        self.writing.load(Ordering::SeqCst) > 0
    }

    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct LifeJournal {
    pub(super) inner: MemoryJournal,
    pub(super) outside: Arc<Outside>,
    pub(super) process: Arc<Process>,
    pub(super) faults: Arc<[Fault]>,
    pub(super) disk_ms: u64,
}

type Committed = Result<Vec<Written>, JournalError>;

/// What each write carried, for noting that it was answered: records, by their session and the first sequence.
type Carried = Vec<Vec<(SessionId, Seq, Vec<Arc<Record>>)>>;

fn carried(write: &Write) -> Vec<(SessionId, Seq, Vec<Arc<Record>>)> {
    let Write::Append(append) = write else { return Vec::new() };
    let own = (append.session, append.expected, append.records.clone());
    let found = append.found.iter().map(|founded| (founded.session, 1, founded.records.clone()));
    found.chain([own]).collect()
}

impl LifeJournal {
    /// The fault of this commit.
    fn fault(&self) -> Option<CommitFault> {
        let mut inner = self.outside.lock();
        inner.book.commits += 1;
        let number = inner.book.commits;
        inner.stray_arrives(number);
        let (n, fault) = self.faults.iter().find_map(|fault| match fault.what {
            What::Commit(at, what) if at == number => Some((fault.n, what)),
            What::Commit(..) | What::At(..) => None,
        })?;
        inner.book.fired.insert(n);
        inner.book.wrongs.insert(fault.name());
        Some(fault)
    }

    /// What a batch takes longer because others hear of it; from whom that is, is told.
    fn slows_news(&self, batch: &[Write]) -> u64 {
        let says = |append: &Append| !append.send.is_empty() || !append.found.is_empty();
        let who = batch.iter().find_map(|write| match write {
            Write::Append(append) if says(append) => Some(append.session),
            Write::Append(_) | Write::Open(_) | Write::Close(..) | Write::Deliver(..) => None,
        });
        let Some(who) = who else { return 0 };
        let ms = self.process.slows_news.swap(0, Ordering::SeqCst);
        if ms > 0 {
            self.outside.lock().tells = Some(who);
        }
        ms
    }

    /// Writes, and notes what is written; unless the process has died in the meantime.
    async fn write(self, batch: Vec<Write>) -> Committed {
        if self.process.is_dead() {
            return pending().await;
        }
        let appends: Vec<Option<Append>> = batch
            .iter()
            .map(|write| match write {
                Write::Append(append) => Some(Append::clone(append)),
                Write::Open(_) | Write::Close(..) | Write::Deliver(..) => None,
            })
            .collect();
        let written = self.inner.commit(batch).await?;
        let mut inner = self.outside.lock();
        for (append, written) in appends.iter().zip(&written) {
            if let (Some(append), Written::Appended(appended)) = (append, written) {
                inner.book.stored(append, appended);
            }
        }
        Ok(written)
    }

    /// Answers, and notes what is said by that.
    fn answer(&self, carried: &Carried, committed: Committed) -> Committed {
        let mut inner = self.outside.lock();
        for (carried, written) in carried.iter().zip(committed.iter().flatten()) {
            if !matches!(written, Written::Appended(_)) {
                continue;
            }
            for (session, first, records) in carried {
                for (record, seq) in records.iter().zip(*first..) {
                    inner.book.told(*session, seq, record);
                }
            }
        }
        committed
    }

    async fn commits(self, batch: Vec<Write>, fault: Option<CommitFault>) -> Committed {
        let process = Arc::clone(&self.process);
        match fault {
            None => {
                let ms = self.disk_ms + process.slows.swap(0, Ordering::SeqCst) + self.slows_news(&batch);
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
                process.die(pause);
                pending().await
            }
            Some(CommitFault::Strays(commits, pause)) => {
                {
                    let mut inner = self.outside.lock();
                    let before = inner.book.commits + commits;
                    inner.stray = Some((self.inner.clone(), batch, before));
                }
                process.die(pause);
                pending().await
            }
            Some(CommitFault::CrashAfter(pause)) => {
                self.write(batch).await?;
                process.die(pause);
                pending().await
            }
            Some(CommitFault::Hangs(is_written, ms, pause)) => {
                if is_written {
                    self.write(batch).await?;
                }
                sleep(ms).await;
                process.die(pause);
                pending().await
            }
            Some(CommitFault::Fails(fault, pause)) => {
                process.failed.store(true, Ordering::SeqCst);
                process.may_end.store(true, Ordering::SeqCst);
                process.follow_with(pause);
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
    fn commit(&self, batch: Vec<Write>) -> BoxFuture<'static, Committed> {
        if self.process.is_dead() {
            return pending().boxed();
        }
        let fault = self.fault();
        if self.process.failed.load(Ordering::SeqCst) {
            return async { Err(JournalError::Unavailable("the store has failed".into())) }.boxed();
        }
        let carried: Carried = batch.iter().map(carried).collect();
        let this = self.clone();
        async move {
            this.process.writing.fetch_add(1, Ordering::SeqCst);
            let committed = this.clone().commits(batch, fault).await;
            this.process.writing.fetch_sub(1, Ordering::SeqCst);
            this.answer(&carried, committed)
        }
        .boxed()
    }

    fn read(&self, what: Read) -> BoxFuture<'static, Result<Rows, ReadError>> {
        if self.process.is_dead() {
            return pending().boxed();
        }
        let fails = matches!(what, Read::Records { .. })
            && self
                .process
                .unreadable
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                .is_ok();
        if fails {
            self.outside.goes_wrong("unreadable records");
        }
        // The third one of a session ends the runtime.
        if fails && self.process.unread.fetch_add(1, Ordering::SeqCst) >= 2 {
            self.process.may_end.store(true, Ordering::SeqCst);
        }
        match fails {
            true => async { Err(ReadError::Unavailable("planned: input/output error".into())) }.boxed(),
            false => self.inner.read(what),
        }
    }
}
