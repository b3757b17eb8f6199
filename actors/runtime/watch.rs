//! Watch: the events of one session, first from its journal, then live from the hub.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    encodings::Encodings,
    hub::{HubDelta, HubEvent, LiveEvent, Subscription},
    model::{Durable, EventBody, Record, RunRow, RunState, Seq, SessionEvent, SessionId},
    persistence::replay_page,
    port::{Journal, ReadError},
    runtime::{event_projection::EventProjection, shared_events::SharedEvent},
    supervisor::RuntimeParts,
};

type EventEncodings = Arc<Encodings<SessionEvent>>;

/// A watcher of one session.
#[derive(Debug)]
pub struct Watch {
    parts: Arc<RuntimeParts>,
    session: SessionId,
    /// The first record that the watcher wants.
    from: Seq,
    /// The next record to project; `None` until the first needed record is known.
    next: Option<Seq>,
    projection: EventProjection,
    /// Events that are returned first.
    ready: VecDeque<SharedEvent>,
    /// Records to project before the live ones. Empty: the next page is to be read. `None`: there are no more, so live
    /// events follow.
    replayed: Option<VecDeque<(Seq, Durable<Arc<Record>>)>>,
    live: Subscription,
}

impl Watch {
    /// Watches the session, beginning with the record `from`.
    pub(super) fn new(parts: Arc<RuntimeParts>, session: SessionId, from: Seq) -> Self {
        let live = parts.hub.watch(session);
        Self {
            parts,
            session,
            from: from.max(1),
            next: None,
            projection: EventProjection::default(),
            ready: VecDeque::new(),
            replayed: Some(VecDeque::new()),
            live,
        }
    }

    /// The next event; errors are those of the store. Never ends by itself, and may be cancelled at any time.
    pub async fn next(&mut self) -> Result<SessionEvent, ReadError> {
        self.next_shared().await.map(SharedEvent::into_event)
    }

    /// The next event, as of [`Watch::next`], for watchers that encode it.
    pub async fn next_shared(&mut self) -> Result<SharedEvent, ReadError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            let next = match self.next {
                Some(next) => next,
                None => *self.next.insert(first_needed(&*self.parts.journal, self.session, self.from).await?),
            };
            if let Some(replayed) = &mut self.replayed {
                if let Some((seq, record)) = replayed.pop_front() {
                    self.push_record(seq, record, None);
                    continue;
                }
                let records = replay_page(&*self.parts.journal, self.session, next).await?;
                self.replayed = (!records.is_empty()).then_some(records);
                if self.replayed.is_none() {
                    // What was streamed before this watcher came, or fell behind.
                    for delta in self.parts.hub.streamed(self.session) {
                        self.push_delta(&delta, next, None);
                    }
                }
                continue;
            }
            let Some(LiveEvent { event, encodings }) = self.live.receiver.recv().await else {
                // Fell behind: subscribes again and reads the missed records.
                self.live = self.parts.hub.watch(self.session);
                self.replayed = Some(VecDeque::new());
                continue;
            };
            match event {
                HubEvent::Recorded(seq, _) if seq < next => {}
                // A gap: the missing records are on disk.
                HubEvent::Recorded(seq, _) if seq > next => self.replayed = Some(VecDeque::new()),
                HubEvent::Recorded(seq, record) => self.push_record(seq, record, Some(encodings)),
                HubEvent::Delta(delta) => self.push_delta(&delta, next, Some(encodings)),
            }
        }
    }

    /// Queues the event of a delta; `next` is the number of the next record.
    fn push_delta(&mut self, delta: &HubDelta, next: Seq, encodings: Option<EventEncodings>) {
        let events = self.projection.project_delta(delta).filter(|_| next >= self.from);
        let event = |(run, body)| SessionEvent { session: self.session, run: Some(run), seq: next - 1, body };
        self.ready.extend(events.map(|projected| SharedEvent::new(event(projected), encodings)));
    }

    /// Queues the record's events; the last of them is the record itself.
    fn push_record(&mut self, seq: Seq, record: Durable<Arc<Record>>, encodings: Option<EventEncodings>) {
        self.next = Some(seq + 1);
        let events = self.projection.project(&record);
        if seq < self.from {
            return;
        }
        let (session, run) = (self.session, record.body.run());
        let derived = events.into_iter().map(|(run, body)| (Some(run), seq - 1, body));
        let events = derived.chain([(run, seq, EventBody::Recorded { record })]);
        self.ready.extend(events.map(|(run, seq, body)| {
            SharedEvent::new(SessionEvent { session, run, seq, body }, encodings.clone())
        }));
    }
}

/// The record with which the projection has to begin, so that the events from `from` on are right. It is the start of
/// the earliest run that was unfinished at `from`; without such a run it is `from`.
async fn first_needed(journal: &dyn Journal, session: SessionId, from: Seq) -> Result<Seq, ReadError> {
    if from == 1 {
        return Ok(from);
    }
    let rows = journal.rows().runs(Some(session), usize::MAX).await?;
    let is_open = |row: &&RunRow| row.first < from && (row.state != RunState::Ended || row.last >= from);
    Ok(rows.iter().filter(is_open).map(|row| row.first).min().unwrap_or(from))
}
