use hermod_actors::model::ToolCall;
use serde_json::Value;

use super::{
    chunk::{CallDelta, Function},
    kept::cost,
};
use crate::provider::{
    announcer::PartialCall,
    ids::make_distinct,
    loose::{Loose, Maybe, is_object},
};

/// Calls that one answer may ask for.
pub(super) const MAX_CALLS: usize = 1_024;

/// The tool calls of an answer, put together from pieces that vendors number, name and repeat each in their own way.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls {
    slots: Vec<Slot>,
}

#[derive(Debug, Clone)]
struct Slot {
    /// The vendor's index; `None` if it gave none.
    index: Option<u64>,
    call: ToolCall,
    /// What the vendor wants to see again with it.
    extra: Option<Value>,
}

impl Slot {
    /// Whether it is more than the blanks that some vendors fill the field with.
    fn is_call(&self) -> bool {
        !self.call.name.is_empty() || !self.call.arguments.is_empty()
    }
}

/// More calls than [`MAX_CALLS`].
#[derive(Debug)]
pub(super) struct TooMany;

impl Calls {
    /// Takes a piece of a call; tells how many bytes it added.
    pub(super) fn push(&mut self, delta: CallDelta<'_>) -> Result<usize, TooMany> {
        let function = delta.function.0.or(delta.custom.0).unwrap_or_default();
        let id = delta.id.into_text();
        let at = self.slot(delta.index.count(), &id, &function)?;
        let mut size = 0;
        if delta.extra_content != Loose::Nothing {
            let extra = delta.extra_content.into_value();
            size += cost(&extra);
            self.slots[at].extra = Some(extra);
        }
        let call = &mut self.slots[at].call;
        if call.id.is_empty() {
            size += cost(&id);
            call.id = id;
        }
        // The name comes whole, in pieces, or whole with every piece.
        let name = function.name.text();
        if call.name != name {
            call.name.push_str(name);
        }
        let arguments =
            if function.arguments == Loose::Nothing { function.input } else { function.arguments };
        let before = call.arguments.len();
        match arguments {
            Loose::Nothing => {}
            Loose::Text(text) => call.arguments.push_str(&text),
            Loose::Other(value) => call.arguments.push_str(&value.to_string()),
        }
        Ok(size + name.len() + call.arguments.len() - before)
    }

    /// Takes a piece of the one call that the old field `function_call` can carry.
    pub(super) fn push_function(&mut self, function: Function<'_>) -> Result<usize, TooMany> {
        let index = Loose::Other(0.into());
        self.push(CallDelta { index, function: Maybe(Some(function)), ..CallDelta::default() })
    }

    /// The place of the call that a piece belongs to.
    fn slot(&mut self, index: Option<u64>, id: &str, function: &Function<'_>) -> Result<usize, TooMany> {
        let named = !function.name.text().is_empty();
        let found = match index {
            Some(_) => self.slots.iter().rposition(|slot| slot.index == index),
            None if !id.is_empty() => self.slots.iter().rposition(|slot| slot.call.id == id),
            // A call that is named again without index and id is another one.
            None if named => None,
            None => self.slots.len().checked_sub(1),
        };
        // Some vendors number every call 0: a new id with a name is another call.
        let another = |at: usize| {
            let had = &self.slots[at].call.id;
            named && !id.is_empty() && !had.is_empty() && had != id
        };
        if let Some(at) = found.filter(|at| !another(*at)) {
            return Ok(at);
        }
        if self.slots.len() == MAX_CALLS {
            return Err(TooMany);
        }
        let call = ToolCall { id: String::new(), name: String::new(), arguments: String::new() };
        self.slots.push(Slot { index, call, extra: None });
        Ok(self.slots.len() - 1)
    }

    /// The calls as far as they have come. All but the last are closed, and the last if `is_last_closed`.
    pub(super) fn partial(&self, is_last_closed: bool) -> impl Iterator<Item = PartialCall<'_>> {
        let last = self.slots.len().saturating_sub(1);
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_call());
        slots.map(move |(at, Slot { call, .. })| PartialCall {
            name: &call.name,
            arguments: &call.arguments,
            is_closed: at < last || is_last_closed,
        })
    }

    /// Whether the arguments of all calls have come whole. Empty ones may be those of which nothing has come.
    pub(super) fn look_whole(&self) -> bool {
        self.slots.iter().filter(|slot| slot.is_call()).all(|slot| is_object(&slot.call.arguments))
    }

    /// The calls in the order in which they began, each with an id of its own. What has neither name nor arguments is
    /// no call: some vendors fill the field with blanks. Beside them, by number, what some came with.
    pub(super) fn finish(mut self) -> (Vec<ToolCall>, Vec<(usize, Value)>) {
        self.slots.retain(Slot::is_call);
        let extra = |(n, slot): (usize, &mut Slot)| slot.extra.take().map(|extra| (n, extra));
        let extras = self.slots.iter_mut().enumerate().filter_map(extra).collect();
        let mut calls: Vec<ToolCall> = self.slots.into_iter().map(|slot| slot.call).collect();
        make_distinct(calls.iter_mut().map(|call| &mut call.id));
        (calls, extras)
    }
}
