//! Decoding of `chat_completions` answers, streamed or whole: content, finish reason and usage. The calls are assembled
//! in `calls.rs`.

use std::sync::Arc;

use hermod_actors::{
    model::{AnswerOrigin, AssistantMessage, Failure, FailureClass, FinishReason, ModelAnswer, Usage},
    port::DeltaSink,
};
use serde_json::Value;

use super::{
    calls::CallSlots,
    chunk::{Choice, Chunk, Delta, UsageFields},
    echoed::EchoedState,
};
use crate::provider::{
    announcer::Announcer,
    failure::failure_in_stream,
    loose::{CountReader, LooseValue},
    reader::{AnswerDecoder, check_size, finish_of, incomplete_stream},
    think_tags::SplitText,
    wire::DecodeProgress,
};

/// The minimum size that is counted for a piece of a call.
const MIN_CALL_BYTES: usize = 64;

/// A streamed answer, as received so far.
#[derive(Debug, Clone, Default)]
pub(super) struct ChatDecoder {
    streamed: SplitText,
    refusal: String,
    calls: CallSlots,
    announcer: Announcer,
    echoed: EchoedState,
    /// The finish reason, as soon as it is known.
    finish: Option<FinishReason>,
    usage: Option<Usage>,
    size: usize,
}

impl AnswerDecoder for ChatDecoder {
    type Event<'a> = Chunk<'a>;
    type Document<'a> = Chunk<'a>;

    fn push_event(
        &mut self,
        chunk: Chunk<'_>,
        _: &[u8],
        deltas: &dyn DeltaSink,
    ) -> Result<DecodeProgress, Failure> {
        if chunk.error != LooseValue::Absent {
            // Only a usage that comes with the error covers the whole attempt.
            self.usage = None;
            if let Some(usage) = chunk.usage.0 {
                self.take_usage(&usage);
            }
            return Err(failure_in_stream(&chunk.error.into_value()).with_usage(self.usage));
        }
        let before = (self.size, self.finish);
        if let Some(usage) = chunk.usage.0 {
            self.take_usage(&usage);
        }
        for choice in chunk.choices.0.unwrap_or_default().into_iter().filter_map(|choice| choice.0) {
            // One answer was requested; if several come, the first counts.
            if choice.index.count().unwrap_or(0) == 0 {
                self.take_choice(choice, deltas)?;
            }
        }
        Ok(if before == (self.size, self.finish) { DecodeProgress::Quiet } else { DecodeProgress::Content })
    }

    fn push_document(&mut self, mut chunk: Chunk<'_>, deltas: &dyn DeltaSink) -> Result<bool, Failure> {
        // Some vendors send an empty delta beside the message, also in an answer that is not streamed.
        for choice in chunk.choices.0.iter_mut().flatten().filter_map(|choice| choice.0.as_mut()) {
            choice.delta.0 = choice.message.0.take().or(choice.delta.0.take());
        }
        let has_choices = chunk.choices.0.as_ref().is_some_and(|choices| !choices.is_empty());
        if !has_choices && chunk.error == LooseValue::Absent {
            return Ok(false);
        }
        self.push_event(chunk, &[], deltas).map(|_| true)
    }

    fn is_whole(&self) -> bool {
        self.finish.is_some()
    }

    fn finish(mut self, origin: Arc<AnswerOrigin>, deltas: &dyn DeltaSink) -> Result<ModelAnswer, Failure> {
        self.streamed.finish(deltas);
        // Some vendors send no finish reason with calls.
        if self.finish.is_none() && !self.calls.look_complete() {
            return Err(incomplete_stream(
                "the stream ended without a finish reason, in the middle of a tool call",
            ));
        }
        let SplitText { mut text, reasoning, .. } = self.streamed;
        let (calls, extras) = self.calls.finish();
        let opaque = if calls.is_empty() { None } else { self.echoed.finish(origin, extras)? };
        let finish = match self.refusal.is_empty() {
            true => finish_of(self.finish, !calls.is_empty()),
            false => FinishReason::Refused,
        };
        if text.is_empty() {
            text = self.refusal;
        }
        Ok(ModelAnswer {
            message: AssistantMessage { text, reasoning, calls, opaque },
            finish,
            usage: self.usage,
        })
    }
}

impl ChatDecoder {
    fn take_choice(&mut self, choice: Choice<'_>, deltas: &dyn DeltaSink) -> Result<(), Failure> {
        // Some vendors send both in a chunk: the piece, and the text so far.
        if let Some(delta) = choice.delta.0.or(choice.message.0) {
            self.take_delta(delta, deltas)?;
        }
        if self.usage.is_none()
            && let Some(usage) = choice.usage.0
        {
            self.take_usage(&usage);
        }
        if let Some(finish) = finish_reason(choice.finish_reason.text())? {
            self.finish = Some(finish);
        }
        self.announcer.announce(self.calls.partial(self.finish.is_some()), deltas);
        Ok(())
    }

