//! The whole output of a command, wherever it fits.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hermod_actors::{
    Visible,
    model::{Artifact, MAX_OUTPUT},
    port::{ArtifactError, Progress, Shelf},
};
use tokio::{sync::mpsc::UnboundedReceiver, time::sleep};
use tokio_util::sync::CancellationToken;

use super::typed::Site;
use crate::process::Piece;

/// An output may grow so long in memory.
const IN_MEMORY: usize = MAX_OUTPUT;
/// Bytes of an output that are kept; a command that never stops writing must not fill the disk.
const MOST: u64 = 256 << 20;
/// From its stop a call waits no longer than this until its output is on disk.
const PATIENCE: Duration = Duration::from_millis(2_090);
/// Time between two notes of how far a command is.
const BETWEEN: Duration = Duration::from_millis(500);
/// Bytes of an output's last line that are noted.
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
    let pieces = Noted { pieces, progress: site.progress.clone(), next: tokio::time::Instant::now() };
    tokio::select! {
        biased;
        spooled = spool(pieces, &site.shelf) => spooled,
        () = too_late(&site.cancel) => Spooled::Lost(ArtifactError::Unavailable("the call was stopped".into())),
    }
}

/// Resolves when a stopped call waits for its disk no longer.
async fn too_late(cancel: &CancellationToken) {
    cancel.cancelled().await;
    sleep(PATIENCE).await;
}

/// Pieces whose last line is noted now and then.
struct Noted {
    pieces: UnboundedReceiver<Piece>,
    progress: Progress,
    next: tokio::time::Instant,
}

impl Noted {
    async fn recv(&mut self) -> Option<Piece> {
        let piece = self.pieces.recv().await?;
        let now = tokio::time::Instant::now();
        if now >= self.next
            && let Some(line) = last_line(&piece.bytes)
        {
            self.next = now + BETWEEN;
            self.progress.say(&line);
        }
        Some(piece)
    }
}

/// The last line that says something, or its beginning.
fn last_line(bytes: &[u8]) -> Option<String> {
    let line =
        bytes.rsplit(|byte| matches!(byte, b'\n' | b'\r')).find(|line| !line.trim_ascii().is_empty())?;
    let line = &line.trim_ascii()[..line.trim_ascii().len().min(NOTE)];
    Some(Visible::of(crate::process::without_cut_end(line)).text)
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
    fn the_last_line_that_says_something() {
        let check = |bytes: &[u8], line: Option<&str>| assert_eq!(last_line(bytes).as_deref(), line);
        check(b"", None);
        check(b"\n \n", None);
        check(b"one\ntwo\n\n", Some("two"));
        check(b"10 %\r 20 %\r", Some("20 %"));
        check(b"a\x1b[1m", Some("a\u{241b}[1m"));
        check("x".repeat(500).as_bytes(), Some(&"x".repeat(NOTE)));
        check(format!("x{}", "é".repeat(500)).as_bytes(), Some(&format!("x{}", "é".repeat(99))));
    }
}
