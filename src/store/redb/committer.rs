//! The only writer of an open store: a thread that commits batches and runs gc steps between them. With relaxed
//! durability it also flushes.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use hermod_actors::port::{JournalError, WriteOp, WriteOutcome};
use redb::{Database, WriteTransaction};
use tokio::sync::oneshot;

use super::{
    batch::{Batch, CommitterState},
    blobs::Spiller,
    disk_full_wait::DiskFullWait,
    engine::{Engine, EngineFile},
    error::{Result, StoreError},
    gc::GcStep,
    journal::Durability,
    previous_epoch,
};

/// Idle time after which a store with relaxed durability is flushed.
const FLUSH_DELAY: Duration = Duration::from_secs(1);
/// Number of commits since the last flush after which the store is flushed in any case.
const MAX_PENDING_COMMITS: u32 = 4096;

type CommitResult = Result<Vec<WriteOutcome>, JournalError>;

/// A job of the committer.
pub(super) enum CommitterJob {
    /// Writes a batch, and sends its outcomes.
    Write { batch: Vec<WriteOp>, answer: oneshot::Sender<CommitResult> },
    /// Runs a gc step.
    Gc(GcStep),
}

/// The only writer; runs on a thread of its own.
pub(super) struct Committer {
    pub(super) db: Arc<Engine>,
    pub(super) state: CommitterState,
    pub(super) spiller: Spiller,
    pub(super) disk_wait: Arc<DiskFullWait>,
    pub(super) durability: Durability,
    /// Commits that are not on disk yet; always 0 with strict durability.
    pub(super) pending: u32,
    /// The error of a failed commit; all later writes are refused with it.
    pub(super) failure: Option<String>,
}

