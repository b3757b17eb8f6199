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
    model::NoRoom,
    port::{Journal, JournalError, Read, ReadError, Rows, Write, Written},
};
use redb::ReadableDatabase;
use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot},
};

use super::{
    backup::LINEAGE,
    batch::Memory,
    blobs::Blobs,
    care::{Care, Chore},
    committer::{Committer, Job},
    engine::Engine,
    fault::Fault,
    open::{self, OpenError, Store},
    read::{Halt, Reader},
    room::Room,
    tables::META,
};

/// When a commit is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When it is on disk: survives `kill -9` and power loss, and opens in a millisecond after either.
    Strict,
    /// When it can be read. The disk follows after a second of idleness, every 4096 commits, and on closing: what is
    /// younger is lost with the process.
    Relaxed,
}

/// The journal in a folder of this machine.
///
/// Dropping it writes what is queued, and waits for that, but not for room on a full disk.
pub struct RedbJournal {
    dir: PathBuf,
    pub(super) db: Arc<Engine>,
    blobs: Blobs,
    /// How often it was restored.
    lineage: u64,
    room: Arc<Room>,
    /// Taken by whoever removes something, or needs that nothing is removed.
    care: Arc<Semaphore>,
    /// `None` only while it is dropped.
    committer: Option<(Sender<Job>, JoinHandle<()>)>,
}

impl RedbJournal {
    /// Opens the store in `dir`, or makes an empty one. Blocks: a millisecond for a store that ended well or was strict,
    /// else seconds per gigabyte.
    pub fn open(dir: &Path, durability: Durability) -> Result<Self, OpenError> {
        Self::start(open::open(dir)?, durability)
    }

    pub(super) fn start(store: Store, durability: Durability) -> Result<Self, OpenError> {
        let Store { dir, db, epoch, places, spiller, room } = store;
        let lineage = lineage(&db).map_err(|fault| open::explain(&dir, &dir.join(open::FILE), fault))?;
        let (db, blobs) = (Arc::new(db), spiller.blobs().clone());
        let (jobs, queue) = channel();
        let committer = Committer {
            db: Arc::clone(&db),
            memory: Memory::new(epoch, places),
            spiller,
            room: Arc::clone(&room),
            durability,
            pending: 0,
            failed: None,
        };
        let thread = Builder::new()
            .name("committer".to_owned())
            .spawn(move || committer.run(&queue))
            .map_err(|source| OpenError::Io { path: dir.clone(), source })?;
        let care = Arc::new(Semaphore::new(1));
        Ok(Self { dir, db, blobs, lineage, room, care, committer: Some((jobs, thread)) })
    }

    /// Cares for this store for as long as it is open.
    pub fn care(self: &Arc<Self>) -> Care {
        Care::new(Arc::downgrade(self))
    }

    pub(super) fn reader(&self) -> Result<Reader, Fault> {
        let file = self.db.file();
        file.run(|| Ok(Reader::new(self.db.begin_read()?, self.blobs.clone(), file.clone())))
    }

    pub(super) fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// Held by whoever removes something, or needs that nothing is removed.
    pub(super) fn care_gate(&self) -> &Arc<Semaphore> {
        &self.care
    }

    /// Whether it will be done: the committer may be gone.
    pub(super) fn tend(&self, chore: Chore) -> bool {
        self.committer.as_ref().is_some_and(|(jobs, _)| jobs.send(Job::Care(chore)).is_ok())
    }
}

impl Journal for RedbJournal {
    fn commit(&self, batch: Vec<Write>) -> BoxFuture<'static, Result<Vec<Written>, JournalError>> {
        let (answer, answered) = oneshot::channel();
        if let Some((jobs, _)) = &self.committer {
            // If the committer is gone, so is the answer.
            let _ = jobs.send(Job::Write { batch, answer });
        }
        let gone = |_| Err(JournalError::Unavailable("the committer's thread has ended".to_owned()));
        answered.map(move |answer| answer.unwrap_or_else(gone)).boxed()
    }

    fn lineage(&self) -> u64 {
        self.lineage
    }

    fn read(&self, what: Read) -> BoxFuture<'static, Result<Rows, ReadError>> {
        let mut reader = match self.reader() {
            Ok(reader) => reader,
            Err(fault) => return ready(Err(ReadError::Unavailable(fault.to_string()))).boxed(),
        };
        let short = if self.room.is_held() { Err(Halt::Long) } else { reader.read_short(&what) };
        match short {
            Ok(rows) => ready(Ok(rows)).boxed(),
            Err(Halt::Failed(error)) => ready(Err(error)).boxed(),
            Err(Halt::Engine(fault)) => ready(Err(ReadError::Unavailable(fault.to_string()))).boxed(),
            Err(Halt::Long) => match Handle::try_current() {
                Ok(runtime) => {
                    let rows = runtime.spawn_blocking(move || reader.read(&what));
                    let ended = |error| Err(ReadError::Unavailable(format!("a read ended early: {error}")));
                    rows.map(move |rows| rows.unwrap_or_else(ended)).boxed()
                }
                Err(_) => ready(reader.read(&what)).boxed(),
            },
        }
    }

    fn no_room(&self) -> Option<NoRoom> {
        self.room.missing()
    }
}

fn lineage(db: &Engine) -> Result<u64, Fault> {
    db.file().run(|| Ok(db.begin_read()?.open_table(META)?.get(LINEAGE)?.map_or(0, |row| row.value())))
}

impl fmt::Debug for RedbJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbJournal").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Drop for RedbJournal {
    fn drop(&mut self) {
        if let Some((jobs, thread)) = self.committer.take() {
            self.room.give_up();
            drop(jobs);
            if thread.join().is_err() {
                tracing::error!(dir = %self.dir.display(), "the committer's thread has panicked");
            }
        }
    }
}
