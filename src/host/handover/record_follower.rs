//! Follows records at the process that holds the store, whichever process that is: of one session, or of all.

use std::path::PathBuf;

use hermod_actors::{
    model::{Seq, SessionId},
    port::FeedCursor,
};

use super::owner_connection::{DecodedRecord, FollowedEvents, FollowedStep, HandoverError, OwnerConnection};
use crate::{host::error::HostError, view::EventIds};

/// Which records are followed, and behind which place.
#[derive(Debug, Clone, Copy)]
pub enum FollowedPlace {
    /// Those of a session, from this number on.
    Session(SessionId, Seq),
    /// Those of all sessions behind this place; `None` is the end at the first connection.
    All(Option<FeedCursor>),
}

/// A record that was followed.
#[derive(Debug)]
pub struct FollowedRecord {
    /// The place behind it in the feed; only the feed of all sessions has it.
    pub cursor: Option<FeedCursor>,
    /// Its ids.
    pub ids: EventIds,
    /// The record, or why it cannot be read.
    pub record: DecodedRecord,
}

/// Reads records, each once and in order.
#[derive(Debug)]
pub struct RecordFollower {
    state: PathBuf,
    place: FollowedPlace,
    events: Option<FollowedEvents>,
}

impl RecordFollower {
    /// Follows in this state directory, from `place` on.
    pub fn new(state: PathBuf, place: FollowedPlace) -> Self {
        Self { state, place, events: None }
    }

    /// The next record. Waits while no process holds the store.
    pub async fn next(&mut self) -> Result<FollowedRecord, HostError> {
        loop {
            let events = match &mut self.events {
                Some(events) => events,
                None => match self.connect().await {
                    Ok(events) => self.events.insert(events),
                    Err(HandoverError::Gone) => continue,
                    Err(HandoverError::Failed(error)) => return Err(error),
                    Err(HandoverError::Crowded(error)) => return Err(error.into()),
                },
            };
            match events.next().await {
                Ok(FollowedStep::Record(ids, record)) => {
                    if let FollowedPlace::Session(_, next) = &mut self.place {
                        *next = ids.seq + 1;
                    }
                    return Ok(FollowedRecord { cursor: None, ids, record });
                }
                Ok(FollowedStep::Fed(cursor, ids, record)) => {
                    self.place = FollowedPlace::All(Some(cursor));
                    return Ok(FollowedRecord { cursor: Some(cursor), ids, record });
                }
                // What is no record.
                Ok(
                    FollowedStep::Event(..)
                    | FollowedStep::Note(_)
                    | FollowedStep::Ended(_)
                    | FollowedStep::Parked(_),
                ) => {}
                Err(HandoverError::Gone) => self.events = None,
                Err(HandoverError::Failed(error)) => return Err(error),
                Err(HandoverError::Crowded(error)) => return Err(error.into()),
            }
        }
    }

    async fn connect(&self) -> Result<FollowedEvents, HandoverError> {
        let owner = OwnerConnection::wait(&self.state).await?;
        match self.place {
            FollowedPlace::Session(session, from) => owner.watch_session(session.to_string(), from).await,
            FollowedPlace::All(after) => owner.watch_all(after).await,
        }
    }
}
