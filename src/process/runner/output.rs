//! `output`: both streams of the command as they came, written by the runner.

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek as _, Write as _},
    os::unix::fs::OpenOptionsExt,
};

use bytes::Bytes;
use tokio::{sync::mpsc::UnboundedReceiver, task::spawn_blocking};

use super::{exit::OutputExtent, files::SpoolFolder};
use crate::{disk_space::check_reserve, process::OutputChunk};

pub(super) const FILE: &str = "output";
/// Bytes that are kept; a command that never stops writing must not fill the disk.
const MAX_OUTPUT_BYTES: u64 = 256 << 20;
/// Bytes after which what is written is synced, so that the last sync is short.
const SYNC_INTERVAL_BYTES: u64 = 16 << 20;

/// The file.
#[derive(Debug)]
pub(super) struct OutputFile {
    file: File,
    folder: SpoolFolder,
    total: u64,
    written: u64,
    since_sync: u64,
    state: OutputState,
}

#[derive(Debug, PartialEq, Eq)]
enum OutputState {
    Open,
    /// It takes no more.
    Full,
}

impl OutputFile {
    pub(super) fn create(folder: &SpoolFolder) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(folder.file(FILE))?;
        let folder = folder.clone();
        Ok(Self { file, folder, total: 0, written: 0, since_sync: 0, state: OutputState::Open })
    }

    /// Takes all that comes. A disk that takes no more, or needs the rest for records, ends no command: what comes then is
    /// counted.
    pub(super) async fn write_all(mut self, mut pieces: UnboundedReceiver<OutputChunk>) -> io::Result<Self> {
        while let Some(piece) = pieces.recv().await {
            let bytes = piece.bytes.clone();
            // A disk that does not answer must not keep the deadline from being kept.
            self = spawn_blocking(move || {
                self.write(&bytes);
                self
            })
            .await?;
            // The piece gives its room back here.
            drop(piece);
        }
        Ok(self)
    }

    fn write(&mut self, bytes: &Bytes) {
        self.total += bytes.len() as u64;
        if self.state == OutputState::Full || !self.fits(bytes.len()) {
            self.state = OutputState::Full;
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
                    self.state = OutputState::Full;
                    return;
                }
            }
        }
        if self.since_sync >= SYNC_INTERVAL_BYTES {
            self.since_sync = 0;
            // If it fails, so does the last one, which tells.
            let (Ok(()) | Err(_)) = self.file.sync_data();
        }
    }

    fn fits(&self, bytes: usize) -> bool {
        self.written + bytes as u64 <= MAX_OUTPUT_BYTES && check_reserve(&self.file, bytes).is_ok()
    }

    pub(super) fn extent(&self) -> OutputExtent {
        OutputExtent { bytes: self.written, left_out: self.total - self.written }
    }

    /// Puts the file back if the command has removed it. The bytes are still there, as long as this is open.
    pub(super) fn restore_file(&mut self) -> io::Result<()> {
        if self.folder.is_current(FILE, &self.file)? {
            return Ok(());
        }
        let mut from = &self.file;
        from.rewind()?;
        self.file = self.folder.restore_file(FILE, |file| io::copy(&mut from, file).map(drop))?;
        Ok(())
    }

    /// Step 6, first half.
    pub(super) fn sync(&self) -> io::Result<()> {
        if self.written == 0 { Ok(()) } else { self.file.sync_all() }
    }
}
