//! The whole output of a command, wherever it fits.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hermod_actors::{
    ActiveDeadline, Visible,
    model::{Artifact, MAX_OUTPUT},
    port::{ArtifactError, Progress, Shelf},
};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use super::typed::Site;
use crate::process::Piece;

/// An output may grow so long in memory.
const IN_MEMORY: usize = MAX_OUTPUT;
/// Bytes of an output that are kept; a command that never stops writing must not fill the disk.
const MOST: u64 = 256 << 20;
/// From its stop a call waits no longer than this until its output is on disk.
const PATIENCE: Duration = Duration::from_millis(2_090);
/// Time between two notes of what a command prints.
const BETWEEN: Duration = Duration::from_millis(200);
/// Lines of its end that are noted at once, and bytes of each.
const LINES: usize = 5;
const NOTE: usize = 200;

/// What became of an output.
#[derive(Debug)]
pub(super) enum Spooled {
    /// It is short, and here, without so many bytes of its end.
    Short(Bytes, u64),
    /// It is an artifact, without so many bytes of its end.
    Kept(Artifact, u64),
    /// It could not be kept.
    Lost(ArtifactError),
}

impl Spooled {
    /// The bytes that have come.
    pub(super) fn seen(&self) -> u64 {
        match self {
            Self::Short(bytes, left_out) => bytes.len() as u64 + left_out,
            Self::Kept(artifact, left_out) => artifact.bytes + left_out,
            Self::Lost(_) => 0,
        }
    }

    /// The same, if so many bytes of the end had not even come.
    pub(super) fn without(self, more: u64) -> Self {
        match self {
            Self::Short(bytes, left_out) => Self::Short(bytes, left_out + more),
            Self::Kept(artifact, left_out) => Self::Kept(artifact, left_out + more),
            Self::Lost(error) => Self::Lost(error),
        }
    }
}

/// Takes all that comes: into memory as long as it is short, then onto the disk. Durable when it resolves. Notes the last
/// line now and then.
pub(super) async fn spooled(pieces: UnboundedReceiver<Piece>, site: &Site) -> Spooled {
    let pieces = Noted {
        pieces,
        progress: site.progress.clone(),
        next: tokio::time::Instant::now(),
        since: Vec::new(),
    };
    tokio::select! {
        biased;
        spooled = spool(pieces, &site.shelf) => spooled,
        () = too_late(&site.cancel) => Spooled::Lost(ArtifactError::Unavailable("the call was stopped".into())),
    }
}

/// Resolves when a stopped call waits for its disk no longer.
async fn too_late(cancel: &CancellationToken) {
    cancel.cancelled().await;
    ActiveDeadline::after(PATIENCE).over().await;
}

/// Pieces whose last lines are noted now and then.
struct Noted {
    pieces: UnboundedReceiver<Piece>,
    progress: Progress,
    next: tokio::time::Instant,
    /// What was printed since the last note, by its last lines.
    since: Vec<String>,
}

impl Noted {
    async fn recv(&mut self) -> Option<Piece> {
        loop {
            tokio::select! {
                biased;
                piece = self.pieces.recv() => {
                    let piece = piece?;
                    self.since.extend(last_lines(&piece.bytes));
                    self.since.drain(..self.since.len().saturating_sub(LINES));
                    if tokio::time::Instant::now() >= self.next {
                        self.note();
                    }
                    return Some(piece);
                }
                // The command may print nothing more for long.
                () = tokio::time::sleep_until(self.next), if !self.since.is_empty() => self.note(),
            }
        }
    }

    fn note(&mut self) {
        if !self.since.is_empty() {
            self.next = tokio::time::Instant::now() + BETWEEN;
            self.progress.say(&std::mem::take(&mut self.since).join("\n"));
        }
    }
}

/// The last lines that say something, or their beginnings.
fn last_lines(bytes: &[u8]) -> Vec<String> {
    let lines = bytes.rsplit(|byte| matches!(byte, b'\n' | b'\r')).map(<[u8]>::trim_ascii);
    let lines = lines.filter(|line| !line.is_empty()).take(LINES).map(|line| {
        let line = &line[..line.len().min(NOTE)];
        Visible::of(crate::process::without_cut_end(line)).text
    });
    let mut lines: Vec<String> = lines.collect();
    lines.reverse();
    lines
}

async fn spool(mut pieces: Noted, shelf: &Shelf) -> Spooled {
    let mut short = BytesMut::new();
    while let Some(piece) = pieces.recv().await {
        if short.len() + piece.bytes.len() > IN_MEMORY {
            let kept = keep((short.freeze(), piece), &mut pieces, shelf).await;
            return kept.unwrap_or_else(Spooled::Lost);
        }
        short.extend_from_slice(&piece.bytes);
    }
    Spooled::Short(short.freeze(), 0)
}

async fn keep(
    (short, first): (Bytes, Piece),
    pieces: &mut Noted,
    shelf: &Shelf,
) -> Result<Spooled, ArtifactError> {
    let mut writer = shelf.begin().await?;
    let (mut bytes, mut left_out) = (short.len() as u64, 0);
    writer.write(short).await?;
    let mut next = Some(first);
    while let Some(piece) = next {
        let length = piece.bytes.len() as u64;
        if left_out == 0 && bytes + length <= MOST {
            writer.write(piece.bytes.clone()).await?;
            bytes += length;
        } else {
            left_out += length;
        }
        // The piece gives its room back here.
        drop(piece);
        next = pieces.recv().await;
    }
    Ok(Spooled::Kept(writer.finish().await?, left_out))
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
        check("x".repeat(500).as_bytes(), &[&"x".repeat(NOTE)]);
        check(format!("x{}", "é".repeat(500)).as_bytes(), &[&format!("x{}", "é".repeat(99))]);
    }
}
