use std::borrow::Cow;

use hermod_actors::{
    model::{AssistantMessage, Content, Message, ToolCall, ToolSpec},
    port::{Encoder, Head, Segments},
};
use serde_json::{Map, Value};

use super::{body::marker, head::head, parts::Part, write::Writer};
use crate::provider::{
    Cache,
    names::wire_name,
    wire::{Writing, unseen},
};

/// Characters that the name of a tool may have.
pub(super) const NAME: usize = 64;
/// Characters that are left of another vendor's id, so that it has 64 with the place behind it.
const ID: usize = 43;

/// Writes messages and tools.
#[derive(Debug, Clone)]
pub struct MessagesEncoder {
    writing: Writing,
    cache: Cache,
}

impl MessagesEncoder {
    /// An encoder for one model, whose vendor is to cache how requests begin.
    pub const fn new(writing: Writing, cache: Cache) -> Self {
        Self { writing, cache }
    }

    fn content(&self, content: &Content, to: &mut Writer<'_>) {
        to.text(&content.text);
        for image in &*content.images {
            if self.writing.sees {
                to.image(image);
            } else {
                to.text(&unseen(image));
            }
        }
    }

    fn said(&self, content: &Content, to: &mut Segments) {
        to.begin_turn();
        let mut message = Writer::begin(to, "user");
        self.content(content, &mut message);
        message.note(content.note.as_deref().unwrap_or_default());
        message.end();
    }

    /// An answer: what is kept of it at its place, and in between and behind it texts and calls.
    fn answered(&self, answer: &AssistantMessage, to: &mut Segments) {
        let place = to.len();
        let mut message = Writer::begin(to, "assistant");
        let mut text = answer.text.as_str();
        let mut calls = answer.calls.iter();
        for part in answer.parts_of(&self.writing.origin).iter().filter_map(Part::of) {
            match part {
                Part::Text(bytes) => {
                    // The text may have been changed since: then it is not parted here.
                    let (before, behind) = text.split_at_checked(bytes).unwrap_or((text, ""));
                    message.text(before);
                    text = behind;
                }
                Part::Call => calls.by_ref().take(1).for_each(|call| asked(call, place, &mut message)),
                Part::Kept(block) => message.kept(block),
            }
        }
        message.text(text);
        calls.for_each(|call| asked(call, place, &mut message));
        let thinks_first = message.end();
        // All answers of a turn count as one: only how the first begins matters to the vendor.
        if !answer.calls.is_empty() && !to.has_asked() {
            to.set_foreign(!thinks_first);
        }
    }

    /// The results of one answer's calls, in one message: the vendor wants them first, so notes stand behind all.
    fn returned(&self, results: &[Message], place: usize, to: &mut Segments) {
        let mut message = Writer::begin(to, "user");
        let mut notes = String::new();
        for result in results {
            if let Message::Tool { call, name: _, content } = result {
                message.result(&wire_id(call, place), |message| self.content(content, message));
                notes.push_str(content.note.as_deref().unwrap_or_default());
            }
        }
        message.note(&notes);
        message.end();
    }
}

impl Encoder for MessagesEncoder {
    fn head(&self, system: &str, tools: &[ToolSpec]) -> Head {
        head(system, tools, marker(self.cache).unwrap_or_default())
    }

    fn messages(&self, messages: &[Message], to: &mut Segments) {
        let mut asked_at = 0;
        for group in messages.chunk_by(|a, b| is_result(a) && is_result(b)) {
            match group {
                [Message::System(text)] => self.said(&Content::from(&**text), to),
                [Message::User(content)] => self.said(content, to),
                [Message::Assistant(answer)] => {
                    asked_at = to.len();
                    self.answered(answer, to);
                }
                results => self.returned(results, asked_at, to),
            }
        }
    }
}

const fn is_result(message: &Message) -> bool {
    matches!(message, Message::Tool { .. })
}

fn asked(call: &ToolCall, place: usize, to: &mut Writer<'_>) {
    // Arguments stand in the request as they came; what is no object, or has half a character in it, would spoil it whole.
    let is_readable = serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok();
    let input = if is_readable { call.arguments.trim() } else { "{}" };
    to.call(&wire_id(&call.id, place), &wire_name(&call.name, NAME), input);
}

/// The id by which the vendor knows a call. Its own are taken as they are. Others may have characters that it refuses, and
/// may come again in a later answer, which it refuses too: they get the place of the answer that asked.
fn wire_id(id: &str, place: usize) -> Cow<'_, str> {
    match wire_name(id, NAME) {
        Cow::Borrowed(id) if id.starts_with("toolu_") => Cow::Borrowed(id),
        Cow::Borrowed(_) | Cow::Owned(_) => Cow::Owned(format!("{}_{place}", wire_name(id, ID))),
    }
}