    fn take_delta(&mut self, delta: Delta<'_>, deltas: &dyn DeltaSink) -> Result<(), Failure> {
        // Both fields may contain the same text.
        let fields = [("reasoning_content", &delta.reasoning_content), ("reasoning", &delta.reasoning)];
        if let Some((field, text)) = fields.into_iter().find(|(_, text)| !text.text().is_empty()) {
            self.size += text.text().len();
            self.echoed.set_field(field);
            self.streamed.push_reasoning(text.text(), deltas);
        }
        self.size += self.echoed.push_details(delta.reasoning_details.0.unwrap_or_default())?;
        match delta.content {
            LooseValue::Absent => {}
            LooseValue::Text(text) => self.take_text(&text, deltas),
            LooseValue::Other(Value::Array(parts)) => {
                for part in &parts {
                    self.take_part(part, deltas);
                }
            }
            LooseValue::Other(part) => self.take_part(&part, deltas),
        }
        self.size += delta.refusal.text().len();
        self.refusal.push_str(delta.refusal.text());
        for call in delta.tool_calls.0.unwrap_or_default().into_iter().filter_map(|call| call.0) {
            self.size += MIN_CALL_BYTES + self.calls.push(call)?;
        }
        if let Some(function) = delta.function_call.0 {
            self.size += self.calls.push_function(function)?;
        }
        check_size(self.size)
    }

    fn take_text(&mut self, text: &str, deltas: &dyn DeltaSink) {
        self.size += text.len();
        self.streamed.push(text, deltas);
    }

    /// Adds a content part: a text, a refusal, or reasoning.
    fn take_part(&mut self, part: &Value, deltas: &dyn DeltaSink) {
        let field = |name: &str| part.get(name).and_then(Value::as_str);
        match (part, field("type"), part.get("thinking")) {
            (Value::String(text), ..) => self.take_text(text, deltas),
            (_, _, Some(thinking)) => self.take_thinking(thinking, deltas),
            (_, Some("refusal"), _) => {
                let text = field("refusal").unwrap_or_default();
                self.size += text.len();
                self.refusal.push_str(text);
            }
            _ => self.take_text(field("text").unwrap_or_default(), deltas),
        }
    }

    /// Adds reasoning: a text, or a list of parts with texts.
    fn take_thinking(&mut self, thinking: &Value, deltas: &dyn DeltaSink) {
        let text = thinking.as_str().or_else(|| thinking.get("text").and_then(Value::as_str));
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            self.size += text.len();
            self.streamed.push_reasoning(text, deltas);
        }
        thinking.as_array().into_iter().flatten().for_each(|part| self.take_thinking(part, deltas));
    }

    /// Sets the usage. The last one counts, but zeros do not replace an earlier usage.
    fn take_usage(&mut self, fields: &UsageFields<'_>) {
        let mut counts = CountReader::default();
        let details = fields.prompt_tokens_details.0.as_ref();
        let cached = details.and_then(|details| counts.read(&details.cached_tokens));
        let cache_hits = counts.read(&fields.prompt_cache_hit_tokens);
        let usage = Usage {
            input_tokens: counts.read(&fields.prompt_tokens).unwrap_or(0),
            output_tokens: counts.read(&fields.completion_tokens).unwrap_or(0),
            unlisted_reasoning_tokens: fields.unlisted_reasoning().unwrap_or(0),
            cached_tokens: cached.or(cache_hits).unwrap_or(0),
            cache_write_tokens: details
                .and_then(|details| counts.read(&details.cache_write_tokens))
                .unwrap_or(0),
            is_invalid: counts.is_invalid,
        };
        if self.usage.is_none() || usage.total() > 0 || usage.is_invalid {
            self.usage = Some(usage);
        }
    }
}

/// The finish reason of a vendor's name; `None` if there is none yet.
fn finish_reason(reason: &str) -> Result<Option<FinishReason>, Failure> {
    let failure = |class, text: &str| Err(Failure::new(class, format!("finish reason `{reason}`: {text}")));
    match reason {
        "" | "null" => Ok(None),
        "tool_calls" | "function_call" | "tool_use" => Ok(Some(FinishReason::ToolCalls)),
        "length" | "max_tokens" | "max_output_tokens" | "model_length" => Ok(Some(FinishReason::Length)),
        "content_filter" | "refusal" | "safety" | "sensitive" => Ok(Some(FinishReason::Refused)),
        "error" | "network_error" => failure(FailureClass::Server, "the provider gave up"),
        "insufficient_system_resource" => failure(FailureClass::Overloaded, "the provider gave up"),
        "abort" | "cancelled" => failure(FailureClass::IncompleteStream, "the provider ended the answer"),
        // `stop`, and its many other names.
        _ => Ok(Some(FinishReason::Stop)),
    }
}
