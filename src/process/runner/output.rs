//! The output of a command as its runner keeps it: both streams, interleaved as read. A short output of a short command
//! stays in memory until it is a part of `exit`. Other output is in the file `output`.

use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use hermod_actors::ActiveDeadline;
use tokio::sync::{mpsc::UnboundedReceiver, oneshot};

use super::{exit::OutputExtent, files::SpoolFolder};
use crate::{disk_space::check_reserve, files::make, process::OutputChunk};

pub(super) const FILE: &str = "output";
/// Limit of an output in memory.
pub(super) const MAX_INLINE_BYTES: usize = 16 << 10;
/// Time for which output stays in memory: then whatever follows the command can read it.
const INLINE_TIME: Duration = Duration::from_millis(100);
/// Limit of the file. A command that never stops writing must not fill the disk.
const MAX_OUTPUT_BYTES: u64 = 256 << 20;
/// Bytes between two syncs during the write, so that the last sync is short.
const SYNC_INTERVAL_BYTES: u64 = 16 << 20;

/// The output of an ended command.
#[derive(Debug)]
pub(super) enum KeptOutput {
    Inline(Vec<u8>),
    File(OutputFile),
}

/// The open output file with its counters.
#[derive(Debug)]
pub(super) struct OutputFile {
    /// `None` if it cannot be made.
    file: Option<File>,
    folder: SpoolFolder,
    total: u64,
    written: u64,
    since_sync: u64,
    /// The limit or the end of the disk space was reached.
    is_full: bool,
}

/// Receives all pieces of an output. A full disk, or one whose rest is reserved for records, does not end the command:
/// further output is only counted.
pub(super) async fn keep_output(
    folder: &SpoolFolder,
    mut pieces: UnboundedReceiver<OutputChunk>,
) -> io::Result<KeptOutput> {
    let mut bytes = Vec::new();
    let mut deadline: Option<ActiveDeadline> = None;
    loop {
        let is_due = async {
            match &mut deadline {
                Some(deadline) => deadline.over().await,
                None => std::future::pending().await,
            }
        };
        let piece = tokio::select! {
            biased;
            piece = pieces.recv() => piece,
            () = is_due => break,
        };
        let Some(piece) = piece else { return Ok(KeptOutput::Inline(bytes)) };
        bytes.extend_from_slice(&piece.bytes);
        if bytes.len() > MAX_INLINE_BYTES {
            break;
        }
        deadline.get_or_insert_with(|| ActiveDeadline::after(INLINE_TIME));
    }
    write_file(OutputFile::new(folder), bytes, pieces).await.map(KeptOutput::File)
}

/// Writes the file off the event loop: a disk that hangs must not delay the command's deadline. Without a thread, which a
/// command can have used up, it writes on the event loop.
async fn write_file(
    output: OutputFile,
    first: Vec<u8>,
    pieces: UnboundedReceiver<OutputChunk>,
) -> io::Result<OutputFile> {
    let work = Arc::new(Mutex::new(Some((output, first, pieces))));
    let take = |work: &Mutex<Option<_>>| work.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (done, is_done) = oneshot::channel();
    let threads_work = Arc::clone(&work);
    let spawned = thread::Builder::new().name("output".into()).spawn(move || {
        if let Some((mut output, first, mut pieces)) = take(&threads_work) {
            output.create_and_write(&first);
            while let Some(piece) = pieces.blocking_recv() {
                // Dropping the piece afterwards releases its slot.
                output.write(&piece.bytes);
            }
            // The receiver waits for it.
            let (Ok(()) | Err(_)) = done.send(output);
        }
    });
    if spawned.is_err()
        && let Some((mut output, first, mut pieces)) = take(&work)
    {
        output.create_and_write(&first);
        while let Some(piece) = pieces.recv().await {
            output.write(&piece.bytes);
        }
        return Ok(output);
    }
    is_done.await.map_err(|_| io::Error::other("the thread that writes the output has ended"))
}

impl KeptOutput {
    pub(super) fn extent(&self) -> OutputExtent {
        match self {
            Self::Inline(bytes) => OutputExtent { bytes: bytes.len() as u64, left_out: 0 },
            Self::File(file) => OutputExtent { bytes: file.written, left_out: file.total - file.written },
        }
    }

    /// Restores the file if the command has removed it.
    pub(super) fn restore_file(&mut self) -> io::Result<()> {
        match self {
            Self::Inline(_) => Ok(()),
            Self::File(file) => file.restore(),
        }
    }

    /// First half of step 6.
    pub(super) fn sync(&self) -> io::Result<()> {
        match self {
            Self::File(OutputFile { file: Some(file), written: 1.., .. }) => file.sync_all(),
            Self::File(_) | Self::Inline(_) => Ok(()),
        }
    }

    /// The bytes that are a part of `exit`.
    pub(super) fn into_inline(self) -> Vec<u8> {
        match self {
            Self::Inline(bytes) => bytes,
            Self::File(_) => Vec::new(),
        }
    }
}

impl OutputFile {
    fn new(folder: &SpoolFolder) -> Self {
        Self { file: None, folder: folder.clone(), total: 0, written: 0, since_sync: 0, is_full: false }
    }

    fn create_and_write(&mut self, bytes: &[u8]) {
        // A file that cannot be made, on a full disk, takes nothing: all output is counted as left out, and reported.
        self.file = make(&self.folder.file(FILE)).ok();
        self.write(bytes);
    }

    fn write(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let Some(file) = self.file.as_mut().filter(|_| !self.is_full) else { return };
        if self.written + bytes.len() as u64 > MAX_OUTPUT_BYTES || check_reserve(&*file, bytes.len()).is_err()
        {
            self.is_full = true;
            return;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            match file.write(rest) {
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
            let (Ok(()) | Err(_)) = file.sync_data();
        }
    }

    /// The open descriptor still has the bytes of a file that was removed.
    fn restore(&mut self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        if self.folder.is_current(FILE, file)? {
            return Ok(());
        }
        let mut from = file;
        from.rewind()?;
        self.file = Some(self.folder.restore_file(FILE, |file| io::copy(&mut from, file).map(drop))?);
        Ok(())
    }
}
