use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Pieces that may wait to be taken before the command itself has to wait.
const MAX_QUEUED_CHUNKS: usize = 16;

/// Hands on what a command writes, in the order in which it comes. A receiver that is slow makes the command wait; one
/// that is gone does not.
#[derive(Debug)]
pub struct Tee {
    sender: mpsc::UnboundedSender<OutputChunk>,
    slots: Arc<Semaphore>,
}

/// Some of the output.
#[derive(Debug)]
pub struct OutputChunk {
    /// What was written.
    pub bytes: Bytes,
    /// Given back when the piece has been dealt with.
    _slot: Option<OwnedSemaphorePermit>,
}

impl Tee {
    /// A tee and the end from which the pieces are taken.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<OutputChunk>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self { sender, slots: Arc::new(Semaphore::new(MAX_QUEUED_CHUNKS)) }, receiver)
    }

    /// Waits until there is room for a piece. May be dropped at any time.
    pub(super) async fn reserve(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        Arc::clone(&self.slots).acquire_owned().await.ok()
    }

    /// Whether there is somebody who takes the pieces.
    pub(super) fn is_wanted(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Hands a piece on; one for which there was no time to wait for room may go without.
    pub(super) fn push(&self, bytes: &[u8], room: Option<OwnedSemaphorePermit>) {
        if !bytes.is_empty() {
            let piece = OutputChunk { bytes: Bytes::copy_from_slice(bytes), _slot: room };
            // Whoever has gone does not want it.
            let (Ok(()) | Err(_)) = self.sender.send(piece);
        }
    }
}
