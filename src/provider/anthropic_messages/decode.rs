//! Decoding of `anthropic_messages` answers, streamed or whole: content, calls, finish reason and usage. One block of
//! the content is in `block.rs`.

use std::sync::Arc;

use hermod_actors::{
    model::{AnswerOrigin, AssistantMessage, Failure, FinishReason, ModelAnswer, ToolCall, Usage},
    port::DeltaSink,
};
use serde_json::Value;

use super::{
    block::{AnswerBlock, CallBlock, is_opaque, take_text},
    event::{Delta, Event, UsageFields, WholeAnswer},
    opaque::OpaqueParts,
};
use crate::provider::{
    announcer::{Announcer, PartialCall},
    excerpt::excerpt,
    failure::failure_in_stream,
    ids::make_distinct,
    loose::{CountReader, LooseValue},
    reader::{AnswerDecoder, check_size, finish_of, incomplete_stream, opaque_state},
    think_tags::SplitText,
    wire::DecodeProgress,
};

/// Maximum number of calls in one answer.
const MAX_CALLS: usize = 1_024;
/// Maximum number of blocks in one answer.
const MAX_BLOCKS: usize = 4 * MAX_CALLS;
/// The minimum size that is counted for a call or an opaque block.
const MIN_BLOCK_BYTES: usize = 64;
/// Maximum number of characters in the excerpt of an error without an explanation.
const MAX_ERROR_CHARS: usize = 200;

/// A streamed answer, as received so far.
#[derive(Debug, Clone, Default)]
pub(super) struct MessagesDecoder {
    /// The blocks in the order of their starts, each with the vendor's index, if there is one.
    blocks: Vec<(Option<u64>, AnswerBlock)>,
    calls: usize,
    announcer: Announcer,
    /// The finish reason, as soon as it is known.
    finish: Option<FinishReason>,
    tokens: TokenCounts,
    size: usize,
}

/// Tokens as the vendor counts them: `input` excludes tokens read from the cache and tokens written to it.
#[derive(Debug, Clone, Copy, Default)]
struct TokenCounts {
    input: Option<u64>,
    output: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    counts: CountReader,
}

impl AnswerDecoder for MessagesDecoder {
    type Event<'a> = Event<'a>;
    type Document<'a> = WholeAnswer<'a>;

    fn push_event(
        &mut self,
        event: Event<'_>,
        data: &[u8],
        deltas: &dyn DeltaSink,
    ) -> Result<DecodeProgress, Failure> {
        if event.error != LooseValue::Absent {
            return Err(failure_in_stream(&event.error.into_value()));
        }
        let before = (self.size, self.finish);
        let index = event.index.count();
        match event.kind.text() {
            "error" => return Err(failure_in_stream(&Value::String(excerpt(data, MAX_ERROR_CHARS)))),
            "message_start" => self.take_usage(event.message.0.and_then(|message| message.usage.0)),
            "content_block_start" => self.start(index, event.content_block, deltas)?,
            "content_block_delta" => self.take_delta(index, event.delta.0.unwrap_or_default(), deltas)?,
            "content_block_stop" => self.stop(index, deltas),
            "message_delta" => {
                let delta = event.delta.0.unwrap_or_default();
                self.finish = finish_reason(delta.stop_reason.text()).or(self.finish);
                self.take_usage(event.usage.0);
            }
            "message_stop" => return Ok(DecodeProgress::Done),
            // `ping`, and future events.
            _ => {}
        }
        Ok(if before == (self.size, self.finish) { DecodeProgress::Quiet } else { DecodeProgress::Content })
    }

    fn push_document(&mut self, document: WholeAnswer<'_>, deltas: &dyn DeltaSink) -> Result<bool, Failure> {
        if document.error != LooseValue::Absent {
            return Err(failure_in_stream(&document.error.into_value()));
        }
        let Some(blocks) = document.content.0 else { return Ok(false) };
        for block in blocks {
            self.start(None, block, deltas)?;
            self.stop(None, deltas);
        }
        self.take_usage(document.usage.0);
        self.finish = finish_reason(document.stop_reason.text());
        Ok(true)
    }

    fn is_whole(&self) -> bool {
        self.finish.is_some()
    }

    fn finish(mut self, origin: Arc<AnswerOrigin>, deltas: &dyn DeltaSink) -> Result<ModelAnswer, Failure> {
        for (_, block) in &mut self.blocks {
            if let AnswerBlock::Text(text) = block {
                text.finish(deltas);
            }
        }
        if self.finish.is_none() && !self.looks_whole() {
            return Err(incomplete_stream(
                "the stream ended without a stop reason, in the middle of a tool call",
            ));
        }
        let finish = finish_of(self.finish, self.calls > 0);
        let usage = self.tokens.usage();
        Ok(ModelAnswer { message: self.build_message(finish, origin)?, finish, usage })
    }
}

