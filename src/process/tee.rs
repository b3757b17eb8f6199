//! Forwards a command's output to one receiver, with backpressure. What is kept for the result is in `capture.rs`.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Pieces queued before the command has to wait.
const MAX_QUEUED_CHUNKS: usize = 16;

/// Forwards a command's output in the order in which it is read. A slow receiver makes the command wait; a dropped one
/// does not.
#[derive(Debug)]
pub struct Tee {
    sender: mpsc::UnboundedSender<OutputChunk>,
    slots: Arc<Semaphore>,
}

/// A piece of the output.
#[derive(Debug)]
pub struct OutputChunk {
    /// The bytes of the piece.
    pub bytes: Bytes,
    /// Released when the piece is dropped.
    _slot: Option<OwnedSemaphorePermit>,
}

impl Tee {
    /// A tee, and the receiver of its pieces.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<OutputChunk>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self { sender, slots: Arc::new(Semaphore::new(MAX_QUEUED_CHUNKS)) }, receiver)
    }

    /// Waits for a free slot. Cancel-safe.
    pub(super) async fn reserve(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.slots).acquire_owned().await.ok()
    }

    /// True as long as the receiver exists.
    pub(super) fn is_wanted(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Forwards a piece. Output that is read after the command's end has no slot, because nothing waits for the
    /// receiver then.
    pub(super) fn push(&self, bytes: &[u8], slot: Option<OwnedSemaphorePermit>) {
        if !bytes.is_empty() {
            let piece = OutputChunk { bytes: Bytes::copy_from_slice(bytes), _slot: slot };
            // A dropped receiver needs no output.
            let (Ok(()) | Err(_)) = self.sender.send(piece);
        }
    }
}
