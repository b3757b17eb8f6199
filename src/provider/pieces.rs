use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    vec,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// A body of known length made of shared pieces, none of which is copied into another.
#[derive(Debug)]
pub(super) struct Pieces {
    pieces: vec::IntoIter<Bytes>,
    left: u64,
    /// Set when the last byte is taken.
    taken: Arc<AtomicBool>,
}

impl Pieces {
    /// `taken` is set when a connection has taken the last byte: a request of which that is not so was never whole at its
    /// server.
    pub(super) fn new(pieces: Vec<Bytes>, taken: Arc<AtomicBool>) -> Self {
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self { pieces: pieces.into_iter(), left, taken }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.find(|piece| !piece.is_empty());
        self.left -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        if self.left == 0 {
            self.taken.store(true, Ordering::Relaxed);
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