impl MessagesDecoder {
    /// Starts a block, with its initial content.
    fn start(&mut self, index: Option<u64>, block: Value, deltas: &dyn DeltaSink) -> Result<(), Failure> {
        let Value::Object(mut block) = block else { return Ok(()) };
        let kind = block.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut text = |name: &str| take_text(&mut block, name);
        match kind.as_str() {
            "text" => {
                let begin = text("text");
                self.add_block(index, AnswerBlock::Text(SplitText::default()))?;
                self.take_text(index, &begin, deltas)
            }
            "thinking" => {
                let (thinking, signature) = (text("thinking"), text("signature"));
                self.add_block(
                    index,
                    AnswerBlock::Thinking { thinking: String::new(), signature: String::new() },
                )?;
                self.take_thinking(index, &thinking, &signature, deltas)
            }
            "tool_use" => {
                let call = CallBlock::of(&mut block);
                self.grow(MIN_BLOCK_BYTES + call.id.len() + call.name.len() + call.arguments().len())?;
                self.add_block(index, AnswerBlock::Call(call))
            }
            kind if is_opaque(kind) => {
                self.grow(MIN_BLOCK_BYTES + Value::Object(block.clone()).to_string().len())?;
                self.add_block(index, AnswerBlock::Opaque { block, json: String::new() })
            }
            _ => self.add_block(index, AnswerBlock::Ignored),
        }
    }

    fn take_delta(
        &mut self,
        index: Option<u64>,
        delta: Delta<'_>,
        deltas: &dyn DeltaSink,
    ) -> Result<(), Failure> {
        match delta.kind.text() {
            "text_delta" => self.take_text(index, delta.text.text(), deltas),
            "thinking_delta" => self.take_thinking(index, delta.thinking.text(), "", deltas),
            "signature_delta" => self.take_thinking(index, "", delta.signature.text(), deltas),
            "input_json_delta" => {
                let added = self
                    .block_for(index, AnswerBlock::Call(CallBlock::default()))?
                    .push_json(delta.partial_json);
                self.grow(added)
            }
            // Citations, and future deltas.
            _ => Ok(()),
        }
    }

    fn take_text(&mut self, index: Option<u64>, delta: &str, deltas: &dyn DeltaSink) -> Result<(), Failure> {
        self.grow(delta.len())?;
        if let AnswerBlock::Text(text) = self.block_for(index, AnswerBlock::Text(SplitText::default()))? {
            text.push(delta, deltas);
        }
        Ok(())
    }

    /// Adds a piece of reasoning and of its signature.
    fn take_thinking(
        &mut self,
        index: Option<u64>,
        delta: &str,
        signature_delta: &str,
        deltas: &dyn DeltaSink,
    ) -> Result<(), Failure> {
        self.grow(delta.len() + signature_delta.len())?;
        let fresh = AnswerBlock::Thinking { thinking: String::new(), signature: String::new() };
        if let AnswerBlock::Thinking { thinking, signature } = self.block_for(index, fresh)? {
            thinking.push_str(delta);
            signature.push_str(signature_delta);
            if !delta.is_empty() {
                deltas.reasoning(delta);
            }
        }
        Ok(())
    }

    /// Handles the end of a block.
    fn stop(&mut self, index: Option<u64>, deltas: &dyn DeltaSink) {
        let block = self.block_position(index).map(|at| &mut self.blocks[at].1);
        if let Some(AnswerBlock::Text(text)) = block {
            text.finish(deltas);
        } else if let Some(AnswerBlock::Call(call)) = block {
            call.is_stopped = true;
            let calls = self.blocks.iter().filter_map(|(_, block)| block.call());
            let partial = calls.map(|call| PartialCall {
                name: &call.name,
                arguments: call.arguments(),
                is_closed: call.is_stopped,
            });
            self.announcer.announce(partial, deltas);
        }
    }

    /// The block that a piece belongs to. If no matching block has started, `fresh` is added.
    fn block_for(&mut self, index: Option<u64>, fresh: AnswerBlock) -> Result<&mut AnswerBlock, Failure> {
        let found = self.block_position(index).filter(|at| self.blocks[*at].1.accepts(&fresh));
        let at = found.unwrap_or(self.blocks.len());
        if found.is_none() {
            self.add_block(index, fresh)?;
        }
        Ok(&mut self.blocks[at].1)
    }

