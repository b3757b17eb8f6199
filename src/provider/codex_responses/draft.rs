use std::{borrow::Cow, sync::Arc};

use hermod_actors::{
    model::{Answer, AssistantMessage, Failure, FailureClass, Finish, Origin, Usage},
    port::Deltas,
};
use serde_json::json;

use super::{
    event::{Ending, Event, Response, Stream, UsageFields, What},
    items::{Growth, Items, Place},
    opaque,
    said::Said,
    slot::{Kind, MAX_PARTS, PARAGRAPH, PartKind, Slot, TooMany},
};
use crate::provider::{
    announcer::Announcer,
    failure::failure_in_stream,
    loose::{CountReader, Loose},
    reader::{self, Unread, opaque_state, senseless, with_json},
    wire::Progress,
};

/// Bytes that one answer may have.
const MAX_ANSWER: usize = 32 * 1024 * 1024;

/// An answer that comes in pieces.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    origin: Arc<Origin>,
    items: Items,
    announcer: Announcer,
    said: Said,
    /// How it ended, as soon as that is known.
    end: Option<End>,
    usage: Option<Usage>,
}

/// How an answer ended that is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Whole,
    Length,
    Refused,
}

impl reader::Draft for Draft {
    fn event(&mut self, data: &[u8], deltas: &dyn Deltas) -> Result<Progress, Failure> {
        with_json(data, &mut String::new(), |event| self.push(event, deltas))
            .unwrap_or_else(|error| Err(senseless(&error, data)))
    }

    fn document(&mut self, body: &[u8], _: &dyn Deltas) -> Result<bool, Unread> {
        let taken = with_json(body, &mut String::new(), |response: Response<'_>| {
            if response.output.0.is_none() && response.object.text() != "response" {
                return Ok(false);
            }
            let status = response.status.text();
            let ending = match Ending::named(status) {
                Some(ending) => ending,
                None if !status.is_empty() => return Err(cut(&format!("the answer is only `{status}`"))),
                None if response.error != Loose::Nothing => Ending::Failed,
                None => Ending::Completed,
            };
            self.conclude(ending, response).map(|()| true)
        });
        taken.map_err(Unread::Json)?.map_err(Unread::Failure)
    }

    fn is_whole(&self) -> bool {
        self.end.is_some()
    }

    fn finish(self, deltas: &dyn Deltas) -> Result<Answer, Failure> {
        let Some(end) = self.end else {
            return Err(cut("the stream ended without its final response"));
        };
        let items = self.items;
        if end == End::Whole && items.slots().iter().any(Slot::is_half_a_call) {
            return Err(cut("the answer ended in the middle of a tool call"));
        }
        let refusal = items.joined(Slot::refusal, "");
        let (raw, thought) = (items.joined(Slot::text, ""), items.joined(Slot::thought, PARAGRAPH));
        let (text, reasoning) = self.said.conclude(&raw, thought, deltas);
        let (calls, parts) = (items.calls(), opaque::parts(items.slots()));
        let finish = match end {
            _ if !refusal.is_empty() => Finish::Refused,
            End::Refused => Finish::Refused,
            End::Length => Finish::Length,
            End::Whole if calls.is_empty() => Finish::Stop,
            End::Whole => Finish::ToolCalls,
        };
        let text = if text.is_empty() { refusal } else { text };
        let opaque = opaque_state(self.origin, parts)?;
        let message = AssistantMessage { text, reasoning, calls, opaque };
        Ok(Answer { message, finish, usage: self.usage })
    }
}

impl Draft {
    /// An answer of `origin` that has not begun.
    pub(super) fn new(origin: Arc<Origin>) -> Self {
        Self {
            origin,
            items: Items::default(),
            announcer: Announcer::default(),
            said: Said::default(),
            end: None,
            usage: None,
        }
    }

    #[cfg(test)]
    pub(super) const fn items(&self) -> &Items {
        &self.items
    }

    /// Takes the next event.
    fn push(&mut self, event: Event<'_>, deltas: &dyn Deltas) -> Result<Progress, Failure> {
        let index = event.output_index.count();
        let progress = match event.what() {
            What::Error => return Err(failure_of(event)),
            What::End(ending) => {
                let response = event.response.0.unwrap_or_default();
                let ending = Ending::named(response.status.text()).unwrap_or(ending);
                self.conclude(ending, response)?;
                Progress::Done
            }
            What::ItemBegins => {
                self.items.begin(index, event.item.0.unwrap_or_default()).map_err(too_many)?;
                Progress::Content
            }
            What::ItemWhole => {
                let growth = self.items.whole(index, event.item.0.unwrap_or_default());
                self.show(&growth.map_err(too_many)?, deltas);
                self.announcer.announce(self.items.partial_calls(), deltas);
                Progress::Content
            }
            What::PartWhole => self.part(&event, deltas).map_err(too_many)?,
            What::Delta(stream) => self.delta(stream, &event, deltas).map_err(too_many)?,
            What::Whole(stream) => self.whole(stream, event, deltas).map_err(too_many)?,
            What::Goes => Progress::Content,
            What::Nothing => Progress::Quiet,
        };
        if self.items.size().max(self.said.size()) > MAX_ANSWER {
            return Err(cut(&format!("the answer is larger than {MAX_ANSWER} bytes")));
        }
        Ok(progress)
    }

