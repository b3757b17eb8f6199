//! Index rows of messages: where each message is that did not become a run of its own. Derived from the records alone,
//! like the other rows (`ledger_and_index.rs`).

use crate::{
    journal::IndexRow,
    model::{Body, Hash, MessageCollected, MessagePlace, MessageRow, MessageSteered, RunId, RunRow},
    turn::{Turn, decision::DecisionBuilder},
};

/// A message that has joined a run and that no model has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JoinedMessage {
    id: RunId,
    run: RunId,
    request_hash: Option<Hash>,
}

impl Turn {
    /// The messages that have joined a run and wait to be read. Empty, without an allocation, for most sessions.
    pub(super) fn joined_messages(&self) -> Vec<JoinedMessage> {
        let unread = self.steering.unread().map(|message| JoinedMessage {
            id: message.followup_run,
            run: message.run,
            request_hash: message.request_hash,
        });
        let collected = self.queue.iter().flat_map(|queued| queued.collected()).map(|message| {
            JoinedMessage { id: message.message, run: message.run, request_hash: message.request_hash }
        });
        let followed = self.queue.iter().flat_map(|queued| {
            queued.followed.iter().map(|message| JoinedMessage {
                id: message.followup_run,
                run: queued.accepted.run,
                request_hash: message.request_hash,
            })
        });
        unread.chain(collected).chain(followed).collect()
    }
}

impl DecisionBuilder {
    /// Adds the rows of messages that a record changes; called after the record is folded. `before` are the messages
    /// that waited before it.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds bring no message")]
    pub(super) fn index_messages(&mut self, body: &Body, mut before: Vec<JoinedMessage>) {
        match body {
            Body::MessageSteered(MessageSteered { run, followup_run: id, request_hash, .. })
            | Body::MessageCollected(MessageCollected { run, message: id, request_hash, .. }) => {
                let (id, run, request_hash) = (*id, *run, *request_hash);
                self.put_message_row(id, MessagePlace::Queued { run }, request_hash);
                before.push(JoinedMessage { id, run, request_hash });
            }
            Body::MessageDropped(dropped) => {
                let place = MessagePlace::Dropped { run: dropped.run, reason: dropped.reason };
                self.put_message_row(dropped.message, place, dropped.request_hash);
                before.retain(|message| message.id != dropped.message);
            }
            // Readers see that the run has ended without having begun.
            Body::RunEnded(ended) if self.row_before_end.as_ref().is_some_and(is_queued) => {
                before.retain(|message| message.run != ended.run);
            }
            _ => {}
        }
        if before.is_empty() {
            return;
        }
        let (waiting, current) = (self.turn.joined_messages(), self.run().map(|run| run.id));
        for JoinedMessage { id, run: earlier, request_hash } in before {
            let place = match waiting.iter().find(|message| message.id == id) {
                // A follow-up run takes the messages of the run before, and may have to wait itself.
                Some(message) if message.run != earlier => MessagePlace::Queued { run: message.run },
                Some(_) => continue,
                None => match current {
                    Some(run) => MessagePlace::Injected { run },
                    None => continue,
                },
            };
            self.put_message_row(id, place, request_hash);
        }
    }

    /// Replaces an earlier row of the same message in this draft.
    fn put_message_row(&mut self, id: RunId, place: MessagePlace, request_hash: Option<Hash>) {
        let is_same = |index: &IndexRow| matches!(index, IndexRow::Message(earlier) if earlier.id == id);
        self.append.index.retain(|index| !is_same(index));
        let session = self.turn.session;
        self.append.index.push(IndexRow::Message(MessageRow { id, session, place, request_hash }));
    }
}

fn is_queued(row: &RunRow) -> bool {
    row.started_at.is_none()
}