    /// The position of the block with this index; without an index, that of the last block.
    fn block_position(&self, index: Option<u64>) -> Option<usize> {
        match index {
            Some(_) => self.blocks.iter().rposition(|(block_index, _)| *block_index == index),
            None => self.blocks.len().checked_sub(1),
        }
    }

    fn add_block(&mut self, index: Option<u64>, block: AnswerBlock) -> Result<(), Failure> {
        self.calls += usize::from(matches!(block, AnswerBlock::Call(_)));
        if self.calls > MAX_CALLS {
            return Err(incomplete_stream(&format!("the answer asks for more than {MAX_CALLS} tool calls")));
        }
        if self.blocks.len() == MAX_BLOCKS {
            return Err(incomplete_stream(&format!("the answer has more than {MAX_BLOCKS} blocks")));
        }
        self.blocks.push((index, block));
        Ok(())
    }

    fn grow(&mut self, bytes: usize) -> Result<(), Failure> {
        self.size += bytes;
        check_size(self.size)
    }

    /// Updates the counts, which cover the whole answer so far. The last count is used, but a zero replaces no other
    /// count.
    fn take_usage(&mut self, fields: Option<UsageFields<'_>>) {
        let Some(fields) = fields else { return };
        let mut counts = self.tokens.counts;
        let mut take = |to: &mut Option<u64>, field: &LooseValue<'_>| {
            if let Some(count) = counts.read(field).filter(|count| *count > 0 || to.is_none()) {
                *to = Some(count);
            }
        };
        take(&mut self.tokens.input, &fields.input_tokens);
        take(&mut self.tokens.output, &fields.output_tokens);
        take(&mut self.tokens.cache_read, &fields.cache_read_input_tokens);
        take(&mut self.tokens.cache_write, &fields.cache_creation_input_tokens);
        self.tokens.counts = counts;
    }

    fn looks_whole(&self) -> bool {
        self.blocks.iter().filter_map(|(_, block)| block.call()).all(CallBlock::looks_whole)
    }

    fn build_message(
        self,
        finish: FinishReason,
        origin: Arc<AnswerOrigin>,
    ) -> Result<AssistantMessage, Failure> {
        let mut message = AssistantMessage::default();
        let mut parts = OpaqueParts::default();
        for (_, block) in self.blocks {
            message.reasoning.push_str(block.reasoning());
            // A missing signature means unfinished reasoning, or a vendor that signs none but still requires the block.
            let is_cut = matches!(&block, AnswerBlock::Thinking { signature, .. } if signature.is_empty())
                && finish != FinishReason::ToolCalls;
            if !is_cut {
                block.add_to(&mut parts);
            }
            match block {
                AnswerBlock::Text(text) => message.text.push_str(&text.text),
                AnswerBlock::Call(call) => message.calls.push(ToolCall {
                    arguments: call.arguments().to_owned(),
                    id: call.id,
                    name: call.name,
                }),
                AnswerBlock::Thinking { .. } | AnswerBlock::Opaque { .. } | AnswerBlock::Ignored => {}
            }
        }
        make_distinct(message.calls.iter_mut().map(|call| &mut call.id));
        message.opaque = opaque_state(origin, parts.finish())?;
        Ok(message)
    }
}

impl TokenCounts {
    /// `None` if the vendor has reported no count.
    fn usage(self) -> Option<Usage> {
        let Self { input, output, cache_read, cache_write, counts: CountReader { is_invalid } } = self;
        let is_known = input.or(output).or(cache_read).or(cache_write).is_some();
        if !is_known && !is_invalid {
            return None;
        }
        let (cached_tokens, cache_write_tokens) = (cache_read.unwrap_or(0), cache_write.unwrap_or(0));
        let input_tokens =
            input.unwrap_or(0).saturating_add(cached_tokens).saturating_add(cache_write_tokens);
        let output_tokens = output.unwrap_or(0);
        Some(Usage {
            input_tokens,
            output_tokens,
            cached_tokens,
            cache_write_tokens,
            unlisted_reasoning_tokens: 0,
            is_invalid,
        })
    }
}

/// The finish reason of a stop reason; `None` if there is none yet.
fn finish_reason(reason: &str) -> Option<FinishReason> {
    match reason {
        "" => None,
        "tool_use" | "tool_calls" => Some(FinishReason::ToolCalls),
        // A paused answer must be continued, too; only tools of the server cause pauses.
        "max_tokens" | "model_context_window_exceeded" | "pause_turn" | "length" => {
            Some(FinishReason::Length)
        }
        "refusal" | "content_filter" => Some(FinishReason::Refused),
        // `end_turn`, `stop_sequence`, and other vendors' names for them.
        _ => Some(FinishReason::Stop),
    }
}
