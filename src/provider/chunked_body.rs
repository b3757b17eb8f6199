//! The HTTP body of a model request: pieces that are shared and not copied. It notes whether the connection has taken
//! the last byte.

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

/// A body of known length made of shared pieces; no piece is copied.
#[derive(Debug)]
pub(super) struct ChunkedBody {
    pieces: vec::IntoIter<Bytes>,
    remaining_bytes: u64,
    /// Set when the connection takes the last byte.
    is_sent: Arc<AtomicBool>,
}

impl ChunkedBody {
    /// `is_sent` is set when a connection takes the last byte. Until then the server cannot have the whole request.
    pub(super) fn new(pieces: Vec<Bytes>, is_sent: Arc<AtomicBool>) -> Self {
        let remaining_bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self { pieces: pieces.into_iter(), remaining_bytes, is_sent }
    }
}

impl Body for ChunkedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.find(|piece| !piece.is_empty());
        self.remaining_bytes -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        if self.remaining_bytes == 0 {
            self.is_sent.store(true, Ordering::Relaxed);
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining_bytes == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining_bytes)
    }
}
