use std::sync::Arc;

use crate::{
    model::{Message, RunId, ToolSpec},
    port::{Encoder, Head, Segments},
    turn::{Cursor, Turn},
};

/// The session's view as its provider wants it written. Each message is encoded once: an iteration encodes only what
/// is new.
#[derive(Debug, Default)]
pub(crate) struct EncodedView {
    encoder: Option<Arc<dyn Encoder>>,
    head: Option<(RunId, Head)>,
    messages: Segments,
    cursor: Cursor,
}

impl EncodedView {
    /// The head and the messages of the view as it is now.
    pub(crate) fn render(
        &mut self,
        turn: &Turn,
        encoder: &Arc<dyn Encoder>,
        tools: impl FnOnce() -> Vec<ToolSpec>,
    ) -> (Head, Segments) {
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
        let (messages, cursor): (Vec<Message>, _) = turn.render(self.cursor);
        self.cursor = cursor;
        encoder.messages(&messages, &mut self.messages);
        (head, self.messages.clone())
    }
}
