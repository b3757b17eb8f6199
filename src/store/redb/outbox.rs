//! The outbox: pending messages by target and number, and those that are delivered or dead. A number is never used twice,
//! and grows with the order of the appends.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use hermod_actors::{
    model::{Delivery, DeliveryQuery, DeliveryState, OutboxMessage, StoredDelivery, Timestamp},
    port::KEPT_DELIVERIES,
};
use memchr::memmem;
use redb::{ReadableTable as _, ReadableTableMetadata as _};

use super::{
    batch::{self, Batch, json},
    read::{self, SnapshotReader},
    tables::{DEAD_LETTERS, DELIVERED, OUTBOX},
};

/// Most unreadable rows that are logged.
const MAX_LOGGED: usize = 1_000;
/// Fewer rows are not sorted before the last one is read.
const MIN_SORTED: usize = 64;

impl Batch<'_> {
    /// Adds a message behind all others of its target.
    pub(super) fn add_message(&mut self, message: OutboxMessage) -> batch::Result<()> {
        self.add_delivery(&Delivery::new(message))
    }

    fn add_delivery(&mut self, delivery: &Delivery) -> batch::Result<()> {
        let number = self.next_row_number();
        self.tables.outbox()?.insert((&*delivery.message.target, number), &*json(delivery))?;
        Ok(())
    }

    /// Replaces a pending delivery; false if there is none.
    pub(super) fn update_delivery(&mut self, update: &StoredDelivery) -> batch::Result<bool> {
        let StoredDelivery { number, delivery } = update;
        let (key, value) = ((&*delivery.message.target, *number), json(delivery));
        if self.tables.outbox()?.get(key)?.is_none() {
            return Ok(false);
        }
        self.dirty = true;
        match delivery.state {
            DeliveryState::Pending => drop(self.tables.outbox()?.insert(key, &*value)?),
            DeliveryState::Delivered => {
                self.tables.outbox()?.remove(key)?;
                let delivered = self.tables.delivered()?;
                delivered.insert(number, &*value)?;
                while delivered.len()? > KEPT_DELIVERIES {
                    delivered.pop_first()?;
                }
            }
            DeliveryState::Dead => {
                self.tables.outbox()?.remove(key)?;
                self.tables.dead_letters()?.insert(number, &*value)?;
            }
        }
        Ok(true)
    }

    /// Makes a dead delivery pending again; false if there is none, or if it cannot be read.
    pub(super) fn retry_delivery(&mut self, number: u64, now: Timestamp) -> batch::Result<bool> {
        let dead = {
            let stored = self.tables.dead_letters()?.get(number)?;
            stored.and_then(|stored| serde_json::from_slice::<Delivery>(stored.value()).ok())
        };
        let Some(dead) = dead else { return Ok(false) };
        self.dirty = true;
        self.tables.dead_letters()?.remove(number)?;
        self.add_delivery(&dead.retried(now))?;
        Ok(true)
    }
}

impl SnapshotReader {
    pub(super) fn deliveries(&mut self, query: &DeliveryQuery) -> read::Result<Vec<StoredDelivery>> {
        let mut found = match query.state {
            DeliveryState::Pending => return self.pending_deliveries(query),
            DeliveryState::Delivered => self.ended_deliveries(DELIVERED, query)?,
            DeliveryState::Dead => self.ended_deliveries(DEAD_LETTERS, query)?,
        };
        found.reverse();
        Ok(found)
    }

    /// The oldest ones.
    fn pending_deliveries(&mut self, query: &DeliveryQuery) -> read::Result<Vec<StoredDelivery>> {
        let table = self.open(OUTBOX)?;
        let rows = match &query.target {
            Some(target) => table.range((&**target, 0)..=(&**target, u64::MAX))?,
            None => table.range::<(&str, u64)>(..)?,
        };
        // Rows of others are not parsed: a target that is down may have very many.
        let run = query.run.map(|run| run.to_string());
        let run = run.as_ref().map(|run| memmem::Finder::new(run.as_bytes()));
        let mut found = Vec::new();
        for row in rows {
            let (key, value) = row?;
            let ((target, number), value) = (key.value(), value.value());
            self.spend(value)?;
            if !query.wants_target(target) || run.as_ref().is_some_and(|run| run.find(value).is_none()) {
                continue;
            }
            found.extend(wanted(number, value, query));
            if query.target.is_some() && found.len() >= query.max {
                break;
            }
            if found.len() >= query.max.saturating_mul(2).max(MIN_SORTED) {
                keep_oldest(&mut found, query.max);
            }
        }
        // Without a target the rows come target by target.
        keep_oldest(&mut found, query.max);
        Ok(found)
    }

    /// The newest ones, the last first.
    fn ended_deliveries(
        &mut self,
        table: super::tables::Definition<u64, &'static [u8]>,
        query: &DeliveryQuery,
    ) -> read::Result<Vec<StoredDelivery>> {
        let mut found = Vec::new();
        for row in self.open(table)?.range::<u64>(..)?.rev() {
            let (number, value) = row?;
            self.spend(value.value())?;
            found.extend(wanted(number.value(), value.value(), query));
            if found.len() >= query.max {
                break;
            }
        }
        Ok(found)
    }
}

fn keep_oldest(found: &mut Vec<StoredDelivery>, max: usize) {
    found.sort_by_key(|delivery| delivery.number);
    found.truncate(max);
}

/// The stored delivery if the query wants it. One that cannot be read holds up no others; the check of the store reports it.
fn wanted(number: u64, stored: &[u8], query: &DeliveryQuery) -> Option<StoredDelivery> {
    match serde_json::from_slice::<Delivery>(stored) {
        Ok(delivery) => query.wants(&delivery.message).then_some(StoredDelivery { number, delivery }),
        Err(error) => {
            if is_new_damage(number) {
                tracing::error!(number, %error, "a row of the outbox cannot be read");
            }
            None
        }
    }
}

/// True if the damage of this row is not logged yet: each look at the outbox finds it again.
fn is_new_damage(number: u64) -> bool {
    static LOGGED: Mutex<BTreeSet<u64>> = Mutex::new(BTreeSet::new());
    let mut logged = LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    logged.len() < MAX_LOGGED && logged.insert(number)
}
