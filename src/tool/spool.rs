//! Collects the whole output of a command, in memory or as an artifact, and reports its last lines as progress. The
//! spool folder of a runner is in `process/runner/files.rs`.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hermod_actors::{
    ActiveDeadline, SanitizedText,
    model::{Artifact, MAX_RESULT_BYTES},
    port::{ArtifactError, AttemptArtifacts, ProgressReporter},
};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::typed_tool::ToolContext;
use crate::process::OutputChunk;

/// Limit of an output in memory, in bytes.
const MAX_MEMORY_BYTES: usize = MAX_RESULT_BYTES;
/// Limit of a stored output. A command that never stops writing must not fill the disk.
const MAX_OUTPUT_BYTES: u64 = 256 << 20;
/// Time that a stopped call waits until its output is on disk.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(2_090);
/// Interval between two progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// Last lines in one progress report, and bytes of each.
const PROGRESS_LINES: usize = 5;
const PROGRESS_LINE_BYTES: usize = 200;

/// The collected output.
#[derive(Debug)]
pub(super) enum SpooledOutput {
    /// A short output, in memory.
    Inline(Bytes),
    /// A long output, stored as an artifact, and the bytes left out at its end.
    Stored(Artifact, u64),
    /// The output could not be stored.
    Lost(ArtifactError),
}

impl SpooledOutput {
    /// Bytes received, including those left out.
    pub(super) fn total_bytes(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Stored(artifact, left_out) => artifact.bytes + left_out,
            Self::Lost(_) => 0,
        }
    }
}

/// Collects all output: in memory while it is short, then as an artifact, which is durable when this resolves. Reports
/// the last lines as progress.
pub(super) async fn collect_output(
    pieces: UnboundedReceiver<OutputChunk>,
    context: &ToolContext,
) -> SpooledOutput {
    let pieces = ProgressTail {
        pieces,
        progress: context.progress.clone(),
        next_report: tokio::time::Instant::now(),
        recent_lines: Vec::new(),
    };
    tokio::select! {
        biased;
        spooled = collect(pieces, &context.artifacts) => spooled,
        () = flush_deadline(&context.cancel) => {
            SpooledOutput::Lost(ArtifactError::Unavailable("the call was stopped".into()))
        }
    }
}

/// Resolves when a stopped call no longer waits for its disk.
async fn flush_deadline(cancel: &CancellationToken) {
    cancel.cancelled().await;
    ActiveDeadline::after(FLUSH_TIMEOUT).over().await;
}

/// Receives pieces and reports their last lines as progress.
struct ProgressTail {
    pieces: UnboundedReceiver<OutputChunk>,
    progress: ProgressReporter,
    next_report: tokio::time::Instant,
    /// The last lines since the latest report.
    recent_lines: Vec<String>,
}

impl ProgressTail {
    async fn recv(&mut self) -> Option<OutputChunk> {
        loop {
            tokio::select! {
                biased;
                piece = self.pieces.recv() => {
                    let piece = piece?;
                    self.recent_lines.extend(last_lines(&piece.bytes));
                    self.recent_lines.drain(..self.recent_lines.len().saturating_sub(PROGRESS_LINES));
                    if tokio::time::Instant::now() >= self.next_report {
                        self.report();
                    }
                    return Some(piece);
                }
                // The command may print nothing for a long time.
                () = tokio::time::sleep_until(self.next_report), if !self.recent_lines.is_empty() => self.report(),
            }
        }
    }

    fn report(&mut self) {
        if !self.recent_lines.is_empty() {
            self.next_report = tokio::time::Instant::now() + PROGRESS_INTERVAL;
            self.progress.report(&std::mem::take(&mut self.recent_lines).join("\n"));
        }
    }
}

/// The last lines that are not empty, truncated.
fn last_lines(bytes: &[u8]) -> Vec<String> {
    let lines = bytes.rsplit(|byte| matches!(byte, b'\n' | b'\r')).map(<[u8]>::trim_ascii);
    let lines = lines.filter(|line| !line.is_empty()).take(PROGRESS_LINES).map(|line| {
        let line = &line[..line.len().min(PROGRESS_LINE_BYTES)];
        SanitizedText::of(crate::process::without_cut_end(line)).text
    });
    let mut lines: Vec<String> = lines.collect();
    lines.reverse();
    lines
}

async fn collect(mut pieces: ProgressTail, artifacts: &AttemptArtifacts) -> SpooledOutput {
    let mut buffer = BytesMut::new();
    while let Some(piece) = pieces.recv().await {
        if buffer.len() + piece.bytes.len() > MAX_MEMORY_BYTES {
            let stored = write_artifact(buffer.freeze(), piece, &mut pieces, artifacts).await;
            return stored.unwrap_or_else(SpooledOutput::Lost);
        }
        buffer.extend_from_slice(&piece.bytes);
    }
    SpooledOutput::Inline(buffer.freeze())
}

async fn write_artifact(
    buffer: Bytes,
    first: OutputChunk,
    pieces: &mut ProgressTail,
    artifacts: &AttemptArtifacts,
) -> Result<SpooledOutput, ArtifactError> {
    let mut writer = artifacts.create().await?;
    let (mut bytes, mut left_out) = (buffer.len() as u64, 0);
    writer.write(buffer).await?;
    let mut next = Some(first);
    while let Some(piece) = next {
        let length = piece.bytes.len() as u64;
        if left_out == 0 && bytes + length <= MAX_OUTPUT_BYTES {
            writer.write(piece.bytes.clone()).await?;
            bytes += length;
        } else {
            left_out += length;
        }
        // Dropping the piece releases its slot.
        drop(piece);
        next = pieces.recv().await;
    }
    Ok(SpooledOutput::Stored(writer.finish().await?, left_out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_that_say_something() {
        let check = |bytes: &[u8], lines: &[&str]| assert_eq!(last_lines(bytes), lines);
        check(b"", &[]);
        check(b"\n \n", &[]);
        check(b"one\ntwo\n\n", &["one", "two"]);
        check(b"1\n2\n3\n4\n5\n6", &["2", "3", "4", "5", "6"]);
        check(b"10 %\r 20 %\r", &["10 %", "20 %"]);
        check(b"a\x1b[1m", &["a\u{241b}[1m"]);
        check("x".repeat(500).as_bytes(), &[&"x".repeat(PROGRESS_LINE_BYTES)]);
        check(format!("x{}", "é".repeat(500)).as_bytes(), &[&format!("x{}", "é".repeat(99))]);
    }
}
