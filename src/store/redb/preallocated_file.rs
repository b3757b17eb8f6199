//! The engine's file as a backend for a disk that may be full: allocates space before each write, and waits for it.
//!
//! The engine writes nothing more after an error. A write without disk space therefore waits, and does not fail.
//! Conditions:
//! - A longer file uses no disk space until it is written to. Space is allocated at the first write to a piece, never
//!   while the engine changes the length: it then holds a lock that every reader needs.
//! - Allocated space stays: no later write or sync in it finds the disk full (except on copy-on-write file systems).
//! - A failed sync may have lost data, and reports it only once: it is never repeated.

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use redb::StorageBackend;
use rustix::{
    fs::{FallocateFlags, fallocate},
    io::{Errno, retry_on_intr},
};

use super::disk_full_wait::DiskFullWait;
use crate::disk_space::is_full;

/// Bytes of a piece; disk space is allocated by pieces.
const PIECE_BYTES: u64 = 1 << 20;

/// A backend that allocates disk space before it writes, and waits while the disk is full.
#[derive(Debug)]
pub(super) struct PreallocatedFile<B> {
    backend: B,
    /// The backend's file, if it has one.
    file: Option<File>,
    path: PathBuf,
    disk_wait: Arc<DiskFullWait>,
    /// Numbers of the pieces that are known to be allocated.
    allocated: Mutex<BTreeSet<u64>>,
}

impl<B: StorageBackend> PreallocatedFile<B> {
    /// Wraps a backend, whose file is `file` at `path`.
    pub(super) fn new(backend: B, file: Option<File>, path: &Path, disk_wait: Arc<DiskFullWait>) -> Self {
        Self { backend, file, path: path.to_owned(), disk_wait, allocated: Mutex::default() }
    }

    fn lock_allocated(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.allocated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates the disk space for a write.
    fn preallocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut allocated = self.lock_allocated();
        for piece in offset / PIECE_BYTES..(offset + bytes).div_ceil(PIECE_BYTES) {
            if allocated.contains(&piece) {
                continue;
            }
            let length = self.backend.len()?;
            match allocate(file, piece * PIECE_BYTES, length.min((piece + 1) * PIECE_BYTES)) {
                Ok(()) => drop(allocated.insert(piece)),
                // There may still be space for the write itself.
                Err(error) if is_full(&error) => {
                    let end = (offset + bytes).min((piece + 1) * PIECE_BYTES);
                    allocate(file, offset.max(piece * PIECE_BYTES), end.min(length))?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Allocates the space of a range. Ignores file systems without `fallocate`; there the write itself fails if the disk
/// is full.
fn allocate(file: &File, from: u64, to: u64) -> io::Result<()> {
    if from >= to {
        return Ok(());
    }
    match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), from, to - from)) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl<B: StorageBackend> StorageBackend for PreallocatedFile<B> {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut allocated = self.lock_allocated();
        let whole_pieces = self.backend.len()?.min(len) / PIECE_BYTES;
        self.backend.set_len(len)?;
        allocated.retain(|piece| *piece < whole_pieces);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.backend.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk_wait.retry_until_space(&self.path, data.len(), || {
            self.preallocate(offset, data.len() as u64)?;
            self.backend.write(offset, data)
        })
    }

    /// Releases the lock of `open_locked` although readers may still have the file. It covers the whole file, so that
    /// the engine's own locks of ranges are not passed on.
    fn close(&self) -> io::Result<()> {
        self.backend.close()?;
        self.file.as_ref().map_or(Ok(()), File::unlock)
    }
}
