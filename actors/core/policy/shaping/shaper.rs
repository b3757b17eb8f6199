//! Turns the events of one run into the pieces of its reply.

use super::{
    message::ReplyMessage,
    reply::{FinalReply, ReplyOptions, ReplyPiece, ReplyShape, ReplySource},
    silence::is_silent_reply,
    tools::ReplyTools,
};
use crate::model::{AttemptId, Body, EventBody, ModelAnswered, Outcome, OutcomeDetail, Record};

/// Turns the events of one run, from its first record on, into the pieces of its reply. It keeps at most the text of one
/// message and a block.
#[derive(Debug, Clone)]
pub struct ReplyShaper {
    options: ReplyOptions,
    message: ReplyMessage,
    tools: ReplyTools,
    texts: DurableTexts,
    /// When the last text came that waits for more.
    text_at_ms: Option<u64>,
}

/// The texts of the run's answers.
#[derive(Debug, Clone, Default)]
struct DurableTexts {
    /// The parts of a text that the output limit has cut.
    parts: String,
    /// The last text that is whole.
    last: String,
}

impl DurableTexts {
    fn on_answer(&mut self, answered: &ModelAnswered) {
        self.parts.push_str(&answered.message.text);
        if !answered.is_partial() {
            let text = std::mem::take(&mut self.parts);
            if !text.trim().is_empty() {
                self.last = text;
            }
        }
    }

    /// The last text, whole or not; `None` without one.
    fn latest(self) -> Option<String> {
        [self.parts, self.last].into_iter().find(|text| !text.trim().is_empty())
    }
}

impl ReplyShaper {
    /// A reply of which nothing is known.
    pub fn new(options: ReplyOptions) -> Self {
        Self {
            options,
            message: ReplyMessage::new(options),
            tools: ReplyTools::default(),
            texts: DurableTexts::default(),
            text_at_ms: None,
        }
    }

    /// Takes the next event of the run.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other events are no part of a reply")]
    pub fn on_event(&mut self, event: &EventBody, now_ms: u64) -> Vec<ReplyPiece> {
        match event {
            EventBody::TextDelta { call, attempt, delta } => {
                self.text_at_ms = Some(now_ms);
                self.message.on_text(call.attempt(*attempt), delta, &self.tools.sent)
            }
            EventBody::ReasoningDelta { call, attempt, delta } => {
                self.message.on_reasoning(call.attempt(*attempt), delta)
            }
            EventBody::ToolCallStreamed { call, attempt, .. } => {
                let model_call = crate::model::CallId { n: 0, ..*call };
                self.message.on_tool_call(AttemptId { call: model_call, attempt: *attempt })
            }
            EventBody::Retry { call, .. } => self.message.void(*call),
            EventBody::Recorded { record } => self.on_record(record),
            _ => Vec::new(),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other records are no part of a reply")]
    fn on_record(&mut self, record: &Record) -> Vec<ReplyPiece> {
        match &record.body {
            Body::ModelAnswered(answered) if !answered.is_discarded() => {
                let pieces = self.message.on_answer(answered, &self.tools.sent);
                self.tools.on_answer(answered);
                self.texts.on_answer(answered);
                pieces
            }
            Body::CallAdmitted(admitted) => {
                self.tools.on_admitted(admitted);
                Vec::new()
            }
            Body::CallEnded(ended) => {
                let summary = self.tools.on_ended(ended, self.options.verbose);
                summary.map(ReplyPiece::Tool).into_iter().collect()
            }
            Body::RunExhausted(_) => {
                // Only the text of the grace call is an answer of sorts, with the parts that it continues.
                self.texts.last.clear();
                Vec::new()
            }
            Body::RunEnded(ended) => {
                let reply = self.final_reply(&ended.ended);
                let is_partial = reply.source == Some(ReplySource::Partial);
                let mut pieces = match self.options.shape {
                    ReplyShape::Blocks(_) if is_partial => self.message.on_run_end(&self.tools.sent),
                    ReplyShape::Blocks(_) | ReplyShape::Deltas => Vec::new(),
                };
                pieces.push(ReplyPiece::Final(reply));
                // A run that goes on with a larger budget has sent what its tools have sent.
                *self = Self { tools: std::mem::take(&mut self.tools), ..Self::new(self.options) };
                pieces
            }
            _ => Vec::new(),
        }
    }

    /// When text that waits is to be sent, if no event comes before.
    pub fn idle_at_ms(&self) -> Option<u64> {
        let ReplyShape::Blocks(blocks) = self.options.shape else { return None };
        let since = self.text_at_ms.filter(|_| self.message.is_waiting())?;
        Some(since.saturating_add(blocks.idle_ms))
    }

    /// Sends text that has waited long enough.
    pub fn on_time(&mut self, now_ms: u64) -> Vec<ReplyPiece> {
        if self.idle_at_ms().is_none_or(|at| at > now_ms) {
            return Vec::new();
        }
        self.text_at_ms = None;
        self.message.on_pause()
    }

    fn final_reply(&mut self, ended: &OutcomeDetail) -> FinalReply {
        let texts = std::mem::take(&mut self.texts);
        let (text, source, is_silent) = match ended.outcome {
            Outcome::Completed => self.completed(texts.last),
            Outcome::Stopped => (None, None, false),
            Outcome::BudgetExhausted | Outcome::Refused => match texts.latest() {
                Some(text) if !is_silent_reply(&text) => {
                    (self.unsent(text), Some(ReplySource::Partial), false)
                }
                Some(_) | None => (Some(ended.to_string()), Some(ReplySource::Failure), false),
            },
            Outcome::Failed | Outcome::TimedOut | Outcome::LoopDetected => {
                (Some(ended.to_string()), Some(ReplySource::Failure), false)
            }
        };
        FinalReply { ended: ended.clone(), text, source, is_silent }
    }

    fn completed(&self, answer: String) -> (Option<String>, Option<ReplySource>, bool) {
        let (is_silent, is_sent) = (is_silent_reply(&answer), self.tools.sent.has(&answer));
        if is_sent {
            return (None, Some(ReplySource::Sent), is_silent);
        }
        match self.tools.error().filter(|_| is_silent) {
            Some(error) => (Some(error.to_owned()), Some(ReplySource::ToolError), true),
            None if is_silent => (None, None, true),
            None => (self.unsent(answer), Some(ReplySource::Answer), false),
        }
    }

    /// A text that is part of the final reply, unless blocks have it.
    fn unsent(&self, text: String) -> Option<String> {
        matches!(self.options.shape, ReplyShape::Deltas).then_some(text)
    }
}
