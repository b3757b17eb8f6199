//! Decoding of `codex_responses` answers, streamed or whole: content, the way it ended, and usage. The items are
//! assembled in `items.rs`.

use std::{borrow::Cow, sync::Arc};

use hermod_actors::{
    model::{AnswerOrigin, AssistantMessage, Failure, FailureClass, FinishReason, ModelAnswer, Usage},
    port::DeltaSink,
};
use serde_json::json;

use super::{
    event::{DeltaTarget, Event, EventKind, Response, ResponseStatus, UsageFields},
    items::{ItemGrowth, ItemRef, Items},
    opaque,
    slot::{ItemKind, ItemSlot, PARAGRAPH_BREAK, PartKind},
    streamed_text::StreamedText,
};
use crate::provider::{
    announcer::Announcer,
    failure::failure_in_stream,
    loose::{CountReader, LooseValue},
    reader::{AnswerDecoder, check_size, finish_of, incomplete_stream, opaque_state},
    wire::DecodeProgress,
};

/// A streamed answer, as received so far.
#[derive(Debug, Clone, Default)]
pub(super) struct ResponsesDecoder {
    items: Items,
    announcer: Announcer,
    streamed: StreamedText,
    /// How the answer ended, as soon as it is known: `Stop` if it is complete, with or without calls.
    end: Option<FinishReason>,
    usage: Option<Usage>,
}

impl AnswerDecoder for ResponsesDecoder {
    type Event<'a> = Event<'a>;
    type Document<'a> = Response<'a>;

    fn push_event(
        &mut self,
        event: Event<'_>,
        _: &[u8],
        deltas: &dyn DeltaSink,
    ) -> Result<DecodeProgress, Failure> {
        let index = event.output_index.count();
        let progress = match event.kind() {
            EventKind::Error => return Err(failure_of(event)),
            EventKind::End(ending) => {
                let response = event.response.0.unwrap_or_default();
                let ending = ResponseStatus::from_status(response.status.text()).unwrap_or(ending);
                self.on_final_response(ending, response)?;
                DecodeProgress::Done
            }
            EventKind::ItemStarted => {
                self.items.start_item(index, event.item.0.unwrap_or_default())?;
                DecodeProgress::Content
            }
            EventKind::ItemDone => {
                let growth = self.items.complete_item(index, event.item.0.unwrap_or_default())?;
                self.report_growth(&growth, deltas);
                self.announcer.announce(self.items.partial_calls(), deltas);
                DecodeProgress::Content
            }
            EventKind::PartDone => self.on_part_done(&event, deltas)?,
            EventKind::Delta(target) => self.on_delta(target, &event, deltas)?,
            EventKind::Done(target) => self.on_delta_done(target, event, deltas)?,
            EventKind::Activity => DecodeProgress::Content,
            EventKind::Unrelated => DecodeProgress::Quiet,
        };
        check_size(self.items.size().max(self.streamed.size()))?;
        Ok(progress)
    }

    fn push_document(&mut self, response: Response<'_>, _: &dyn DeltaSink) -> Result<bool, Failure> {
        if response.output.0.is_none() && response.object.text() != "response" {
            return Ok(false);
        }
        let status = response.status.text();
        let ending = match ResponseStatus::from_status(status) {
            Some(ending) => ending,
            None if !status.is_empty() => {
                return Err(incomplete_stream(&format!("the answer is only `{status}`")));
            }
            None if response.error != LooseValue::Absent => ResponseStatus::Failed,
            None => ResponseStatus::Completed,
        };
        self.on_final_response(ending, response).map(|()| true)
    }

    fn is_whole(&self) -> bool {
        self.end.is_some()
    }

    fn finish(self, origin: Arc<AnswerOrigin>, deltas: &dyn DeltaSink) -> Result<ModelAnswer, Failure> {
        let Some(end) = self.end else {
            return Err(incomplete_stream("the stream ended without its final response"));
        };
        let items = self.items;
        if end == FinishReason::Stop && items.slots().iter().any(ItemSlot::is_incomplete_call) {
            return Err(incomplete_stream("the answer ended in the middle of a tool call"));
        }
        let refusal = items.joined(ItemSlot::refusal, "");
        let (raw, thought) =
            (items.joined(ItemSlot::text, ""), items.joined(ItemSlot::reasoning, PARAGRAPH_BREAK));
        let (text, reasoning) = self.streamed.finish(&raw, thought, deltas);
        let (calls, parts) = (items.calls(), opaque::parts(items.slots()));
        let finish = match refusal.is_empty() {
            true => finish_of(Some(end), !calls.is_empty()),
            false => FinishReason::Refused,
        };
        let text = if text.is_empty() { refusal } else { text };
        let opaque = opaque_state(origin, parts)?;
        let message = AssistantMessage { text, reasoning, calls, opaque };
        Ok(ModelAnswer { message, finish, usage: self.usage })
    }
}

impl ResponsesDecoder {
    #[cfg(test)]
    pub(super) const fn items(&self) -> &Items {
        &self.items
    }

