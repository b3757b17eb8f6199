//! Follows the session of the conversation at the process that holds the store, over the end of that process.

use std::{sync::Arc, time::Duration};

use hermod_actors::model::SessionId;
use hermod_chat::{ChatEvent, Link, RecordReader, Tone, streamed};
use tokio::{sync::mpsc, time::sleep};

use super::conversation::ConversationUpdate;
use crate::{
    cli::shared_owner::{self, SessionStep, SharedOwner},
    control::RequestErrorKind,
    host::HostError,
};

/// Pause after a service that could not be started.
const START_PAUSE: Duration = Duration::from_secs(3);

/// Tells the events of a session from its first record on, each record once. Ends if the conversation is not shown any
/// more, or if a repeat does not help.
pub(super) async fn follow(
    owner: Arc<SharedOwner>,
    session: SessionId,
    told: mpsc::Sender<ConversationUpdate>,
) {
    let (mut reader, mut next) = (RecordReader::default(), 1);
    loop {
        let mut steps = shared_owner::follow(Arc::clone(&owner), session.to_string(), next);
        while let Some(step) = steps.recv().await {
            let (events, goes_on) = match step {
                Ok(SessionStep::Record(seq, record)) => {
                    next = seq + 1;
                    let events = match record {
                        Ok(record) => reader.record(&record),
                        Err(reason) => {
                            vec![ChatEvent::Notice(
                                Tone::Bad,
                                format!("record {seq} cannot be read: {reason}"),
                            )]
                        }
                    };
                    (events, true)
                }
                Ok(SessionStep::Event(body)) => (streamed(&body).into_iter().collect(), true),
                Ok(SessionStep::Note(text)) => (vec![ChatEvent::Notice(Tone::Action, text)], true),
                Ok(SessionStep::Joined(pid)) => (vec![ChatEvent::Link(Link::Up(pid))], true),
                Ok(SessionStep::Lost) => {
                    (vec![ChatEvent::Link(Link::Lost("the service has ended".to_owned()))], true)
                }
                Err(error) if is_final(&error) => {
                    let text = format!("the conversation cannot be followed: {error}");
                    (vec![ChatEvent::Notice(Tone::Bad, text)], false)
                }
                // A service that cannot start now may start later, or by hand.
                Err(error) => (vec![ChatEvent::Link(Link::Lost(error.to_string()))], true),
            };
            for event in events {
                if told.send(ConversationUpdate::Event(event)).await.is_err() {
                    return;
                }
            }
            if !goes_on {
                return;
            }
        }
        sleep(START_PAUSE).await;
    }
}

/// Whether the request was refused, so that a repeat would be too.
fn is_final(error: &HostError) -> bool {
    matches!(error, HostError::Request(error) if error.kind == RequestErrorKind::Usage)
}
