use hermod_actors::model::ToolCall;

use super::{
    event::Item,
    slot::{Kind, MAX_PARTS, PartKind, SLOT_BYTES, Slot, Told, TooMany},
};
use crate::provider::{announcer::PartialCall, ids::make_distinct, loose::Maybe};

/// The output items of an answer, put together from events that name them by place, by id, by both or not at all.
#[derive(Debug, Clone, Default)]
pub(super) struct Items {
    slots: Vec<Slot>,
    size: usize,
}

/// Which item an event is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// The place in the output.
    pub(super) index: Option<u64>,
    /// The item's id; some vendors give an item another one with every event, so the place goes first.
    pub(super) id: &'a str,
}

/// What of an item has become longer.
#[derive(Debug, Default)]
pub(super) struct Growth {
    pub(super) text: String,
    /// Of the reasoning; a new paragraph begins if `begins`.
    pub(super) thought: String,
    pub(super) begins: bool,
}

impl Items {
    /// Bytes that they hold.
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The calls as far as they have come, in the order in which their items began.
    pub(super) fn partial_calls(&self) -> impl Iterator<Item = PartialCall<'_>> {
        self.slots.iter().filter(|slot| slot.kind == Kind::Call).map(|slot| PartialCall {
            name: &slot.name,
            arguments: &slot.arguments,
            is_closed: slot.whole && slot.told == Told::Whole,
        })
    }

    fn find(&self, place: Place<'_>, kind: Kind) -> Option<usize> {
        let last = |is_it: &dyn Fn(&Slot) -> bool| {
            self.slots.iter().rposition(|slot| slot.kind == kind && is_it(slot))
        };
        let has_id = |slot: &Slot| !place.id.is_empty() && slot.id == place.id;
        // An item that is whole stays what it is, also if another one is said to be at its place.
        let is_other =
            |slot: &Slot| slot.whole && !slot.id.is_empty() && !place.id.is_empty() && slot.id != place.id;
        let has_index = |slot: &Slot| place.index.is_some() && slot.index == place.index && !is_other(slot);
        // Without a place, an id that is not known says nothing either.
        let is_open = |slot: &Slot| place.index.is_none() && !slot.whole;
        last(&|slot| has_index(slot) && has_id(slot))
            .or_else(|| last(&has_index))
            .or_else(|| last(&has_id))
            .or_else(|| last(&is_open))
    }

    fn push(&mut self, slot: Slot) -> Result<usize, TooMany> {
        if self.slots.len() == MAX_PARTS {
            return Err(TooMany);
        }
        self.size += slot.size();
        self.slots.push(slot);
        Ok(self.slots.len() - 1)
    }

    fn find_or_push(&mut self, place: Place<'_>, kind: Kind) -> Result<usize, TooMany> {
        match self.find(place, kind) {
            Some(at) => Ok(at),
            None => self.push(Slot::new(kind, place.index, place.id.to_owned())),
        }
    }

    /// Takes a whole item; tells what of it has become longer.
    fn fill(&mut self, at: usize, item: Item<'_>) -> Result<Growth, TooMany> {
        let slot = &mut self.slots[at];
        let (size, text, thought) = (slot.size(), slot.text(), slot.thought());
        slot.fill(item)?;
        self.size = self.size - size + slot.size();
        let longer = |before: &str, after: &str| after.strip_prefix(before).unwrap_or_default().to_owned();
        Ok(Growth {
            begins: thought.is_empty(),
            text: longer(&text, &slot.text()),
            thought: longer(&thought, &slot.thought()),
        })
    }

    /// An item begins. Its content is not taken: it comes again, piece by piece or whole.
    pub(super) fn begin(&mut self, index: Option<u64>, mut item: Item<'_>) -> Result<(), TooMany> {
        let slot = Slot::of(&item, index);
        let again = self.slots.iter().rposition(|old| {
            (old.kind, old.index) == (slot.kind, index) && !slot.id.is_empty() && old.id == slot.id
        });
        let at = match again {
            Some(at) => at,
            None => self.push(slot)?,
        };
        let slot = &mut self.slots[at];
        let size = slot.size();
        slot.name_it(&mut item);
        self.size = self.size - size + slot.size();
        Ok(())
    }

    /// An item is there as a whole.
    pub(super) fn whole(&mut self, index: Option<u64>, item: Item<'_>) -> Result<Growth, TooMany> {
        let made = Slot::of(&item, index);
        let found = self.find(Place { index, id: &made.id }, made.kind);
        let at = match found {
            Some(at) => at,
            None => self.push(made)?,
        };
        self.fill(at, item)
    }

    /// A piece of a part; tells whether the part begins with it.
    pub(super) fn add(
        &mut self,
        place: Place<'_>,
        part: (PartKind, u64),
        piece: &str,
    ) -> Result<bool, TooMany> {
        let at = self.find_or_push(place, part.0.owner())?;
        let text = self.slots[at].part(part.0, part.1)?;
        let begins = text.is_empty();
        text.push_str(piece);
        self.size += piece.len() + if begins { SLOT_BYTES } else { 0 };
        Ok(begins)
    }

    /// The whole text of a part.
    pub(super) fn set(
        &mut self,
        place: Place<'_>,
        part: (PartKind, u64),
        whole: &str,
    ) -> Result<Growth, TooMany> {
        if whole.is_empty() {
            return Ok(Growth::default());
        }
        let (kind, index) = part;
        let at = self.find_or_push(place, kind.owner())?;
        let slot = &mut self.slots[at];
        let before = std::mem::replace(slot.part(kind, index)?, whole.to_owned());
        self.size = self.size - before.len() + whole.len() + if before.is_empty() { SLOT_BYTES } else { 0 };
        let rest = whole.strip_prefix(before.as_str()).filter(|_| slot.ends_with(part));
        let longer = rest.unwrap_or_default().to_owned();
        let nothing = Growth { begins: before.is_empty(), ..Growth::default() };
        Ok(match kind {
            PartKind::Text => Growth { text: longer, ..nothing },
            PartKind::Summary | PartKind::Thought => Growth { thought: longer, ..nothing },
            PartKind::Refusal => nothing,
        })
    }

    /// A piece of a call's arguments.
    pub(super) fn add_arguments(&mut self, place: Place<'_>, piece: &str) -> Result<(), TooMany> {
        let at = self.find_or_push(place, Kind::Call)?;
        self.slots[at].arguments.push_str(piece);
        self.size += piece.len();
        Ok(())
    }

    /// All of a call's arguments.
    pub(super) fn set_arguments(&mut self, place: Place<'_>, whole: String) -> Result<(), TooMany> {
        if whole.is_empty() {
            if let Some(at) = self.find(place, Kind::Call) {
                self.slots[at].told = Told::Whole;
            }
            return Ok(());
        }
        let at = self.find_or_push(place, Kind::Call)?;
        self.slots[at].told = Told::Whole;
        let before = std::mem::replace(&mut self.slots[at].arguments, whole).len();
        self.size = self.size - before + self.slots[at].arguments.len();
        Ok(())
    }

    /// The output of the final response: it decides which items there are, because it is what the vendor keeps and
    /// charges for. An item that it only mentions keeps what has streamed in. Some vendors leave the list empty.
    pub(super) fn conclude(&mut self, output: Vec<Maybe<Item<'_>>>) -> Result<(), TooMany> {
        if output.is_empty() {
            return Ok(());
        }
        let mut streamed: Vec<Option<Slot>> = std::mem::take(self).slots.into_iter().map(Some).collect();
        for (n, item) in (0..).zip(output) {
            let Some(item) = item.0 else { continue };
            let made = Slot::of(&item, Some(n));
            let find = |is_it: &dyn Fn(&Slot) -> bool| {
                streamed
                    .iter()
                    .position(|slot| slot.as_ref().is_some_and(|slot| slot.kind == made.kind && is_it(slot)))
            };
            let found = find(&|slot| !made.id.is_empty() && slot.id == made.id)
                .or_else(|| find(&|slot| slot.index == Some(n)));
            let mut slot = found.and_then(|at| streamed[at].take()).unwrap_or(made);
            slot.fill(item)?;
            self.push(slot)?;
        }
        Ok(())
    }

    /// What `of` takes from each item that has it.
    pub(super) fn joined(&self, of: fn(&Slot) -> String, between: &str) -> String {
        let texts = self.slots.iter().map(of).filter(|text| !text.is_empty());
        texts.collect::<Vec<_>>().join(between)
    }

    /// The calls in their order, each with an id of its own.
    pub(super) fn calls(&self) -> Vec<ToolCall> {
        let call = |slot: &Slot| ToolCall {
            id: if slot.call_id.is_empty() { &slot.id } else { &slot.call_id }.clone(),
            name: slot.name.clone(),
            arguments: slot.arguments.clone(),
        };
        let mut calls: Vec<ToolCall> = self.slots.iter().filter(|slot| slot.is_call()).map(call).collect();
        make_distinct(calls.iter_mut().map(|call| &mut call.id));
        calls
    }
}
