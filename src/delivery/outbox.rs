//! The outbox of a store, as the workers use it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use hermod_actors::{
    Runtime,
    model::{Delivery, DeliveryQuery, DeliveryState, RunId, StoredDelivery},
    port::{Journal, ReadError},
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::outbox_journal::OutboxSignal;

/// Most messages of one run that are waited for, and most that are given up at once.
const MAX_AT_ONCE: usize = 100;
/// The first pause after a state could not be written; it doubles.
const WRITE_PAUSE: Duration = Duration::from_secs(1);
/// The longest one.
const LONGEST_WRITE_PAUSE: Duration = Duration::from_mins(1);

/// The outbox of a store.
#[derive(Debug, Clone)]
pub(super) struct Outbox {
    pub(super) journal: Arc<dyn Journal>,
    pub(super) runtime: Weak<Runtime>,
    pub(super) signal: OutboxSignal,
}

/// The runtime has ended, and with it the deliveries of this process.
pub(super) struct RuntimeGone;

impl Outbox {
    /// The oldest message of a target.
    pub(super) async fn head(&self, target: &Arc<str>) -> Result<Option<StoredDelivery>, ReadError> {
        let query = DeliveryQuery {
            target: Some(Arc::clone(target)),
            ..DeliveryQuery::of_state(DeliveryState::Pending, 1)
        };
        Ok(self.journal.rows().deliveries(query).await?.into_iter().next())
    }

    /// The messages of a run that wait.
    pub(super) async fn of_run(&self, run: RunId) -> Result<Vec<Delivery>, ReadError> {
        let query =
            DeliveryQuery { run: Some(run), ..DeliveryQuery::of_state(DeliveryState::Pending, MAX_AT_ONCE) };
        let pending = self.journal.rows().deliveries(query).await?;
        Ok(pending.into_iter().map(|stored| stored.delivery).collect())
    }

    /// The oldest messages that wait for other targets than these.
    pub(super) async fn without(
        &self,
        targets: &Arc<BTreeSet<Arc<str>>>,
    ) -> Result<Vec<StoredDelivery>, ReadError> {
        let query = DeliveryQuery {
            except: Some(Arc::clone(targets)),
            ..DeliveryQuery::of_state(DeliveryState::Pending, MAX_AT_ONCE)
        };
        self.journal.rows().deliveries(query).await
    }

    /// Writes the state of a delivery. What cannot be written now is written later: the attempt is not repeated for it,
    /// unless `replaced` fires meanwhile.
    pub(super) async fn write(
        &self,
        update: &StoredDelivery,
        replaced: &CancellationToken,
    ) -> Result<(), RuntimeGone> {
        let mut pause = WRITE_PAUSE;
        loop {
            let runtime = self.runtime.upgrade().ok_or(RuntimeGone)?;
            let Err(error) = runtime.update_delivery(update.clone()).await else { return Ok(()) };
            drop(runtime);
            let id = &update.delivery.message.id;
            tracing::error!(%id, %error, ?pause, "the state of a message cannot be written now");
            if replaced.run_until_cancelled(sleep(pause)).await.is_none() {
                return Ok(());
            }
            pause = (pause * 2).min(LONGEST_WRITE_PAUSE);
        }
    }
}
