//! The reply of a run as OpenClaw's clients get it: events `chat` with the state `delta`, and one with `final`, `error` or
//! `aborted`. A delta has the text of its message so far, so it is sent at most every 150 ms.

use std::time::Duration;

use hermod_actors::{
    model::{CallId, Outcome, RunRow},
    shaping::{FinalReply, ReplyPiece},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{
    reach::Reach,
    reply::{ReplyEvents, ShapedPiece},
    stream_event::StreamEvent,
};
use crate::clock;

/// Least time between two deltas.
const PACE: Duration = Duration::from_millis(150);

/// The events `chat` of a run, until its end.
pub(super) struct ChatEvents {
    pieces: ReplyEvents,
    row: RunRow,
    session_key: String,
    message: ChatMessage,
    count: u64,
    /// When the next delta may be sent.
    next_at: Instant,
    is_over: bool,
}

/// The message under way.
#[derive(Debug, Default)]
struct ChatMessage {
    /// The model call with which it begins.
    first: Option<CallId>,
    text: String,
    /// Bytes of the text that were sent.
    sent: usize,
    /// Whether the next delta replaces what was sent before.
    replaces: bool,
}

impl ChatMessage {
    fn push(&mut self, first: CallId, piece: &str) {
        if self.first != Some(first) {
            let has_sent = self.sent > 0 || self.replaces;
            *self = Self { first: Some(first), replaces: has_sent, ..Self::default() };
        }
        self.text.push_str(piece);
    }

    /// Only this many bytes of the message stay.
    fn void(&mut self, first: CallId, at: u64) {
        if self.first != Some(first) {
            return;
        }
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        self.text.truncate(self.text.floor_char_boundary(at));
        self.replaces |= self.sent > self.text.len();
        self.sent = self.sent.min(self.text.len());
    }

    const fn has_news(&self) -> bool {
        self.text.len() > self.sent
    }

    /// The fields of a delta with all that was not sent.
    fn take_delta(&mut self) -> Value {
        let news = self.text.get(self.sent..).unwrap_or_default();
        let mut delta =
            json!({ "state": "delta", "deltaText": if self.replaces { &self.text } else { news } });
        if std::mem::take(&mut self.replaces) {
            delta["replace"] = json!(true);
        }
        delta["message"] = assistant(&self.text);
        self.sent = self.text.len();
        delta
    }
}

impl ChatEvents {
    /// The events of a run in the session with this key.
    pub(super) fn new(reach: Reach, row: &RunRow, session_key: &str) -> Self {
        Self {
            pieces: ReplyEvents::new(reach, row, ReplyEvents::CHAT, None),
            row: row.clone(),
            session_key: session_key.to_owned(),
            message: ChatMessage::default(),
            count: 0,
            next_at: Instant::now(),
            is_over: false,
        }
    }

    pub(super) fn is_cut_off(&self) -> bool {
        self.pieces.is_cut_off()
    }

    /// The next event; `None` after the end, when the service stops, and when the token is revoked.
    pub(super) async fn next(&mut self) -> Option<StreamEvent> {
        while !self.is_over {
            let piece = tokio::select! {
                biased;
                () = sleep_until(self.next_at), if self.message.has_news() => {
                    self.next_at = Instant::now() + PACE;
                    let delta = self.message.take_delta();
                    return Some(self.event(delta));
                }
                piece = self.pieces.next_piece() => piece?,
            };
            match piece {
                Ok(ShapedPiece { piece: ReplyPiece::Delta { message, text, .. }, .. }) => {
                    self.message.push(message, &text);
                }
                Ok(ShapedPiece { piece: ReplyPiece::Retry { message, at, .. }, .. }) => {
                    self.message.void(message, at);
                }
                Ok(ShapedPiece { piece: ReplyPiece::Final(reply), .. }) => {
                    self.is_over = true;
                    return Some(self.event(end(&reply)));
                }
                Ok(_) => {}
                Err(reason) => {
                    self.is_over = true;
                    return Some(StreamEvent::failed(reason));
                }
            }
        }
        None
    }

    fn event(&mut self, mut fields: Value) -> StreamEvent {
        self.count += 1;
        fields["runId"] = json!(self.row.id);
        fields["sessionKey"] = json!(self.session_key);
        fields["agentId"] = json!(self.row.agent);
        fields["seq"] = json!(self.count);
        StreamEvent::Chat(fields)
    }
}

/// The fields of the last event.
fn end(reply: &FinalReply) -> Value {
    match reply.ended.outcome {
        Outcome::Completed => match &reply.text {
            Some(text) => json!({ "state": "final", "message": assistant(text) }),
            None => json!({ "state": "final" }),
        },
        Outcome::Stopped => json!({ "state": "aborted", "errorMessage": reply.ended.to_string() }),
        Outcome::Failed
        | Outcome::TimedOut
        | Outcome::BudgetExhausted
        | Outcome::LoopDetected
        | Outcome::Refused => json!({ "state": "error", "errorMessage": reply.ended.to_string() }),
    }
}

fn assistant(text: &str) -> Value {
    json!({ "role": "assistant", "content": [{ "type": "text", "text": text }], "timestamp": clock::now().0 })
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::RunId;

    use super::*;

    #[test]
    fn a_delta_has_the_message_so_far() {
        let call = |iteration| CallId { run: RunId::from_bits(1), iteration, n: 0 };
        let mut message = ChatMessage::default();
        let check = |message: &mut ChatMessage, delta: &str, replaces: bool, text: &str| {
            assert!(message.has_news());
            let fields = message.take_delta();
            assert_eq!(
                (&fields["deltaText"], &fields["replace"], &fields["message"]["content"][0]["text"]),
                (&json!(delta), &if replaces { json!(true) } else { Value::Null }, &json!(text))
            );
            assert!(!message.has_news());
        };
        message.push(call(1), "I lo");
        message.push(call(1), "ok");
        check(&mut message, "I look", false, "I look");
        message.push(call(1), ".");
        check(&mut message, ".", false, "I look.");
        // Another message, and one whose first attempt is void.
        message.push(call(2), "do");
        message.void(call(2), 0);
        message.push(call(2), "done");
        check(&mut message, "done", true, "done");
        message.void(call(2), 0);
        assert!(!message.has_news());
        message.push(call(2), "fine");
        check(&mut message, "fine", true, "fine");
        // The output limit has cut it: the next call goes on with it, and the first attempt of that is void.
        message.push(call(2), " and wr");
        check(&mut message, " and wr", false, "fine and wr");
        message.void(call(2), 4);
        message.push(call(2), ", and right");
        check(&mut message, "fine, and right", true, "fine, and right");
    }
}