impl Committer {
    /// Works until all senders of jobs are dropped.
    pub(super) fn run(mut self, jobs: &Receiver<CommitterJob>) {
        self.disk_wait.wait_on_this_thread();
        loop {
            let next = if self.pending == 0 {
                jobs.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                jobs.recv_timeout(FLUSH_DELAY)
            };
            match next {
                Ok(CommitterJob::Write { batch, answer }) => {
                    // The receiver may be dropped; the batch is written all the same.
                    let _ = answer.send(self.commit(batch));
                }
                Ok(CommitterJob::Gc(step)) => step(&mut self),
                Err(RecvTimeoutError::Timeout) => self.flush_acknowledged(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.pending >= MAX_PENDING_COMMITS {
                self.flush_acknowledged();
            }
        }
        self.close();
    }

    pub(super) fn commit(&mut self, batch: Vec<WriteOp>) -> CommitResult {
        self.unless_failed(|committer| committer.write(batch)).map_err(JournalError::Unavailable)
    }

    /// Runs `work`, unless an earlier commit failed. Fails also if a flush in `work` failed.
    pub(super) fn unless_failed<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T, String> {
        self.check_failure()?;
        let result = self.file().run(|| work(self)).map_err(|error| self.fail(&error))?;
        self.check_failure().map(|()| result)
    }

    fn check_failure(&self) -> Result<(), String> {
        let failure = self.failure.as_ref();
        failure.map_or(Ok(()), |failed| Err(format!("an earlier commit failed: {failed}")))
    }

    pub(super) fn file(&self) -> EngineFile {
        self.db.file.clone()
    }

    fn write(&mut self, batch: Vec<WriteOp>) -> Result<Vec<WriteOutcome>> {
        let txn = self.begin_write()?;
        let mut writes = Batch::new(&txn, &mut self.state, &mut self.spiller);
        let written = batch.into_iter().map(|write| writes.write(write)).collect::<Result<Vec<_>, _>>()?;
        if writes.has_changes() {
            self.spiller.sync()?;
            txn.commit()?;
            self.pending += u32::from(self.durability == Durability::Relaxed);
        } else {
            txn.abort()?;
        }
        Ok(written)
    }

    /// A transaction with the durability of this store.
    pub(super) fn begin_write(&self) -> Result<WriteTransaction> {
        let mut txn = self.db.begin_write()?;
        match self.durability {
            Durability::Strict => txn.set_quick_repair(true),
            Durability::Relaxed => txn.set_durability(redb::Durability::None)?,
        }
        Ok(txn)
    }

    /// Flushes the commits that a store with relaxed durability has acknowledged.
    pub(super) fn flush_acknowledged(&mut self) {
        if self.pending == 0 || self.failure.is_some() {
            return;
        }
        self.pending = 0;
        if let Err(error) = self.disk_wait.flushing(|| self.file().run(|| flush(&self.db))) {
            let error = self.fail(&error);
            tracing::error!(error, "what was acknowledged since the last flush is not on disk");
        }
    }

    /// Records a clean shutdown, so that the next process skips the check for damage.
    /// With relaxed durability, acknowledged commits become durable with that record.
    fn close(&mut self) {
        if self.failure.is_none()
            && let Err(error) =
                self.file().run(|| previous_epoch::record_shutdown(&self.db, self.state.epoch))
        {
            let error = self.fail(&error);
            tracing::error!(error, "the store was not closed in order");
        }
    }

    pub(super) fn fail(&mut self, error: &StoreError) -> String {
        let failed = error.to_string();
        tracing::error!(error = failed, "the store takes no more writes");
        self.failure = Some(failed.clone());
        failed
    }
}

/// An empty commit: makes all earlier ones durable, and the store quick to open.
fn flush(db: &Database) -> Result<()> {
    let mut txn = db.begin_write()?;
    txn.set_quick_repair(true);
    Ok(txn.commit()?)
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        path::Path,
        sync::atomic::{AtomicBool, Ordering},
    };

    use hermod_actors::model::SessionId;
    use redb::{StorageBackend, backends::InMemoryBackend};

    use super::*;
    use crate::store::redb::{blobs::Blobs, files::OsFileSystem, tables::Tables};

    /// A disk that becomes full when its flag is set.
    #[derive(Debug, Clone, Default)]
    struct Disk(Arc<(InMemoryBackend, AtomicBool)>);

    impl Disk {
        fn room(&self) -> io::Result<&InMemoryBackend> {
            let full = self.0.1.load(Ordering::Relaxed);
            if full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(&self.0.0) }
        }
    }

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            self.0.0.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.0.0.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.room()?.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.room()?.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.room()?.write(offset, data)
        }
    }

    fn committer(disk: &Disk, durability: Durability) -> Committer {
        let db = EngineFile::new(Path::new("no-such-file")).open(disk.clone(), 1 << 20).unwrap();
        let txn = db.begin_write().unwrap();
        Tables::of(&txn).create().unwrap();
        txn.commit().unwrap();
        let (blobs, room) =
            (Blobs::new(Path::new("no-such-folder").to_owned()), Arc::new(DiskFullWait::default()));
        let spiller = Spiller::new(blobs, Box::new(OsFileSystem), Arc::clone(&room));
        Committer {
            db: Arc::new(db),
            state: CommitterState::new(1, 0),
            spiller,
            disk_wait: room,
            durability,
            pending: 0,
            failure: None,
        }
    }

    fn deliver(to: &mut Committer) -> Result<(), String> {
        let batch = vec![WriteOp::Deliver(SessionId::from_bits(1), "1".into())];
        to.commit(batch).map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn a_full_disk_is_told_and_ends_the_writing() {
        let disk = Disk::default();
        let mut committer = committer(&disk, Durability::Strict);
        assert_eq!(deliver(&mut committer), Ok(()));
        disk.0.1.store(true, Ordering::Relaxed);
        let told = deliver(&mut committer).unwrap_err();
        assert!(told.contains(&io::Error::from(io::ErrorKind::StorageFull).to_string()), "{told}");
        disk.0.1.store(false, Ordering::Relaxed);
        let later = deliver(&mut committer).unwrap_err();
        assert!(later.contains("an earlier commit failed"), "{later}");
    }

    #[test]
    fn a_relaxed_store_stops_when_it_cannot_settle() {
        let disk = Disk::default();
        let mut committer = committer(&disk, Durability::Relaxed);
        assert_eq!(deliver(&mut committer), Ok(()));
        assert_eq!(committer.pending, 1);
        committer.flush_acknowledged();
        assert_eq!((committer.pending, &committer.failure), (0, &None));
        assert_eq!(deliver(&mut committer), Ok(()));
        disk.0.1.store(true, Ordering::Relaxed);
        committer.flush_acknowledged();
        assert!(deliver(&mut committer).unwrap_err().contains("an earlier commit failed"));
    }

    #[test]
    fn a_care_hears_that_what_it_removed_is_not_on_disk() {
        let disk = Disk::default();
        let mut committer = committer(&disk, Durability::Relaxed);
        let mut settled = || {
            deliver(&mut committer).unwrap();
            committer.unless_failed(|committer| {
                committer.flush_acknowledged();
                Ok(())
            })
        };
        assert_eq!(settled(), Ok(()));
        disk.0.1.store(true, Ordering::Relaxed);
        assert!(settled().unwrap_err().contains("an earlier commit failed"));
    }

    #[test]
    fn what_writes_nothing_needs_no_disk() {
        let disk = Disk::default();
        let mut committer = committer(&disk, Durability::Strict);
        disk.0.1.store(true, Ordering::Relaxed);
        assert!(committer.commit(vec![WriteOp::Open(SessionId::from_bits(1))]).is_ok());
    }
}
