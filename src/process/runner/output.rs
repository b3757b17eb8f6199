//! `output`: both streams of the command as they came, written by the runner.

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek as _, Write as _},
    os::unix::fs::OpenOptionsExt,
};

use bytes::Bytes;
use tokio::{sync::mpsc::UnboundedReceiver, task::spawn_blocking};

use super::{exit::Kept, files::Folder};
use crate::{process::Piece, space::check_left};

pub(super) const FILE: &str = "output";
/// Bytes that are kept; a command that never stops writing must not fill the disk.
const MOST: u64 = 256 << 20;
/// Bytes after which what is written is synced, so that the last sync is short.
const SYNCED: u64 = 16 << 20;

/// The file.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    folder: Folder,
    total: u64,
    kept: u64,
    since_sync: u64,
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Open,
    /// It takes no more.
    Full,
}

impl Output {
    pub(super) fn make(folder: &Folder) -> io::Result<Self> {
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(folder.file(FILE))?;
        let folder = folder.clone();
        Ok(Self { file, folder, total: 0, kept: 0, since_sync: 0, state: State::Open })
    }

    /// Takes all that comes. A disk that takes no more, or needs the rest for records, ends no command: what comes then is
    /// counted.
    pub(super) async fn take(mut self, mut pieces: UnboundedReceiver<Piece>) -> io::Result<Self> {
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
        if self.state == State::Full || !self.fits(bytes.len()) {
            self.state = State::Full;
            return;
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(count) if count > 0 => {
                    self.kept += count as u64;
                    self.since_sync += count as u64;
                    rest = &rest[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => {
                    self.state = State::Full;
                    return;
                }
            }
        }
        if self.since_sync >= SYNCED {
            self.since_sync = 0;
            // If it fails, so does the last one, which tells.
            let (Ok(()) | Err(_)) = self.file.sync_data();
        }
    }

    fn fits(&self, bytes: usize) -> bool {
        self.kept + bytes as u64 <= MOST && check_left(&self.file, bytes).is_ok()
    }

    pub(super) fn kept(&self) -> Kept {
        Kept { bytes: self.kept, left_out: self.total - self.kept }
    }

    /// Puts the file back if the command has removed it. The bytes are still there, as long as this is open.
    pub(super) fn put_back(&mut self) -> io::Result<()> {
        if self.folder.has(FILE, &self.file)? {
            return Ok(());
        }
        let mut from = &self.file;
        from.rewind()?;
        self.file = self.folder.put_back(FILE, |file| io::copy(&mut from, file).map(drop))?;
        Ok(())
    }

    /// Step 6, first half.
    pub(super) fn sync(&self) -> io::Result<()> {
        if self.kept == 0 { Ok(()) } else { self.file.sync_all() }
    }
}
