//! Events that several readers get, each with the bytes that the first of them has made of it.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    encodings::Encodings,
    model::SessionEvent,
    port::{FeedCursor, FeedEntry},
};

/// An entry of the feed that readers share. A clone is the same entry.
#[derive(Debug, Clone)]
pub struct SharedEntry(Arc<(FeedEntry, Encodings<()>)>);

impl From<FeedEntry> for SharedEntry {
    fn from(entry: FeedEntry) -> Self {
        Self(Arc::new((entry, Encodings::default())))
    }
}

impl SharedEntry {
    /// The entry.
    pub fn entry(&self) -> &FeedEntry {
        &self.0.0
    }

    /// What `encode` makes of the entry. It is made once for all readers, so all of them must encode alike.
    pub fn encoded<E>(&self, encode: impl FnOnce(&FeedEntry) -> Result<Bytes, E>) -> Result<Bytes, E> {
        self.0.1.get(&(), || encode(self.entry()))
    }

    /// The place behind the entry.
    pub(super) fn cursor(&self) -> FeedCursor {
        self.entry().cursor
    }

    /// Number of the bytes that were made of the entry.
    pub(super) fn encoded_size(&self) -> usize {
        self.0.1.size()
    }
}

/// An event of a session. Watchers share what they make of events that follow from the same live one.
#[derive(Debug, Clone)]
pub struct SharedEvent {
    event: SessionEvent,
    /// Of the live event; `None` for an event from the journal.
    encodings: Option<Arc<Encodings<SessionEvent>>>,
}

impl SharedEvent {
    pub(super) const fn new(event: SessionEvent, encodings: Option<Arc<Encodings<SessionEvent>>>) -> Self {
        Self { event, encodings }
    }

    /// The event.
    pub const fn event(&self) -> &SessionEvent {
        &self.event
    }

    /// The event alone.
    pub fn into_event(self) -> SessionEvent {
        self.event
    }

    /// What `encode` makes of the event. It may be made once for all watchers, so all of them must encode alike.
    pub fn encoded<E>(&self, encode: impl FnOnce(&SessionEvent) -> Result<Bytes, E>) -> Result<Bytes, E> {
        match &self.encodings {
            Some(encodings) => encodings.get(&self.event, || encode(&self.event)),
            None => encode(&self.event),
        }
    }
}
