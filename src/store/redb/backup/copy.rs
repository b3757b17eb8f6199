//! A consistent copy of the store's rows while the store is written: a [`Snapshot`], and its rows in a new file. Blobs
//! are copied by `src/backup`.

use std::{borrow::Borrow, fs::OpenOptions, io, os::unix::fs::OpenOptionsExt, path::Path, sync::Arc};

use redb::{
    Database, Key, ReadTransaction, ReadableDatabase, ReadableTable, TableHandle, Value,
    backends::FileBackend,
};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    files::{IoResult as _, PathError},
    store::redb::{
        engine::EngineFile,
        error::{Result, StoreError, ThrottleFn},
        journal::RedbJournal,
        tables::{self, Definition},
    },
};

/// Bytes of rows per transaction of the copy: bounds how long one transaction occupies the disk.
const BATCH_BYTES: usize = 1 << 20;
/// Bytes of the copy's page cache.
const CACHE_BYTES: usize = 16 << 20;

/// The store as of one instant. While it lives, gc removes no file that it may refer to.
#[derive(Debug)]
pub struct Snapshot {
    txn: ReadTransaction,
    file: EngineFile,
    _gate: OwnedSemaphorePermit,
}

impl RedbJournal {
    /// A snapshot of now: contains every commit that has resolved, and each commit entirely or not at all.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let gate = Arc::clone(&self.gc_gate).try_acquire_owned().map_err(|_| StoreError::Busy)?;
        let file = self.db.file.clone();
        let txn = file.run(|| Ok(self.db.begin_read()?))?;
        Ok(Snapshot { txn, file, _gate: gate })
    }
}

impl Snapshot {
    /// Copies all rows into a new file, which is synced and closed on return. Blocks.
    /// `throttle` gets the bytes of every batch, and may wait or stop the copy.
    pub fn copy(&self, to: &Path, throttle: &mut ThrottleFn<'_>) -> Result<()> {
        self.file.run(|| self.copy_rows(to, throttle)).map_err(|error| match self.file.known_damage() {
            Some(damage) if !matches!(error, StoreError::Stopped(_)) => damage,
            _ => error,
        })
    }

    fn copy_rows(&self, to: &Path, throttle: &mut ThrottleFn<'_>) -> Result<()> {
        let mut tables = self.txn.list_tables()?;
        if let Some(unknown) = tables.find(|table| !tables::NAMES.contains(&table.name())) {
            return Err(StoreError::UnknownTable(unknown.name().to_owned()));
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(to).at(to)?;
        let create = || EngineFile::new(to).open(FileBackend::new(file)?, CACHE_BYTES);
        let db = create().map_err(with_path(to))?;
        tables::visit(&mut TableCopier { txn: &self.txn, to, db: &db, throttle })?;
        db.close().map_err(with_path(to))
    }
}

/// Adds the path of the copy to an error: without a path, an error is one of the store.
fn with_path(to: &Path) -> impl FnOnce(StoreError) -> StoreError {
    move |error| PathError { path: to.to_owned(), source: io::Error::other(error) }.into()
}

struct TableCopier<'c> {
    txn: &'c ReadTransaction,
    to: &'c Path,
    db: &'c Database,
    throttle: &'c mut ThrottleFn<'c>,
}

impl tables::Visit for TableCopier<'_> {
    type Error = StoreError;

    fn table<K: Key + 'static, V: Value + 'static>(&mut self, definition: Definition<K, V>) -> Result<()> {
        let from = self.txn.open_table(definition)?;
        let mut rows = from.iter()?;
        loop {
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while bytes < BATCH_BYTES
                && let Some(row) = rows.next().transpose()?
            {
                bytes +=
                    K::as_bytes(&row.0.value()).as_ref().len() + V::as_bytes(&row.1.value()).as_ref().len();
                batch.push(row);
            }
            let write = || -> Result<()> {
                let txn = self.db.begin_write()?;
                let mut table = txn.open_table(definition)?;
                for (key, value) in &batch {
                    table.insert(key.value().borrow(), value.value().borrow())?;
                }
                drop(table);
                Ok(txn.commit()?)
            };
            write().map_err(with_path(self.to))?;
            (self.throttle)(bytes)?;
            if bytes < BATCH_BYTES {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use redb::{Builder, TableDefinition};

    use super::*;
    use crate::store::redb::{Durability, backup::inspect, error::StoppedError};

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
        assert!(matches!(stopped, Err(StoreError::Stopped(StoppedError))));
    }

    #[test]
    fn a_copy_that_is_stopped_ends() {
        let (dir, journal) = journal();
        let stopped = journal.snapshot().unwrap().copy(&dir.path().join("copy"), &mut |_| Err(StoppedError));
        assert!(matches!(stopped, Err(StoreError::Stopped(StoppedError))));
    }
}
