use std::{io, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, ChildStderr, ChildStdout},
    time::{sleep, timeout},
};

use super::Capture;

const CHUNK: usize = 64 * 1024;

/// Both output pipes of a command and what was captured from them.
#[derive(Debug)]
pub(super) struct Pipes {
    stdout: Pipe<ChildStdout>,
    stderr: Pipe<ChildStderr>,
}

#[derive(Debug)]
struct Pipe<R> {
    /// `None` after the end of the stream.
    reader: Option<R>,
    buffer: Vec<u8>,
    capture: Capture,
}

impl Pipes {
    /// Takes the pipes from the child.
    pub(super) fn of(child: &mut Child) -> Self {
        Self { stdout: Pipe::new(child.stdout.take()), stderr: Pipe::new(child.stderr.take()) }
    }

    /// Whether a stream can still bring something.
    pub(super) fn are_open(&self) -> bool {
        self.stdout.reader.is_some() || self.stderr.reader.is_some()
    }

    /// Waits for the next bytes, or the end, of either stream; at once if both have ended. May be dropped at any time.
    pub(super) async fn read(&mut self) -> io::Result<()> {
        if !self.are_open() {
            return Ok(());
        }
        tokio::select! {
            result = self.stdout.read(), if self.stdout.reader.is_some() => result,
            result = self.stderr.read(), if self.stderr.reader.is_some() => result,
        }
    }

    /// Reads what is there: until both streams end, nothing comes for `quiet`, or `most` has passed.
    pub(super) async fn drain(&mut self, quiet: Duration, most: Duration) -> io::Result<()> {
        let end = sleep(most);
        tokio::pin!(end);
        while self.are_open() {
            tokio::select! {
                biased;
                () = &mut end => break,
                read = timeout(quiet, self.read()) => match read {
                    Ok(result) => result?,
                    Err(_) => break,
                },
            }
        }
        Ok(())
    }

    /// Closes both and gives what was captured of stdout and stderr.
    pub(super) fn into_captures(self) -> (Capture, Capture) {
        (self.stdout.capture, self.stderr.capture)
    }
}

impl<R: AsyncRead + Unpin> Pipe<R> {
    fn new(reader: Option<R>) -> Self {
        Self { reader, buffer: vec![0; CHUNK], capture: Capture::default() }
    }

    async fn read(&mut self) -> io::Result<()> {
        let Some(reader) = &mut self.reader else { return Ok(()) };
        let count = reader.read(&mut self.buffer).await?;
        if count == 0 {
            self.reader = None;
        }
        self.capture.push(&self.buffer[..count]);
        Ok(())
    }
}
