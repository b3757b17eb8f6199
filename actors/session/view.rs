//! [`EncodedView`]: the messages of a session's view in the encoding of its provider, kept between requests. Which
//! messages the view has is decided by `Turn::render` (`core/turn`).

use std::sync::Arc;

use crate::{
    model::{Message, MessageContent, RunId, ToolSpec},
    port::{EncodedHead, Encoder, MessageBuffer},
    turn::{RenderCursor, TransientPrompt, Turn},
};

/// The session's view in the encoding of its provider. An iteration encodes only new messages. The last group is
/// encoded again for a transient prompt; everything is encoded again after a change of the encoder or of the
/// generation.
#[derive(Debug, Default)]
pub(crate) struct EncodedView {
    encoder: Option<Arc<dyn Encoder>>,
    head: Option<(RunId, EncodedHead)>,
    messages: MessageBuffer,
    /// The generation of the turn's view that is encoded here.
    generation: u32,
    cursor: RenderCursor,
    /// The buffer before the last group, and that group: messages that must be encoded together. A transient prompt is
    /// added to it.
    tail: (MessageBuffer, Vec<Message>),
}

impl EncodedView {
    /// The head and the messages of the current view, with the prompt that only this request has.
    pub(crate) fn render(
        &mut self,
        turn: &Turn,
        encoder: &Arc<dyn Encoder>,
        tools: impl FnOnce() -> Vec<ToolSpec>,
    ) -> (EncodedHead, MessageBuffer) {
        let is_known = self.encoder.as_ref().is_some_and(|known| Arc::ptr_eq(known, encoder));
        if !is_known || self.generation != turn.generation() {
            let (encoder, generation) = (Some(Arc::clone(encoder)), turn.generation());
            let head = self.head.take().filter(|_| is_known);
            *self = Self { encoder, head, generation, ..Self::default() };
        }
        let run = turn.current().map(|(run, _)| run);
        let head = match &self.head {
            Some((of, head)) if Some(*of) == run => head.clone(),
            Some(_) | None => {
                let head = encoder.head(&turn.system_prompt(), &tools());
                self.head = run.map(|run| (run, head.clone()));
                head
            }
        };
        let (mut messages, cursor) = turn.render(self.cursor);
        self.cursor = cursor;
        if !messages.is_empty() {
            let last = messages.split_off(last_group(&messages));
            encoder.messages(&messages, &mut self.messages);
            self.messages.close();
            self.tail = (self.messages.clone(), last);
            encoder.messages(&self.tail.1, &mut self.messages);
            self.messages.close();
        }
        let messages = match turn.transient_prompt() {
            Some(transient) => self.with_transient_prompt(&transient, &**encoder),
            None => self.messages.clone(),
        };
        (head, messages)
    }

    /// The messages with a transient prompt, which is not kept after the request.
    fn with_transient_prompt(
        &self,
        TransientPrompt { partial, prompt }: &TransientPrompt,
        encoder: &dyn Encoder,
    ) -> MessageBuffer {
        if let Some(partial) = partial {
            let mut messages = self.messages.clone();
            let appended =
                [Message::Assistant(Arc::clone(partial)), Message::User(Arc::clone(prompt).into())];
            encoder.messages(&appended, &mut messages);
            return messages;
        }
        let (mut messages, mut last) = self.tail.clone();
        if let Some(Message::User(content) | Message::Tool { content, .. }) = last.last_mut() {
            let note = content.note.as_deref().unwrap_or_default();
            *content = MessageContent { note: Some(format!("{note}\n\n{prompt}").into()), ..content.clone() };
        }
        encoder.messages(&last, &mut messages);
        messages
    }
}

/// Index of the first message that must be encoded with the last one: a result belongs to its call.
fn last_group(messages: &[Message]) -> usize {
    let is_result = |message: &Message| matches!(message, Message::Tool { .. });
    let before = messages.len().saturating_sub(1);
    match messages.last() {
        Some(last) if is_result(last) => {
            messages.iter().rposition(|message| !is_result(message)).unwrap_or(0)
        }
        Some(_) | None => before,
    }
}
