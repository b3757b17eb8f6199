use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use hermod_actors::port::{JournalError, Write, Written};
use redb::Database;
use tokio::sync::oneshot;

use super::{
    batch::{Batch, Memory},
    blobs::Spiller,
    fault::Fault,
    journal::Durability,
};

/// A relaxed store goes to disk when it has been idle for so long,
const IDLE: Duration = Duration::from_secs(1);
/// or after so many commits.
const COMMITS: u32 = 4096;

type Answer = Result<Vec<Written>, JournalError>;

/// A batch, and who waits for it.
pub(super) struct Job {
    pub(super) batch: Vec<Write>,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// The one writer, on a thread of its own.
pub(super) struct Committer {
    pub(super) db: Arc<Database>,
    pub(super) memory: Memory,
    pub(super) spiller: Spiller,
    pub(super) durability: Durability,
    /// Commits that are not on disk yet; of a relaxed store.
    pub(super) pending: u32,
    /// What a commit failed of: nothing is written after it.
    pub(super) failed: Option<String>,
}

impl Committer {
    /// Works until the last sender of jobs is gone.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            let next = if self.pending == 0 {
                jobs.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                jobs.recv_timeout(IDLE)
            };
            match next {
                Ok(Job { batch, answer }) => {
                    // Whoever asked may have gone; the batch is written all the same.
                    let _ = answer.send(self.commit(batch));
                }
                Err(RecvTimeoutError::Timeout) => self.settle(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.pending >= COMMITS {
                self.settle();
            }
        }
        self.settle();
    }

    pub(super) fn commit(&mut self, batch: Vec<Write>) -> Answer {
        if let Some(failed) = &self.failed {
            return Err(JournalError::Unavailable(format!("an earlier commit failed: {failed}")));
        }
        self.write(batch).map_err(|fault| JournalError::Unavailable(self.fail(&fault)))
    }

    fn write(&mut self, batch: Vec<Write>) -> Result<Vec<Written>, Fault> {
        let mut txn = self.db.begin_write()?;
        match self.durability {
            Durability::Strict => txn.set_quick_repair(true),
            Durability::Relaxed => txn.set_durability(redb::Durability::None)?,
        }
        let mut writes = Batch::new(&txn, &mut self.memory, &mut self.spiller);
        let written = batch.into_iter().map(|write| writes.write(write)).collect::<Result<Vec<_>, _>>()?;
        if writes.end() {
            self.spiller.sync()?;
            txn.commit()?;
            self.pending += u32::from(self.durability == Durability::Relaxed);
        } else {
            txn.abort()?;
        }
        Ok(written)
    }

    /// Brings to disk what a relaxed store has acknowledged.
    fn settle(&mut self) {
        if self.pending == 0 || self.failed.is_some() {
            return;
        }
        self.pending = 0;
        if let Err(fault) = flush(&self.db) {
            let error = self.fail(&fault);
            tracing::error!(error, "what was acknowledged since the last flush is not on disk");
        }
    }

    fn fail(&mut self, fault: &Fault) -> String {
        let failed = fault.to_string();
        tracing::error!(error = failed, "the store takes no more writes");
        self.failed = Some(failed.clone());
        failed
    }
}

/// An empty commit, durable together with all before it, that leaves the store quick to open.
fn flush(db: &Database) -> Result<(), Fault> {
    let mut txn = db.begin_write()?;
    txn.set_quick_repair(true);
    Ok(txn.commit()?)
}
