//! The messages of a conversation in pages: a read-only projection of its records, which never drives actions. It can
//! begin at a mark, so that a page does not cost the conversation before it.

use std::sync::Arc;

use crate::{
    model::{Kind, Message, Record, Seq, SessionId},
    turn::{RenderCursor, Turn, unsynced_writes::UnsyncedWrites},
};

/// A place between runs from which a conversation can be read on. Nothing before it changes what follows, but for what
/// the mark keeps.
#[derive(Debug, Clone)]
pub struct ConversationMark {
    /// The record that follows; it accepts a run.
    pub seq: Seq,
    /// Number of the messages before.
    pub messages: usize,
    boot: Arc<str>,
    unsynced_writes: UnsyncedWrites,
}

/// Renders the records of a session to all its messages, also those that a model no longer gets.
#[derive(Debug)]
pub struct ConversationReader {
    turn: Turn,
    /// Number of the messages before those that are still held.
    taken: usize,
}

impl ConversationReader {
    /// Reads from the first record on.
    pub fn new(session: SessionId) -> Self {
        Self { turn: Turn::empty(session), taken: 0 }
    }

    /// Reads from a mark of the session on, whose record comes first.
    pub fn at(session: SessionId, mark: &ConversationMark) -> Self {
        let (boot, unsynced_writes) = (Arc::clone(&mark.boot), mark.unsynced_writes.clone());
        Self { turn: Turn { boot, unsynced_writes, ..Turn::empty(session) }, taken: mark.messages }
    }

    /// The mark before this record, which is to be read next; `None` unless the record begins something new.
    pub fn mark_before(&self, seq: Seq, record: &Record) -> Option<ConversationMark> {
        let turn = &self.turn;
        let is_settled = !turn.has_work() && turn.history.is_empty() && turn.steering.is_empty();
        let is_new = record.body.kind() == Kind::RunAccepted;
        (is_settled && is_new && !turn.unsynced_writes.has_note()).then(|| ConversationMark {
            seq,
            messages: self.taken,
            boot: Arc::clone(&turn.boot),
            unsynced_writes: turn.unsynced_writes.clone(),
        })
    }

    /// Reads the next record, and returns the messages that no further record changes.
    pub fn read(&mut self, record: &Record) -> Vec<Message> {
        // Compactions are skipped, so the messages are not only those that were left in the model's view.
        if record.body.kind() == Kind::ContextCompacted {
            return Vec::new();
        }
        self.turn.fold(record);
        let messages = self.turn.history.take_ended();
        self.taken += messages.len();
        messages
    }

    /// The messages that a further record may change, or add to.
    pub fn rest(&self) -> Vec<Message> {
        self.turn.render(RenderCursor::default()).0
    }
}
