//! A consistent copy of the store's rows while the store is written.

use std::{borrow::Borrow, fs::OpenOptions, os::unix::fs::OpenOptionsExt, path::Path, sync::Arc};

use redb::{
    Database, Key, ReadTransaction, ReadableDatabase, ReadableTable, TableHandle, Value,
    backends::FileBackend,
};
use tokio::sync::OwnedSemaphorePermit;

use crate::store::redb::{
    engine::EngineFile,
    error::StoreError,
    journal::RedbJournal,
    open::OpenError,
    tables::{self, Definition},
    throttle::{StoppedError, ThrottleFn},
};

/// Bytes of rows per transaction of the copy: bounds how long one transaction occupies the disk.
const BATCH_BYTES: usize = 1 << 20;
/// Bytes of the copy's page cache.
const CACHE_BYTES: usize = 16 << 20;
/// Why a copy was not made.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A gc or another copy is under way.
    #[error("a gc or another backup of this store is under way; try again when it has ended")]
    Busy,
    /// The throttle callback stopped it.
    #[error(transparent)]
    Stopped(#[from] StoppedError),
    /// The file is no store, or one that this program does not know.
    #[error(transparent)]
    Open(OpenError),
    /// The store cannot be read, or the copy cannot be written.
    #[error("{0}")]
    Failed(String),
}

impl CopyError {
    fn at(path: &Path) -> impl Fn(StoreError) -> Self {
        move |fault| Self::Failed(format!("{}: {fault}", path.display()))
    }
}

impl From<StoreError> for CopyError {
    fn from(fault: StoreError) -> Self {
        match fault {
            StoreError::Stopped(stopped) => Self::Stopped(stopped),
            StoreError::Engine(_) | StoreError::File { .. } | StoreError::Damaged { .. } => {
                Self::Failed(fault.to_string())
            }
        }
    }
}

/// The store as of one instant. While it lives, gc removes no file that it may refer to.
#[derive(Debug)]
pub struct Snapshot {
    txn: ReadTransaction,
    file: EngineFile,
    _gate: OwnedSemaphorePermit,
}

impl RedbJournal {
    /// A snapshot of now: contains every commit that has resolved, and each commit entirely or not at all.
    pub fn snapshot(&self) -> Result<Snapshot, CopyError> {
        let gate = Arc::clone(self.gc_gate()).try_acquire_owned().map_err(|_| CopyError::Busy)?;
        let file = self.db.file().clone();
        let txn = file.run(|| Ok(self.db.begin_read()?))?;
        Ok(Snapshot { txn, file, _gate: gate })
    }
}

impl Snapshot {
    /// Copies all rows into a new file, which is synced and closed on return. Blocks.
    /// `pace` gets the bytes of every batch, and may wait or stop the copy.
    pub fn copy(&self, to: &Path, pace: &mut ThrottleFn<'_>) -> Result<(), CopyError> {
        self.file.catch(|| self.copy_rows(to, pace))?.map_err(|error| {
            match (error, self.file.known_damage()) {
                (CopyError::Failed(_), Some(fault)) => fault.into(),
                (error, _) => error,
            }
        })
    }

    fn copy_rows(&self, to: &Path, pace: &mut ThrottleFn<'_>) -> Result<(), CopyError> {
        let tables: Vec<_> =
            self.txn.list_tables().map_err(StoreError::from)?.map(|table| table.name().to_owned()).collect();
        if let Some(unknown) = tables.iter().find(|table| !tables::NAMES.contains(&table.as_str())) {
            return Err(CopyError::Failed(format!("the store has a table `{unknown}`, which no copy knows")));
        }
        let at = CopyError::at(to);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(to);
        let file = file.map_err(StoreError::at(to))?;
        let backend = FileBackend::new(file).map_err(|error| at(error.into()))?;
        let db = EngineFile::new(to).open(backend, CACHE_BYTES).map_err(&at)?;
        tables::visit(&mut TableCopier { txn: &self.txn, to, db: &db, throttle: pace })?;
        db.close().map_err(at)
    }
}

struct TableCopier<'c> {
    txn: &'c ReadTransaction,
    to: &'c Path,
    db: &'c Database,
    throttle: &'c mut ThrottleFn<'c>,
}

impl tables::Visit for TableCopier<'_> {
    type Error = CopyError;

    fn table<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: Definition<K, V>,
    ) -> Result<(), CopyError> {
        let from = self.txn.open_table(definition).map_err(StoreError::from)?;
        let mut rows = from.iter().map_err(StoreError::from)?;
        let at = CopyError::at(self.to);
        loop {
            let (mut bytes, mut more) = (0, false);
            let txn = self.db.begin_write().map_err(|error| at(error.into()))?;
            {
                let mut table = txn.open_table(definition).map_err(|error| at(error.into()))?;
                for row in rows.by_ref() {
                    let (key, value) = row.map_err(StoreError::from)?;
                    let (key, value) = (key.value(), value.value());
                    bytes += K::as_bytes(&key).as_ref().len() + V::as_bytes(&value).as_ref().len();
                    table.insert(key.borrow(), value.borrow()).map_err(|error| at(error.into()))?;
                    more = bytes >= BATCH_BYTES;
                    if more {
                        break;
                    }
                }
            }
            txn.commit().map_err(|error| at(error.into()))?;
            (self.throttle)(bytes)?;
            if !more {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use redb::{Builder, TableDefinition};

    use super::*;
    use crate::store::redb::{Durability, backup::inspect};

    fn journal() -> (tempfile::TempDir, RedbJournal) {
        let dir = tempfile::tempdir().unwrap();
        let journal = RedbJournal::open(dir.path(), Durability::Strict).unwrap();
        (dir, journal)
    }

    #[test]
    fn a_copy_has_every_table() {
        let (dir, journal) = journal();
        let to = dir.path().join("copy");
        journal.snapshot().unwrap().copy(&to, &mut |_| Ok(())).unwrap();
        let found = inspect(&to, &dir.path().join("blobs"), &mut |_| Ok(())).unwrap();
        assert_eq!((found.epoch, found.checked.damages), (1, vec![]));
        let copied = Builder::new().open(&to).unwrap();
        assert_eq!(copied.begin_read().unwrap().list_tables().unwrap().count(), tables::NAMES.len());
    }

    #[test]
    fn a_table_that_no_copy_knows_is_not_left_out() {
        let (dir, journal) = journal();
        let txn = journal.db.begin_write().unwrap();
        txn.open_table(TableDefinition::<u64, u64>::new("news")).unwrap();
        txn.commit().unwrap();
        let error = journal.snapshot().unwrap().copy(&dir.path().join("copy"), &mut |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("`news`"), "{error}");
    }

    #[test]
    fn an_inspection_that_is_stopped_ends() {
        let (dir, journal) = journal();
        drop(journal);
        let path = dir.path().join(crate::store::redb::open::STORE_FILE);
        let stopped = inspect(&path, &dir.path().join("blobs"), &mut |_| Err(StoppedError));
        assert!(matches!(stopped, Err(CopyError::Stopped(StoppedError))));
    }

    #[test]
    fn a_copy_that_is_stopped_ends() {
        let (dir, journal) = journal();
        let stopped = journal.snapshot().unwrap().copy(&dir.path().join("copy"), &mut |_| Err(StoppedError));
        assert!(matches!(stopped, Err(CopyError::Stopped(StoppedError))));
    }
}
