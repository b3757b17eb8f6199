//! The whole output of a command, wherever it fits.

use bytes::{Bytes, BytesMut};
use hermod_actors::{
    model::{Artifact, MAX_OUTPUT},
    port::{ArtifactError, Shelf},
};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::process::Piece;

/// An output may grow so long in memory.
const IN_MEMORY: usize = MAX_OUTPUT;
/// Bytes of an output that are kept; a command that never stops writing must not fill the disk.
const MOST: u64 = 256 << 20;

/// What became of an output.
#[derive(Debug)]
pub(super) enum Spooled {
    /// It is short, and here.
    Short(Bytes),
    /// It is an artifact, without so many bytes of its end.
    Kept(Artifact, u64),
    /// It could not be kept.
    Lost(ArtifactError),
}

/// Takes all that comes: into memory as long as it is short, then onto the disk. Durable when it resolves.
pub(super) async fn spool(mut pieces: UnboundedReceiver<Piece>, shelf: &Shelf) -> Spooled {
    let mut short = BytesMut::new();
    while let Some(piece) = pieces.recv().await {
        if short.len() + piece.bytes.len() > IN_MEMORY {
            let kept = keep((short.freeze(), piece), &mut pieces, shelf).await;
            return kept.unwrap_or_else(Spooled::Lost);
        }
        short.extend_from_slice(&piece.bytes);
    }
    Spooled::Short(short.freeze())
}

async fn keep(
    (short, first): (Bytes, Piece),
    pieces: &mut UnboundedReceiver<Piece>,
    shelf: &Shelf,
) -> Result<Spooled, ArtifactError> {
    let mut keeper = shelf.begin().await?;
    let (mut bytes, mut left_out) = (short.len() as u64, 0);
    keeper.write(short).await?;
    let mut next = Some(first);
    while let Some(piece) = next {
        let length = piece.bytes.len() as u64;
        if left_out == 0 && bytes + length <= MOST {
            keeper.write(piece.bytes.clone()).await?;
            bytes += length;
        } else {
            left_out += length;
        }
        // The piece gives its room back here.
        drop(piece);
        next = pieces.recv().await;
    }
    keeper.finish().await?;
    Ok(Spooled::Kept(Artifact { handle: shelf.own().handle(), bytes }, left_out))
}
