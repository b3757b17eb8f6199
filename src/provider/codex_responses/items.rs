//! Assembles the output items of a `codex_responses` answer from events: finds the item that an event concerns, and
//! adds to it. One item is in `slot.rs`.

use hermod_actors::model::{Failure, ToolCall};

use super::{
    event::Item,
    slot::{ArgumentsState, ItemKind, ItemSlot, MAX_PARTS, PartKind, SLOT_OVERHEAD_BYTES, too_many_parts},
};
use crate::provider::{announcer::PartialCall, ids::make_distinct, loose::LooseObject};

/// The output items of an answer, assembled from events. Vendors identify an item by position, by id, by both, or not
/// at all.
#[derive(Debug, Clone, Default)]
pub(super) struct Items {
    slots: Vec<ItemSlot>,
    size: usize,
}

/// The item that an event concerns.
#[derive(Debug, Clone, Copy)]
pub(super) struct ItemRef<'a> {
    /// The position in the output.
    pub(super) index: Option<u64>,
    /// The item's id. Some vendors give an item a new id with every event, so the position takes precedence.
    pub(super) id: &'a str,
}

/// The text and reasoning that an event added to an item.
#[derive(Debug, Default)]
pub(super) struct ItemGrowth {
    pub(super) text: String,
    /// The added reasoning; it starts a new paragraph if `is_new`.
    pub(super) reasoning: String,
    pub(super) is_new: bool,
}

impl Items {
    /// The counted size in bytes.
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    pub(super) fn slots(&self) -> &[ItemSlot] {
        &self.slots
    }