    fn delta(&mut self, stream: Stream, event: &Event<'_>, deltas: &dyn Deltas) -> Result<Progress, TooMany> {
        let piece = match (&event.delta, stream) {
            (Loose::Text(piece), _) => Cow::Borrowed(&**piece),
            (Loose::Other(value), Stream::Arguments) => Cow::Owned(value.to_string()),
            (Loose::Nothing, _) | (Loose::Other(_), Stream::Part(_)) => Cow::default(),
        };
        if piece.is_empty() {
            return Ok(Progress::Quiet);
        }
        match stream {
            Stream::Arguments => self.items.add_arguments(place(event), &piece)?,
            Stream::Part(kind) => {
                let begins = self.items.add(place(event), (kind, event.part_index()), &piece)?;
                match kind {
                    PartKind::Text => self.said.text(&piece, deltas),
                    PartKind::Summary | PartKind::Thought => self.said.thought(&piece, begins, deltas),
                    PartKind::Refusal => {}
                }
            }
        }
        Ok(Progress::Content)
    }

    fn whole(
        &mut self,
        stream: Stream,
        mut event: Event<'_>,
        deltas: &dyn Deltas,
    ) -> Result<Progress, TooMany> {
        match stream {
            Stream::Arguments => {
                let told = [&mut event.arguments, &mut event.input].map(std::mem::take);
                let told = told.into_iter().map(Loose::into_text).find(|told| !told.is_empty());
                self.items.set_arguments(place(&event), told.unwrap_or_default())?;
            }
            Stream::Part(kind) => {
                let told = if kind == PartKind::Refusal { &event.refusal } else { &event.text };
                let growth = self.items.set(place(&event), (kind, event.part_index()), told.text())?;
                self.show(&growth, deltas);
            }
        }
        Ok(Progress::Content)
    }

    fn part(&mut self, event: &Event<'_>, deltas: &dyn Deltas) -> Result<Progress, TooMany> {
        let Some(part) = &event.part.0 else { return Ok(Progress::Quiet) };
        let kind = PartKind::named(part.r#type.text(), Kind::Message);
        let told = if kind == PartKind::Refusal { &part.refusal } else { &part.text };
        let growth = self.items.set(place(event), (kind, event.part_index()), told.text())?;
        self.show(&growth, deltas);
        Ok(Progress::Content)
    }

    fn show(&mut self, growth: &Growth, deltas: &dyn Deltas) {
        self.said.thought(&growth.thought, growth.begins, deltas);
        self.said.text(&growth.text, deltas);
    }

    /// Takes the final response.
    fn conclude(&mut self, ending: Ending, response: Response<'_>) -> Result<(), Failure> {
        let usage = response.usage.0.as_ref().map(usage_of);
        self.take_end(ending, response).map_err(|failure| failure.with_usage(usage))?;
        self.usage = usage;
        Ok(())
    }

    fn take_end(&mut self, ending: Ending, response: Response<'_>) -> Result<(), Failure> {
        let reason = response.incomplete_details.0.unwrap_or_default().reason;
        self.end = Some(match (ending, reason.text()) {
            (Ending::Completed, _) => End::Whole,
            (Ending::Incomplete, "" | "max_output_tokens" | "max_tokens" | "length") => End::Length,
            (Ending::Incomplete, "content_filter") => End::Refused,
            (Ending::Incomplete, reason) => {
                return Err(cut(&format!("the answer is incomplete: `{reason}`")));
            }
            (Ending::Cancelled, _) => return Err(cut("the provider ended the answer: `cancelled`")),
            (Ending::Failed, _) if response.error == Loose::Nothing => {
                return Err(Failure::new(FailureClass::Server, "the provider gave up: `failed`"));
            }
            (Ending::Failed, _) => return Err(failure_in_stream(&response.error.into_value())),
        });
        self.items.conclude(response.output.0.unwrap_or_default()).map_err(too_many)
    }
}

fn place<'a>(event: &'a Event<'_>) -> Place<'a> {
    Place { index: event.output_index.count(), id: event.item_id.text() }
}

fn usage_of(fields: &UsageFields<'_>) -> Usage {
    let mut counts = CountReader::default();
    let details = fields.input_tokens_details.0.as_ref();
    let mut usage = Usage {
        input_tokens: counts.read(&fields.input_tokens).unwrap_or(0),
        output_tokens: counts.read(&fields.output_tokens).unwrap_or(0),
        cached_tokens: details.and_then(|details| counts.read(&details.cached_tokens)).unwrap_or(0),
        cache_write_tokens: details.and_then(|details| counts.read(&details.cache_write_tokens)).unwrap_or(0),
        apart_tokens: 0,
        is_invalid: false,
    };
    usage.is_invalid = counts.is_invalid;
    usage
}

/// An event of type `error`: the error in a field, or its fields beside the type.
fn failure_of(event: Event<'_>) -> Failure {
    let error = match event.error {
        Loose::Nothing => {
            json!({"code": event.code.into_value(), "message": event.message.into_value()})
        }
        error @ (Loose::Text(_) | Loose::Other(_)) => error.into_value(),
    };
    failure_in_stream(&error)
}

#[allow(clippy::needless_pass_by_value)] // as `map_err` gives it
fn too_many(TooMany: TooMany) -> Failure {
    cut(&format!("the answer has more than {MAX_PARTS} items, or parts in one"))
}

fn cut(message: &str) -> Failure {
    Failure::new(FailureClass::Cut, message)
}
