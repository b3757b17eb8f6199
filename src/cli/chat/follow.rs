//! Follows the session of the conversation at the process that holds the store, over the end of that process.

use std::{path::PathBuf, time::Duration};

use hermod_actors::model::{Seq, SessionId};
use hermod_chat::{ChatEvent, Link, RecordReader, Tone, streamed};
use tokio::{sync::mpsc, time::sleep};

use super::conversation::{Told, connect};
use crate::host::{FollowedEvents, FollowedStep, HandoverError};

/// Pause after a service that could not be started.
const START_PAUSE: Duration = Duration::from_secs(3);
/// Pause after a connection that ended at once.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Tells the events of a session from its first record on, each record once. Ends if the conversation is not shown any
/// more, or if a repeat does not help.
pub(super) async fn follow(state: PathBuf, session: SessionId, told: mpsc::Sender<Told>) {
    let (mut reader, mut next) = (RecordReader::default(), 1);
    loop {
        let events = match connect(&state).await {
            Ok(owner) => {
                let up = ChatEvent::Link(Link::Up(owner.pid));
                if told.send(Told::Event(up)).await.is_err() {
                    return;
                }
                owner.watch_session(session.to_string(), next).await
            }
            Err(error) => {
                // A service that cannot start now may start later, or by hand.
                let lost = ChatEvent::Link(Link::Lost(error.to_string()));
                if told.send(Told::Event(lost)).await.is_err() {
                    return;
                }
                sleep(START_PAUSE).await;
                continue;
            }
        };
        let ended = match events {
            Ok(events) => follow_events(events, (&mut reader, &mut next), &told).await,
            Err(error) => Err(error),
        };
        let event = match ended {
            Ok(()) => return,
            Err(HandoverError::Gone | HandoverError::Crowded(_)) => {
                ChatEvent::Link(Link::Lost("the service has ended".to_owned()))
            }
            Err(HandoverError::Failed(error)) => {
                let text = format!("the conversation cannot be followed: {error}");
                let _ = told.send(Told::Event(ChatEvent::Notice(Tone::Bad, text))).await;
                return;
            }
        };
        if told.send(Told::Event(event)).await.is_err() {
            return;
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// Returns `Ok` if the conversation is not shown any more.
async fn follow_events(
    mut events: FollowedEvents,
    (reader, next): (&mut RecordReader, &mut Seq),
    told: &mpsc::Sender<Told>,
) -> Result<(), HandoverError> {
    loop {
        let step = events.next().await?;
        let events = match step {
            FollowedStep::Record(ids, record) => {
                *next = ids.seq + 1;
                match record {
                    Ok(record) => reader.record(&record),
                    Err(reason) => {
                        let text = format!("record {} cannot be read: {reason}", ids.seq);
                        vec![ChatEvent::Notice(Tone::Bad, text)]
                    }
                }
            }
            FollowedStep::Event(_, body) => streamed(&body).into_iter().collect(),
            FollowedStep::Note(text) => vec![ChatEvent::Notice(Tone::Action, text)],
            FollowedStep::Fed(..) | FollowedStep::Ended(_) | FollowedStep::Parked(_) => Vec::new(),
        };
        for event in events {
            if told.send(Told::Event(event)).await.is_err() {
                return Ok(());
            }
        }
    }
}
