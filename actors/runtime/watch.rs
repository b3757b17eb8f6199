use std::sync::Arc;

use tokio::sync::mpsc;

use crate::{
    hub::Hub,
    model::{Durable, Event, EventBody, Record, Seq, SessionId},
    persistence::replay,
    port::{Journal, ReadError},
};

/// What a watcher reads from.
#[derive(Debug)]
pub struct Watch {
    journal: Arc<dyn Journal>,
    hub: Arc<Hub>,
    session: SessionId,
    next: Seq,
    /// Records still to be handed out before the live ones; `None` when all of them were.
    replayed: Option<Vec<(Seq, Durable<Arc<Record>>)>>,
    live: mpsc::Receiver<Event>,
}

impl Watch {
    /// Watches from the record `from` on.
    pub(super) fn new(journal: Arc<dyn Journal>, hub: Arc<Hub>, session: SessionId, from: Seq) -> Self {
        let live = hub.watch(session);
        Self { journal, hub, session, next: from, replayed: Some(Vec::new()), live }
    }

    /// The next event; errors are those of the store. Never ends by itself.
    pub async fn next(&mut self) -> Result<Event, ReadError> {
        loop {
            if let Some(replayed) = &mut self.replayed {
                if let Some((seq, record)) = replayed.pop() {
                    self.next = seq + 1;
                    return Ok(Event { session: self.session, body: EventBody::Recorded { seq, record } });
                }
                let mut records = Vec::new();
                replay(&*self.journal, self.session, self.next, |seq, record| records.push((seq, record)))
                    .await?;
                records.reverse();
                self.replayed = (!records.is_empty()).then_some(records);
                continue;
            }
            match self.live.recv().await {
                Some(Event { body: EventBody::Recorded { seq, .. }, .. }) if seq < self.next => {}
                // A gap: what lies in it is on disk.
                Some(Event { body: EventBody::Recorded { seq, .. }, .. }) if seq > self.next => {
                    self.replayed = Some(Vec::new());
                }
                Some(event) => {
                    if let EventBody::Recorded { seq, .. } = &event.body {
                        self.next = seq + 1;
                    }
                    return Ok(event);
                }
                // Fell behind: listen anew, and read what was missed.
                None => {
                    self.live = self.hub.watch(self.session);
                    self.replayed = Some(Vec::new());
                }
            }
        }
    }
}
