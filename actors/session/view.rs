use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::{
    model::{RunId, ToolSpec},
    port::{Encoder, Segments},
    turn::{Cursor, Turn},
};

/// Encoded messages are joined into pieces up to this size, so that a request has few: a client hands only so many to
/// the system at once.
const PIECE: usize = 64 << 10;

/// The session's view as its provider wants it written. Each message is encoded once: an iteration encodes only what
/// is new.
#[derive(Debug, Default)]
pub(crate) struct EncodedView {
    encoder: Option<Arc<dyn Encoder>>,
    head: Option<(RunId, Bytes)>,
    pieces: Vec<Bytes>,
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
            self.push(encoder.message(message));
        }
        (head, Segments { pieces: self.pieces.clone() })
    }

    /// Adds a piece and joins it with those before it that are not much longer: the lengths of what is not full go down
    /// by half each, so there are few pieces, and a byte is seldom copied again.
    fn push(&mut self, mut piece: Bytes) {
        while let Some(last) = self.pieces.last()
            && last.len() < 2 * piece.len()
            && last.len() + piece.len() <= PIECE
        {
            let mut joined = BytesMut::with_capacity(last.len() + piece.len());
            joined.extend_from_slice(last);
            joined.extend_from_slice(&piece);
            self.pieces.pop();
            piece = joined.freeze();
        }
        self.pieces.push(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_few_and_in_order() {
        let mut view = EncodedView::default();
        let mut all = Vec::new();
        for n in 0..5_000_u32 {
            let message = format!(",{}", n.to_string().repeat(1 + n as usize % 50));
            all.extend_from_slice(message.as_bytes());
            view.push(message.into());
            let small = view.pieces.iter().filter(|piece| piece.len() < PIECE / 2).count();
            assert!(small <= 20, "{small} small pieces after {n} messages");
        }
        assert_eq!(view.pieces.concat(), all);
        let long = Bytes::from(vec![b'x'; PIECE + 1]);
        view.push(long.clone());
        assert_eq!(view.pieces.last(), Some(&long));
    }
}
