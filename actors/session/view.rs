use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::{
    model::{RunId, ToolSpec},
    port::{Encoder, Segments},
    turn::{Cursor, Turn},
};

/// Encoded messages are joined into pieces of about this size, so that a request has few.
const PIECE: usize = 64 << 10;

/// The session's view as its provider wants it written. Each message is encoded once: an iteration encodes only what
/// is new.
#[derive(Debug, Default)]
pub(crate) struct EncodedView {
    encoder: Option<Arc<dyn Encoder>>,
    head: Option<(RunId, Bytes)>,
    /// Pieces that are full.
    full: Vec<Bytes>,
    /// Encoded messages behind them.
    tail: Vec<Bytes>,
    tail_bytes: usize,
    cursor: Cursor,
}

impl EncodedView {
    /// The head and the messages of the view as it is now.
    pub(crate) fn render(
        &mut self,
        turn: &Turn,
        encoder: &Arc<dyn Encoder>,
        tools: impl FnOnce() -> Vec<ToolSpec>,
    ) -> (Bytes, Segments) {
        if !self.encoder.as_ref().is_some_and(|known| Arc::ptr_eq(known, encoder)) {
            *self = Self { encoder: Some(Arc::clone(encoder)), ..Self::default() };
        }
        let run = turn.current().map(|(run, _)| run);
        let head = match &self.head {
            Some((of, head)) if Some(*of) == run => head.clone(),
            Some(_) | None => {
                let head = encoder.head(&turn.system(), &tools());
                self.head = run.map(|run| (run, head.clone()));
                head
            }
        };
        let (messages, cursor) = turn.render(self.cursor);
        self.cursor = cursor;
        for message in &messages {
            let bytes = encoder.message(message);
            self.tail_bytes += bytes.len();
            self.tail.push(bytes);
        }
        if self.tail_bytes >= PIECE {
            let mut piece = BytesMut::with_capacity(self.tail_bytes);
            self.tail.drain(..).for_each(|bytes| piece.extend_from_slice(&bytes));
            self.tail_bytes = 0;
            self.full.push(piece.freeze());
        }
        (head, Segments { pieces: self.full.iter().chain(&self.tail).cloned().collect() })
    }
}
