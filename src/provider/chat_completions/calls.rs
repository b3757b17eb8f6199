//! Assembles the tool calls of a `chat_completions` answer from streamed pieces.

use hermod_actors::model::{Failure, ToolCall};
use serde_json::Value;

use super::{
    chunk::{CallDelta, Function},
    echoed::retained_bytes,
};
use crate::provider::{
    announcer::PartialCall,
    ids::make_distinct,
    loose::{LooseObject, LooseValue, is_object},
    reader::incomplete_stream,
};

/// Maximum number of calls in one answer.
const MAX_CALLS: usize = 1_024;

/// The tool calls of an answer, assembled from pieces. Vendors differ in how they number, name and repeat the pieces.
#[derive(Debug, Clone, Default)]
pub(super) struct CallSlots {
    slots: Vec<CallSlot>,
}

#[derive(Debug, Clone)]
struct CallSlot {
    /// The vendor's index, if there is one.
    index: Option<u64>,
    call: ToolCall,
    /// The `extra_content` that the vendor expects back with the call.
    extra: Option<Value>,
}

impl CallSlot {
    /// True if it has a name or arguments. Some vendors fill the field with blank calls.
    fn is_call(&self) -> bool {
        !self.call.name.is_empty() || !self.call.arguments.is_empty()
    }
}

impl CallSlots {
    /// Adds a piece of a call; returns the number of added bytes.
    pub(super) fn push(&mut self, delta: CallDelta<'_>) -> Result<usize, Failure> {
        let function = delta.function.0.or(delta.custom.0).unwrap_or_default();
        let id = delta.id.into_text();
        let at = self.find_or_add(delta.index.count(), &id, &function)?;
        let mut size = 0;
        if delta.extra_content != LooseValue::Absent {
            let extra = delta.extra_content.into_value();
            size += retained_bytes(&extra);
            self.slots[at].extra = Some(extra);
        }
        let call = &mut self.slots[at].call;
        if call.id.is_empty() {
            size += retained_bytes(&id);
            call.id = id;
        }
        // The name comes once, in pieces, or complete with every piece.
        let name = function.name.text();
        if call.name != name {
            call.name.push_str(name);
        }
        let arguments =
            if function.arguments == LooseValue::Absent { function.input } else { function.arguments };
        let before = call.arguments.len();
        match arguments {
            LooseValue::Absent => {}
            LooseValue::Text(text) => call.arguments.push_str(&text),
            LooseValue::Other(value) => call.arguments.push_str(&value.to_string()),
        }
        Ok(size + name.len() + call.arguments.len() - before)
    }

    /// Adds a piece of the single call in the old field `function_call`.
    pub(super) fn push_function(&mut self, function: Function<'_>) -> Result<usize, Failure> {
        let index = LooseValue::Other(0.into());
        self.push(CallDelta { index, function: LooseObject(Some(function)), ..CallDelta::default() })
    }

    /// The position of the call that a piece belongs to.
    fn find_or_add(
        &mut self,
        index: Option<u64>,
        id: &str,
        function: &Function<'_>,
    ) -> Result<usize, Failure> {
        let has_name = !function.name.text().is_empty();
        let found = match index {
            Some(_) => self.slots.iter().rposition(|slot| slot.index == index),
            None if !id.is_empty() => self.slots.iter().rposition(|slot| slot.call.id == id),
            // A name without index and id starts another call.
            None if has_name => None,
            None => self.slots.len().checked_sub(1),
        };
        // Some vendors give every call the index 0: a new id with a name starts another call.
        let is_another = |at: usize| {
            let known_id = &self.slots[at].call.id;
            has_name && !id.is_empty() && !known_id.is_empty() && known_id != id
        };
        if let Some(at) = found.filter(|at| !is_another(*at)) {
            return Ok(at);
        }
        if self.slots.len() == MAX_CALLS {
            return Err(incomplete_stream(&format!("the answer asks for more than {MAX_CALLS} tool calls")));
        }
        let call = ToolCall { id: String::new(), name: String::new(), arguments: String::new() };
        self.slots.push(CallSlot { index, call, extra: None });
        Ok(self.slots.len() - 1)
    }

    /// The calls as received so far. All but the last are closed, and the last if `is_last_closed`.
    pub(super) fn partial(&self, is_last_closed: bool) -> impl Iterator<Item = PartialCall<'_>> {
        let last = self.slots.len().saturating_sub(1);
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_call());
        slots.map(move |(at, CallSlot { call, .. })| PartialCall {
            name: &call.name,
            arguments: &call.arguments,
            is_closed: at < last || is_last_closed,
        })
    }

    /// True if the arguments of all calls are complete. Empty arguments may not have started, so they do not count.
    pub(super) fn look_complete(&self) -> bool {
        self.slots.iter().filter(|slot| slot.is_call()).all(|slot| is_object(&slot.call.arguments))
    }

    /// The calls in the order of their first pieces, with distinct ids, and the extra contents by the number of their
    /// call. A slot without name and arguments is dropped: some vendors fill the field with blanks.
    pub(super) fn finish(mut self) -> (Vec<ToolCall>, Vec<(usize, Value)>) {
        self.slots.retain(CallSlot::is_call);
        let extra = |(n, slot): (usize, &mut CallSlot)| slot.extra.take().map(|extra| (n, extra));
        let extras = self.slots.iter_mut().enumerate().filter_map(extra).collect();
        let mut calls: Vec<ToolCall> = self.slots.into_iter().map(|slot| slot.call).collect();
        make_distinct(calls.iter_mut().map(|call| &mut call.id));
        (calls, extras)
    }
}
