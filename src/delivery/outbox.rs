//! The outbox of a store, as the workers use it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Weak},
    time::Duration,
};

use hermod_actors::{
    RunError, Runtime,
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
        let id = &update.delivery.message.id;
        repeat_write(id, replaced, || async {
            let runtime = self.runtime.upgrade().ok_or(RuntimeGone)?;
            Ok(runtime.update_delivery(update.clone()).await.map(drop))
        })
        .await
    }
}

/// Repeats a write until it succeeds, after growing pauses, or until `replaced` fires.
async fn repeat_write<W>(
    id: &str,
    replaced: &CancellationToken,
    mut write: impl FnMut() -> W,
) -> Result<(), RuntimeGone>
where
    W: Future<Output = Result<Result<(), RunError>, RuntimeGone>>,
{
    let mut pause = WRITE_PAUSE;
    loop {
        let Err(error) = write().await? else { return Ok(()) };
        tracing::error!(%id, %error, ?pause, "the state of a message cannot be written now");
        if replaced.run_until_cancelled(sleep(pause)).await.is_none() {
            return Ok(());
        }
        pause = (pause * 2).min(LONGEST_WRITE_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::ready};

    use tokio::time::Instant;

    use super::*;

    fn failed() -> RunError {
        RunError::Read(ReadError::Unavailable("input/output error".into()))
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_written_is_written_later() {
        let (writes, replaced) = (Cell::new(0_u32), CancellationToken::new());
        let write = || {
            writes.set(writes.get() + 1);
            ready(Ok(if writes.get() < 10 { Err(failed()) } else { Ok(()) }))
        };
        let start = Instant::now();
        assert!(repeat_write("m", &replaced, write).await.is_ok());
        // 1 + 2 + 4 + 8 + 16 + 32 + 60 + 60 + 60 seconds.
        assert_eq!((writes.get(), start.elapsed().as_secs()), (10, 243));
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_is_replaced_and_one_without_a_runtime_end() {
        let replaced = CancellationToken::new();
        replaced.cancel();
        assert!(repeat_write("m", &replaced, || ready(Ok(Err(failed())))).await.is_ok());
        // A write that succeeds is made all the same.
        let writes = Cell::new(0);
        let write = || {
            writes.set(writes.get() + 1);
            ready(Ok(Ok(())))
        };
        assert!(repeat_write("m", &replaced, write).await.is_ok());
        assert_eq!(writes.get(), 1);
        assert!(repeat_write("m", &replaced, || ready(Err(RuntimeGone))).await.is_err());
    }
}