    fn on_delta(
        &mut self,
        target: DeltaTarget,
        event: &Event<'_>,
        deltas: &dyn DeltaSink,
    ) -> Result<DecodeProgress, Failure> {
        let piece = match (&event.delta, target) {
            (LooseValue::Text(piece), _) => Cow::Borrowed(&**piece),
            (LooseValue::Other(value), DeltaTarget::Arguments) => Cow::Owned(value.to_string()),
            (LooseValue::Absent, _) | (LooseValue::Other(_), DeltaTarget::Part(_)) => Cow::default(),
        };
        if piece.is_empty() {
            return Ok(DecodeProgress::Quiet);
        }
        match target {
            DeltaTarget::Arguments => self.items.add_arguments(item_ref(event), &piece)?,
            DeltaTarget::Part(kind) => {
                let is_new_part =
                    self.items.push_delta(item_ref(event), (kind, event.part_index()), &piece)?;
                match kind {
                    PartKind::Text => self.streamed.push_text(&piece, deltas),
                    PartKind::Summary | PartKind::Thought => {
                        self.streamed.push_reasoning(&piece, is_new_part, deltas);
                    }
                    PartKind::Refusal => {}
                }
            }
        }
        Ok(DecodeProgress::Content)
    }

    fn on_delta_done(
        &mut self,
        target: DeltaTarget,
        mut event: Event<'_>,
        deltas: &dyn DeltaSink,
    ) -> Result<DecodeProgress, Failure> {
        match target {
            DeltaTarget::Arguments => {
                let text = [&mut event.arguments, &mut event.input].map(std::mem::take);
                let text = text.into_iter().map(LooseValue::into_text).find(|text| !text.is_empty());
                self.items.set_arguments(item_ref(&event), text.unwrap_or_default())?;
            }
            DeltaTarget::Part(kind) => {
                let text = if kind == PartKind::Refusal { &event.refusal } else { &event.text };
                let growth =
                    self.items.set_text(item_ref(&event), (kind, event.part_index()), text.text())?;
                self.report_growth(&growth, deltas);
            }
        }
        Ok(DecodeProgress::Content)
    }

    fn on_part_done(&mut self, event: &Event<'_>, deltas: &dyn DeltaSink) -> Result<DecodeProgress, Failure> {
        let Some(part) = &event.part.0 else { return Ok(DecodeProgress::Quiet) };
        let kind = PartKind::from_name(part.r#type.text(), ItemKind::Message);
        let text = if kind == PartKind::Refusal { &part.refusal } else { &part.text };
        let growth = self.items.set_text(item_ref(event), (kind, event.part_index()), text.text())?;
        self.report_growth(&growth, deltas);
        Ok(DecodeProgress::Content)
    }

    fn report_growth(&mut self, growth: &ItemGrowth, deltas: &dyn DeltaSink) {
        self.streamed.push_reasoning(&growth.reasoning, growth.is_new, deltas);
        self.streamed.push_text(&growth.text, deltas);
    }

    /// Adds the final response.
    fn on_final_response(&mut self, ending: ResponseStatus, response: Response<'_>) -> Result<(), Failure> {
        let usage = response.usage.0.as_ref().map(usage_of);
        self.set_end(ending, response).map_err(|failure| failure.with_usage(usage))?;
        self.usage = usage;
        Ok(())
    }

    fn set_end(&mut self, ending: ResponseStatus, response: Response<'_>) -> Result<(), Failure> {
        let reason = response.incomplete_details.0.unwrap_or_default().reason;
        self.end = Some(match (ending, reason.text()) {
            (ResponseStatus::Completed, _) => FinishReason::Stop,
            (ResponseStatus::Incomplete, "" | "max_output_tokens" | "max_tokens" | "length") => {
                FinishReason::Length
            }
            (ResponseStatus::Incomplete, "content_filter") => FinishReason::Refused,
            (ResponseStatus::Incomplete, reason) => {
                return Err(incomplete_stream(&format!("the answer is incomplete: `{reason}`")));
            }
            (ResponseStatus::Cancelled, _) => {
                return Err(incomplete_stream("the provider ended the answer: `cancelled`"));
            }
            (ResponseStatus::Failed, _) if response.error == LooseValue::Absent => {
                return Err(Failure::new(FailureClass::Server, "the provider gave up: `failed`"));
            }
            (ResponseStatus::Failed, _) => return Err(failure_in_stream(&response.error.into_value())),
        });
        self.items.set_output(response.output.0.unwrap_or_default())
    }
}

fn item_ref<'a>(event: &'a Event<'_>) -> ItemRef<'a> {
    ItemRef { index: event.output_index.count(), id: event.item_id.text() }
}

fn usage_of(fields: &UsageFields<'_>) -> Usage {
    let mut counts = CountReader::default();
    let details = fields.input_tokens_details.0.as_ref();
    Usage {
        input_tokens: counts.read(&fields.input_tokens).unwrap_or(0),
        output_tokens: counts.read(&fields.output_tokens).unwrap_or(0),
        cached_tokens: details.and_then(|details| counts.read(&details.cached_tokens)).unwrap_or(0),
        cache_write_tokens: details.and_then(|details| counts.read(&details.cache_write_tokens)).unwrap_or(0),
        unlisted_reasoning_tokens: 0,
        is_invalid: counts.is_invalid,
    }
}

/// The failure of an event of type `error`. Some servers put it into the field `error`; others put `code` and `message`
/// into the event itself.
fn failure_of(event: Event<'_>) -> Failure {
    let error = match event.error {
        LooseValue::Absent => {
            json!({"code": event.code.into_value(), "message": event.message.into_value()})
        }
        error @ (LooseValue::Text(_) | LooseValue::Other(_)) => error.into_value(),
    };
    failure_in_stream(&error)
}
