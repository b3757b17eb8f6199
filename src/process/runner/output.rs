//! The file `output`: both streams of the command, interleaved as read, written by the runner.

use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
};

use bytes::Bytes;
use tokio::{sync::mpsc::UnboundedReceiver, task::spawn_blocking};

use super::{exit::OutputExtent, files::SpoolFolder};
use crate::{disk_space::check_reserve, files::make, process::OutputChunk};

pub(super) const FILE: &str = "output";
/// Limit of the file. A command that never stops writing must not fill the disk.
const MAX_OUTPUT_BYTES: u64 = 256 << 20;
/// Bytes between two syncs during the write, so that the last sync is short.
const SYNC_INTERVAL_BYTES: u64 = 16 << 20;

/// The open output file with its counters.
#[derive(Debug)]
pub(super) struct OutputFile {
    file: File,
    folder: SpoolFolder,
    total: u64,
    written: u64,
    since_sync: u64,
    /// The limit or the end of the disk space was reached.
    is_full: bool,
}

impl OutputFile {
    pub(super) fn create(folder: &SpoolFolder) -> io::Result<Self> {
        let file = make(&folder.file(FILE))?;
        let folder = folder.clone();
        Ok(Self { file, folder, total: 0, written: 0, since_sync: 0, is_full: false })
    }

    /// Writes all pieces. A full disk, or one whose rest is reserved for records, does not end the command: further
    /// output is only counted.
    pub(super) async fn write_all(mut self, mut pieces: UnboundedReceiver<OutputChunk>) -> io::Result<Self> {
        while let Some(piece) = pieces.recv().await {
            let bytes = piece.bytes.clone();
            // Off the event loop: a disk that hangs must not delay the command's deadline.
            self = spawn_blocking(move || {
                self.write(&bytes);
                self
            })
            .await?;
            // Dropping the piece releases its slot.
            drop(piece);
        }
        Ok(self)
    }

    fn write(&mut self, bytes: &Bytes) {
        self.total += bytes.len() as u64;
        if self.is_full || !self.fits(bytes.len()) {
            self.is_full = true;
            return;
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(count) if count > 0 => {
                    self.written += count as u64;
                    self.since_sync += count as u64;
                    rest = &rest[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => {
                    self.is_full = true;
                    return;
                }
            }
        }
        if self.since_sync >= SYNC_INTERVAL_BYTES {
            self.since_sync = 0;
            // An error is ignored: the final sync then fails too and is reported.
            let (Ok(()) | Err(_)) = self.file.sync_data();
        }
    }

    fn fits(&self, bytes: usize) -> bool {
        self.written + bytes as u64 <= MAX_OUTPUT_BYTES && check_reserve(&self.file, bytes).is_ok()
    }

    pub(super) fn extent(&self) -> OutputExtent {
        OutputExtent { bytes: self.written, left_out: self.total - self.written }
    }

    /// Restores the file if the command has removed it. The open descriptor still has its bytes.
    pub(super) fn restore_file(&mut self) -> io::Result<()> {
        if self.folder.is_current(FILE, &self.file)? {
            return Ok(());
        }
        let mut from = &self.file;
        from.rewind()?;
        self.file = self.folder.restore_file(FILE, |file| io::copy(&mut from, file).map(drop))?;
        Ok(())
    }

    /// First half of step 6.
    pub(super) fn sync(&self) -> io::Result<()> {
        if self.written == 0 { Ok(()) } else { self.file.sync_all() }
    }
}
