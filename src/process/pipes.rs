//! Reads both output pipes of a command: captures the output, and forwards it to the tee.

use std::{io, time::Duration};

use hermod_actors::ActiveDeadline;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, ChildStderr, ChildStdout},
    sync::OwnedSemaphorePermit,
};

use super::{Capture, Tee};

const CHUNK_BYTES: usize = 64 * 1024;

/// Limit of a read after the command's exit. It is more than the pipes hold, so further bytes are not the command's
/// own.
const MAX_DRAINED_BYTES: usize = 4 << 20;

/// Both output pipes of a command with their captures.
#[derive(Debug)]
pub(super) struct OutputPipes {
    tee: Option<Tee>,
    stdout: OutputPipe<ChildStdout>,
    stderr: OutputPipe<ChildStderr>,
}

#[derive(Debug)]
struct OutputPipe<R> {
    /// `None` after the end of the stream.
    reader: Option<R>,
    buffer: Vec<u8>,
    capture: Capture,
}

impl OutputPipes {
    /// Takes the pipes from the child; all output goes to `tee` too.
    pub(super) fn of(child: &mut Child, tee: Option<Tee>) -> Self {
        Self {
            tee,
            stdout: OutputPipe::new(child.stdout.take()),
            stderr: OutputPipe::new(child.stderr.take()),
        }
    }

    /// True until both streams have ended.
    pub(super) fn are_open(&self) -> bool {
        self.stdout.reader.is_some() || self.stderr.reader.is_some()
    }

    /// Waits for the next bytes, or the end, of either stream; returns at once if both have ended. Cancel-safe.
    pub(super) async fn read(&mut self) -> io::Result<()> {
        let slot = match &self.tee {
            Some(tee) => tee.reserve().await,
            None => None,
        };
        self.read_with(slot).await.map(|_| ())
    }

    /// Reads the remaining output without waiting for the tee. Ends with both streams, after `quiet` without output,
    /// after `limit`, or above `MAX_DRAINED_BYTES`.
    pub(super) async fn drain(&mut self, quiet: Duration, limit: Duration) -> io::Result<()> {
        let mut deadline = ActiveDeadline::after(limit);
        let mut drained = 0;
        while self.are_open() && drained < MAX_DRAINED_BYTES {
            let mut quiet = ActiveDeadline::after(quiet);
            tokio::select! {
                biased;
                () = deadline.over() => break,
                read = quiet.bound(self.read_with(None)) => match read {
                    Some(count) => drained += count?,
                    None => break,
                },
            }
        }
        Ok(())
    }

    /// Adds a text behind what the command has written to stderr.
    pub(super) fn append_to_stderr(&mut self, text: &str) {
        if let Some(tee) = &self.tee {
            tee.push(text.as_bytes(), None);
        }
        self.stderr.capture.push(text.as_bytes());
    }

    async fn read_with(&mut self, slot: Option<OwnedSemaphorePermit>) -> io::Result<usize> {
        if !self.are_open() {
            return Ok(0);
        }
        let Self { stdout, stderr, tee } = self;
        let bytes = tokio::select! {
            bytes = stdout.read(), if stdout.reader.is_some() => bytes,
            bytes = stderr.read(), if stderr.reader.is_some() => bytes,
        }?;
        if let Some(tee) = tee {
            tee.push(bytes, slot);
        }
        Ok(bytes.len())
    }

    /// Closes both pipes and returns the captures of stdout and stderr.
    pub(super) fn into_captures(self) -> (Capture, Capture) {
        (self.stdout.capture, self.stderr.capture)
    }
}

impl<R: AsyncRead + Unpin> OutputPipe<R> {
    fn new(reader: Option<R>) -> Self {
        Self { reader, buffer: Vec::with_capacity(CHUNK_BYTES), capture: Capture::default() }
    }

    async fn read(&mut self) -> io::Result<&[u8]> {
        let Some(reader) = &mut self.reader else { return Ok(&[]) };
        self.buffer.clear();
        if reader.read_buf(&mut self.buffer).await? == 0 {
            self.reader = None;
        }
        self.capture.push(&self.buffer);
        Ok(&self.buffer)
    }
}
