//! Counts messages to targets outside, from the writes that are committed. The store would have to read all of them for
//! each scrape.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use hermod_actors::{
    model::{DeliveryQuery, DeliveryState, OutboxMessage, StoredDelivery, Timestamp},
    port::{IndexRow, ReadError, RowReader, WriteOp},
};

/// Most messages of a state that are known at the start.
const MAX_KNOWN: usize = 100_000;

/// The messages to targets. A clone has the same ones.
#[derive(Debug, Clone, Default)]
pub(crate) struct OutboxCounts(Arc<Mutex<CountedOutbox>>);

#[derive(Debug, Default)]
struct CountedOutbox {
    targets: BTreeMap<Arc<str>, TargetCounts>,
    /// The targets and ids of dead messages, by their numbers.
    dead: HashMap<u64, (Arc<str>, Arc<str>)>,
}

/// The messages to one target.
#[derive(Debug, Clone, Default)]
pub(super) struct TargetCounts {
    /// When each message that is pending was written, by its id.
    pending: HashMap<Arc<str>, Timestamp>,
    /// Dead messages.
    pub(super) dead: u64,
    /// Attempts of this process that have ended.
    pub(super) attempts: u64,
    /// Messages that this process has delivered.
    pub(super) delivered: u64,
    /// Messages that this process has given up.
    pub(super) given_up: u64,
}

impl TargetCounts {
    /// Number of messages that are pending.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// When the oldest of them was written.
    pub(super) fn oldest(&self) -> Option<Timestamp> {
        self.pending.values().min().copied()
    }
}

/// What a write changes.
#[derive(Debug)]
pub(super) enum OutboxChange {
    Written(Arc<str>, Arc<str>, Timestamp),
    Attempted(Box<StoredDelivery>),
    Retried(u64, Timestamp),
}

impl OutboxChange {
    /// The changes of a write.
    pub(super) fn of(write: &WriteOp) -> Vec<Self> {
        match write {
            WriteOp::Append(append) => {
                let written = append.index.iter().filter_map(|row| match row {
                    IndexRow::Outbox(message) => Some(Self::written(message)),
                    IndexRow::Session(_)
                    | IndexRow::Run(_)
                    | IndexRow::Model(_)
                    | IndexRow::Message(_)
                    | IndexRow::Occurrence(_) => None,
                });
                written.collect()
            }
            WriteOp::Schedule(write) => write.notices.iter().map(Self::written).collect(),
            WriteOp::UpdateDelivery(update) => vec![Self::Attempted(update.clone())],
            WriteOp::RetryDelivery(number, at) => vec![Self::Retried(*number, *at)],
            WriteOp::Open(_) | WriteOp::Close(..) | WriteOp::Deliver(..) | WriteOp::RemoveSchedule(..) => {
                Vec::new()
            }
        }
    }

    fn written(message: &OutboxMessage) -> Self {
        Self::Written(Arc::clone(&message.target), Arc::clone(&message.id), message.created_at)
    }
}

impl OutboxCounts {
    /// Takes over the messages that are pending or dead at the start.
    pub(crate) async fn read(&self, rows: &dyn RowReader) -> Result<(), ReadError> {
        for state in [DeliveryState::Pending, DeliveryState::Dead] {
            let found = rows.deliveries(DeliveryQuery::of_state(state, MAX_KNOWN)).await?;
            found.iter().for_each(|stored| self.lock().place(stored));
        }
        Ok(())
    }

    /// Takes over what committed writes have changed.
    pub(super) fn take(&self, changes: impl IntoIterator<Item = OutboxChange>) {
        let mut counted = self.lock();
        changes.into_iter().for_each(|change| counted.take(change));
    }

    /// The counts by target.
    pub(super) fn targets(&self) -> BTreeMap<Arc<str>, TargetCounts> {
        self.lock().targets.clone()
    }

    /// Ignores poisoning: no update panics.
    fn lock(&self) -> MutexGuard<'_, CountedOutbox> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CountedOutbox {
    fn take(&mut self, change: OutboxChange) {
        match change {
            OutboxChange::Written(target, id, at) => {
                self.targets.entry(target).or_default().pending.insert(id, at);
            }
            OutboxChange::Attempted(stored) => {
                let counts = self.targets.entry(Arc::clone(&stored.delivery.message.target)).or_default();
                counts.attempts += 1;
                counts.delivered += u64::from(stored.delivery.state == DeliveryState::Delivered);
                counts.given_up += u64::from(stored.delivery.state == DeliveryState::Dead);
                self.place(&stored);
            }
            OutboxChange::Retried(number, at) => {
                if let Some((target, id)) = self.dead.remove(&number) {
                    let counts = self.targets.entry(target).or_default();
                    counts.dead -= 1;
                    counts.pending.insert(id, at);
                }
            }
        }
    }

    /// The delivery is in its state, and in no other.
    fn place(&mut self, StoredDelivery { number, delivery }: &StoredDelivery) {
        let message = &delivery.message;
        let counts = self.targets.entry(Arc::clone(&message.target)).or_default();
        counts.pending.remove(&message.id);
        match delivery.state {
            DeliveryState::Pending => {
                counts.pending.insert(Arc::clone(&message.id), delivery.since);
            }
            DeliveryState::Dead => {
                let place = (Arc::clone(&message.target), Arc::clone(&message.id));
                counts.dead += u64::from(self.dead.insert(*number, place).is_none());
            }
            DeliveryState::Delivered => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{CallId, Delivery, OutboxContent, OutboxMessage, RunId, SessionId};

    use super::*;

    fn at(number: u64) -> Timestamp {
        Timestamp(i64::try_from(number).unwrap())
    }

    fn stored(number: u64, state: DeliveryState) -> Box<StoredDelivery> {
        let call = CallId { run: RunId::from_bits(1), iteration: 1, n: 1 };
        let message = OutboxMessage {
            id: format!("m{number}").into(),
            target: "ops".into(),
            session: SessionId::from_bits(1),
            run: call.run,
            created_at: at(number),
            content: OutboxContent::Message { call, text: "x".into(), attachments: Arc::default() },
        };
        Box::new(StoredDelivery { number, delivery: Delivery { state, ..Delivery::new(message) } })
    }

    #[test]
    fn each_message_is_in_one_state() {
        let counts = OutboxCounts::default();
        let check = |changes: Vec<OutboxChange>, expect: (usize, u64, u64, Option<i64>)| {
            counts.take(changes);
            let ops = counts.targets().remove("ops").unwrap_or_default();
            let oldest = ops.oldest().map(|at| at.0);
            assert_eq!((ops.pending(), ops.dead, ops.attempts, oldest), expect);
        };
        let written = |n: u64| OutboxChange::Written("ops".into(), format!("m{n}").into(), at(n));
        let attempted = |n: u64, state| OutboxChange::Attempted(stored(n, state));
        check(vec![], (0, 0, 0, None));
        check(vec![written(1), written(2)], (2, 0, 0, Some(1)));
        check(vec![attempted(1, DeliveryState::Pending)], (2, 0, 1, Some(1)));
        check(vec![attempted(1, DeliveryState::Dead)], (1, 1, 2, Some(2)));
        check(vec![attempted(2, DeliveryState::Delivered)], (0, 1, 3, None));
        check(vec![OutboxChange::Retried(1, Timestamp(7))], (1, 0, 3, Some(7)));
        check(vec![OutboxChange::Retried(1, Timestamp(8))], (1, 0, 3, Some(7)));
        let ops = counts.targets().remove("ops").unwrap();
        assert_eq!((ops.delivered, ops.given_up), (1, 1));
    }
}