    /// The calls as received so far, in the order of their items' starts.
    pub(super) fn partial_calls(&self) -> impl Iterator<Item = PartialCall<'_>> {
        self.slots.iter().filter(|slot| slot.kind == ItemKind::Call).map(|slot| PartialCall {
            name: &slot.name,
            arguments: &slot.arguments,
            is_closed: slot.is_complete && slot.arguments_state == ArgumentsState::Complete,
        })
    }

    fn find(&self, item_ref: ItemRef<'_>, kind: ItemKind) -> Option<usize> {
        let last = |is_it: &dyn Fn(&ItemSlot) -> bool| {
            self.slots.iter().rposition(|slot| slot.kind == kind && is_it(slot))
        };
        let has_id = |slot: &ItemSlot| !item_ref.id.is_empty() && slot.id == item_ref.id;
        // A complete item stays what it is, even if another one is reported at its position.
        let is_other = |slot: &ItemSlot| {
            slot.is_complete && !slot.id.is_empty() && !item_ref.id.is_empty() && slot.id != item_ref.id
        };
        let has_index =
            |slot: &ItemSlot| item_ref.index.is_some() && slot.index == item_ref.index && !is_other(slot);
        // Without a position, an unknown id identifies nothing, so the last open item is used.
        let is_open = |slot: &ItemSlot| item_ref.index.is_none() && !slot.is_complete;
        last(&|slot| has_index(slot) && has_id(slot))
            .or_else(|| last(&has_index))
            .or_else(|| last(&has_id))
            .or_else(|| last(&is_open))
    }

    fn push(&mut self, slot: ItemSlot) -> Result<usize, Failure> {
        if self.slots.len() == MAX_PARTS {
            return Err(too_many_parts());
        }
        self.size += slot.size();
        self.slots.push(slot);
        Ok(self.slots.len() - 1)
    }

    fn find_or_push(&mut self, item_ref: ItemRef<'_>, kind: ItemKind) -> Result<usize, Failure> {
        match self.find(item_ref, kind) {
            Some(at) => Ok(at),
            None => self.push(ItemSlot::new(kind, item_ref.index, item_ref.id.to_owned())),
        }
    }

    /// Sets an item from its complete form; returns the added text and reasoning.
    fn fill_slot(&mut self, at: usize, item: Item<'_>) -> Result<ItemGrowth, Failure> {
        let slot = &mut self.slots[at];
        let (size, text, thought) = (slot.size(), slot.text(), slot.reasoning());
        slot.fill(item)?;
        self.size = self.size - size + slot.size();
        let added = |before: &str, after: &str| after.strip_prefix(before).unwrap_or_default().to_owned();
        Ok(ItemGrowth {
            is_new: thought.is_empty(),
            text: added(&text, &slot.text()),
            reasoning: added(&thought, &slot.reasoning()),
        })
    }

    /// Starts an item. Its content is ignored: it comes again, in pieces or whole.
    pub(super) fn start_item(&mut self, index: Option<u64>, mut item: Item<'_>) -> Result<(), Failure> {
        let slot = ItemSlot::of(&item, index);
        let existing = self.slots.iter().rposition(|old| {
            (old.kind, old.index) == (slot.kind, index) && !slot.id.is_empty() && old.id == slot.id
        });
        let at = match existing {
            Some(at) => at,
            None => self.push(slot)?,
        };
        let slot = &mut self.slots[at];
        let size = slot.size();
        slot.set_start_fields(&mut item);
        self.size = self.size - size + slot.size();
        Ok(())
    }

    /// Adds a complete item.
    pub(super) fn complete_item(
        &mut self,
        index: Option<u64>,
        item: Item<'_>,
    ) -> Result<ItemGrowth, Failure> {
        let new_slot = ItemSlot::of(&item, index);
        let found = self.find(ItemRef { index, id: &new_slot.id }, new_slot.kind);
        let at = match found {
            Some(at) => at,
            None => self.push(new_slot)?,
        };
        self.fill_slot(at, item)
    }

    /// Adds a piece of a part; true if the part starts with it.
    pub(super) fn push_delta(
        &mut self,
        item_ref: ItemRef<'_>,
        part: (PartKind, u64),
        piece: &str,
    ) -> Result<bool, Failure> {
        let at = self.find_or_push(item_ref, part.0.owner())?;
        let text = self.slots[at].part(part.0, part.1)?;
        let is_new_part = text.is_empty();
        text.push_str(piece);
        self.size += piece.len() + if is_new_part { SLOT_OVERHEAD_BYTES } else { 0 };
        Ok(is_new_part)
    }

    /// Sets the whole text of a part.
    pub(super) fn set_text(
        &mut self,
        item_ref: ItemRef<'_>,
        part: (PartKind, u64),
        whole: &str,
    ) -> Result<ItemGrowth, Failure> {
        if whole.is_empty() {
            return Ok(ItemGrowth::default());
        }
        let (kind, index) = part;
        let at = self.find_or_push(item_ref, kind.owner())?;
        let slot = &mut self.slots[at];
        let before = std::mem::replace(slot.part(kind, index)?, whole.to_owned());
        self.size =
            self.size - before.len() + whole.len() + if before.is_empty() { SLOT_OVERHEAD_BYTES } else { 0 };
        let rest = whole.strip_prefix(before.as_str()).filter(|_| slot.ends_with(part));
        let added = rest.unwrap_or_default().to_owned();
        let nothing = ItemGrowth { is_new: before.is_empty(), ..ItemGrowth::default() };
        Ok(match kind {
            PartKind::Text => ItemGrowth { text: added, ..nothing },
            PartKind::Summary | PartKind::Thought => ItemGrowth { reasoning: added, ..nothing },
            PartKind::Refusal => nothing,
        })
    }

    /// Adds a piece of a call's arguments.
    pub(super) fn add_arguments(&mut self, item_ref: ItemRef<'_>, piece: &str) -> Result<(), Failure> {
        let at = self.find_or_push(item_ref, ItemKind::Call)?;
        self.slots[at].arguments.push_str(piece);
        self.size += piece.len();
        Ok(())
    }

    /// Sets the whole arguments of a call.
    pub(super) fn set_arguments(&mut self, item_ref: ItemRef<'_>, whole: String) -> Result<(), Failure> {
        if whole.is_empty() {
            if let Some(at) = self.find(item_ref, ItemKind::Call) {
                self.slots[at].arguments_state = ArgumentsState::Complete;
            }
            return Ok(());
        }
        let at = self.find_or_push(item_ref, ItemKind::Call)?;
        self.slots[at].arguments_state = ArgumentsState::Complete;
        let before = std::mem::replace(&mut self.slots[at].arguments, whole).len();
        self.size = self.size - before + self.slots[at].arguments.len();
        Ok(())
    }

    /// Sets the output of the final response. This list decides which items exist, because the vendor keeps and bills
    /// these. Fields that an item omits keep their streamed values. Some vendors leave the list empty.
    pub(super) fn set_output(&mut self, output: Vec<LooseObject<Item<'_>>>) -> Result<(), Failure> {
        if output.is_empty() {
            return Ok(());
        }
        let mut streamed: Vec<Option<ItemSlot>> = std::mem::take(self).slots.into_iter().map(Some).collect();
        for (n, item) in (0..).zip(output) {
            let Some(item) = item.0 else { continue };
            let new_slot = ItemSlot::of(&item, Some(n));
            let find = |is_it: &dyn Fn(&ItemSlot) -> bool| {
                streamed.iter().position(|slot| {
                    slot.as_ref().is_some_and(|slot| slot.kind == new_slot.kind && is_it(slot))
                })
            };
            let found = find(&|slot| !new_slot.id.is_empty() && slot.id == new_slot.id)
                .or_else(|| find(&|slot| slot.index == Some(n)));
            let mut slot = found.and_then(|at| streamed[at].take()).unwrap_or(new_slot);
            slot.fill(item)?;
            self.push(slot)?;
        }
        Ok(())
    }

    /// The non-empty results of `text_of` for all items, joined by `between`.
    pub(super) fn joined(&self, text_of: fn(&ItemSlot) -> String, between: &str) -> String {
        let texts = self.slots.iter().map(text_of).filter(|text| !text.is_empty());
        texts.collect::<Vec<_>>().join(between)
    }

    /// The calls in their order, with distinct ids.
    pub(super) fn calls(&self) -> Vec<ToolCall> {
        let call = |slot: &ItemSlot| ToolCall {
            id: if slot.call_id.is_empty() { &slot.id } else { &slot.call_id }.clone(),
            name: slot.name.clone(),
            arguments: slot.arguments.clone(),
        };
        let mut calls: Vec<ToolCall> = self.slots.iter().filter(|slot| slot.is_call()).map(call).collect();
        make_distinct(calls.iter_mut().map(|call| &mut call.id));
        calls
    }
}
