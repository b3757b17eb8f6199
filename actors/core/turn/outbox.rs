//! Writes messages to the outbox: those of the tool `message`, which are answered within the decision, and the results
//! of runs that name targets. The tool is in `policy/message.rs` and `builtin_tools.rs`, the delivery outside of the actors.
//!
//! A call with files is a task first, which captures them (`src/tool/message.rs`); the end of that task has them.
//!
//! Invariant: a message is in the append with the end of its call, or of its run. So none is lost, and none is written
//! twice.

use std::sync::Arc;

use crate::{
    journal::IndexRow,
    model::{
        Attachment, BadArguments, CallEnd, CallId, MAX_OUTBOX_TEXT_BYTES, OutboxContent, OutboxMessage,
        Outcome, RunEnded, RunRow, Timestamp,
    },
    policy::{
        message::{MESSAGE, parse_message, takes_files},
        parse_arguments,
    },
    turn::{decision::DecisionBuilder, tool_calls::ActiveToolCall},
};

impl DecisionBuilder {
    /// Answers the admitted calls of `message`, in their order in the model's answer: each puts its text into the outbox.
    pub(super) fn answer_message_calls(&mut self) {
        let is_ready = |call: &&ActiveToolCall| *call.tool == *MESSAGE && call.is_admitted();
        while let Some(run) =
            self.run().filter(|run| run.planned_end.is_none() && run.budget.exhausted.is_none())
            && let Some(call) = {
                let mut ready = run.tool_calls().iter().filter(is_ready).map(|call| call.id);
                ready.find(|call| !takes_files(run.arguments(*call)))
            }
        {
            let end = match self.send_message(call, Arc::default()) {
                Ok(message) => CallEnd::ok(message_result(&message)),
                Err(bad) => bad.into(),
            };
            self.end_call(call.attempt(0), end);
        }
    }

    /// Adds the message of a call that has captured its files to the append that ends it.
    pub(super) fn send_with_files(&mut self, call: CallId, end: &CallEnd) {
        let is_message = |known: &ActiveToolCall| known.id == call && *known.tool == *MESSAGE;
        let is_sent = !end.attachments.is_empty()
            && self.run().is_some_and(|run| run.tool_calls().iter().any(is_message));
        if is_sent {
            // The tool has accepted these arguments.
            let (Ok(_) | Err(_)) = self.send_message(call, end.attachments.as_slice().into());
        }
    }

    /// Adds the message of a call to the append.
    fn send_message(
        &mut self,
        call: CallId,
        attachments: Arc<[Attachment]>,
    ) -> Result<OutboxMessage, BadArguments> {
        let text = self.run().map_or("", |run| run.arguments(call));
        let arguments =
            parse_arguments(text).map_err(|error| BadArguments::new(None, error.to_string(), "send JSON"))?;
        let request = parse_message(&arguments)?;
        let message = OutboxMessage {
            id: OutboxMessage::id_of_call(call),
            target: request.target.into(),
            session: self.turn.session,
            run: call.run,
            created_at: self.now.at,
            content: OutboxContent::Message { call, text: request.text.into(), attachments },
        };
        self.append.index.push(IndexRow::Outbox(Box::new(message.clone())));
        Ok(message)
    }

    /// Adds the results of a run that ends to the append, for the targets that it names.
    pub(super) fn send_results(&mut self, ended: &RunEnded) {
        let Some(row) = self.row_before_end.as_ref().filter(|row| !row.deliver_to.is_empty()) else { return };
        let run = self.run().filter(|run| run.id == ended.run);
        let text = run.map(|run| run.last_text.text()).unwrap_or_default();
        let has_answer = ended.ended.outcome == Outcome::Completed;
        let is_sent = |target: &str| has_answer && run.is_some_and(|run| run.sent.has(target, &text));
        let rows: Vec<IndexRow> = results(row, ended, &text, self.now.at, is_sent).collect();
        self.append.index.extend(rows);
    }
}

/// What the model reads of a message that was written.
fn message_result(message: &OutboxMessage) -> String {
    let OutboxMessage { id, target, .. } = message;
    serde_json::json!({ "id": id, "target": target, "state": "queued for delivery" }).to_string()
}

/// The rows for the targets of a run that ends, without those that have its text already.
pub(super) fn results<'a, F: Fn(&str) -> bool + 'a>(
    row: &'a RunRow,
    ended: &'a RunEnded,
    text: &str,
    now: Timestamp,
    is_sent: F,
) -> impl Iterator<Item = IndexRow> + use<'a, F> {
    let truncated = text.len() > MAX_OUTBOX_TEXT_BYTES;
    let text: Arc<str> = text[..text.floor_char_boundary(MAX_OUTBOX_TEXT_BYTES)].into();
    row.deliver_to.iter().filter(move |target| !is_sent(target)).map(move |target| {
        let ended = Box::new(ended.ended.clone());
        let text = Arc::clone(&text);
        IndexRow::Outbox(Box::new(OutboxMessage {
            id: OutboxMessage::id_of_result(row.id, row.leg, target),
            target: target.as_str().into(),
            session: row.session,
            run: row.id,
            created_at: now,
            content: OutboxContent::Result { leg: row.leg, ended, text, truncated },
        }))
    })
}
