//! The workers that deliver: one for each target, so that a slow target holds up no other. A worker makes one attempt at
//! a time, for the oldest message of its target.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use hermod_actors::{
    RunError, Runtime,
    model::{Delivery, DeliveryQuery, DeliveryState, RunId, StoredDelivery},
    port::{Journal, ReadError},
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    outbox_journal::OutboxSignal,
    target::{Target, Targets},
    verdict::after_attempt,
};
use crate::clock;

/// Pause after a read of the outbox has failed.
const READ_PAUSE: Duration = Duration::from_secs(1);
/// The longest sleep before a planned attempt: the wall clock may be set meanwhile.
const MAX_SLEEP: Duration = Duration::from_secs(30);
/// Pause between two looks at the outbox while a process waits for its own deliveries.
const POLL: Duration = Duration::from_millis(50);
/// Most messages of a target that are looked at for those of one run.
const MAX_OWN: usize = 1_000;

/// Where messages for standard output go.
pub trait LineOutput: Debug + Send + Sync {
    /// Writes a line, and flushes it.
    fn write_line(&self, line: &str) -> Result<(), String>;
}

/// Delivers the messages of a store until it is stopped. Dropping it stops it too.
#[derive(Debug)]
pub struct Deliverer {
    outbox: Outbox,
    workers: Mutex<BTreeMap<Arc<str>, Worker>>,
}

#[derive(Debug)]
struct Worker {
    /// Lets the worker end after its present attempt.
    replaced: CancellationToken,
    task: JoinHandle<()>,
}

/// The outbox of a store.
#[derive(Debug, Clone)]
struct Outbox {
    journal: Arc<dyn Journal>,
    runtime: Weak<Runtime>,
    signal: OutboxSignal,
}

/// Why a worker ends.
struct RuntimeGone;

impl Deliverer {
    /// Starts a worker for each target. `signal` is that of the journal of `runtime`.
    pub fn start(
        (journal, signal): (Arc<dyn Journal>, OutboxSignal),
        runtime: &Arc<Runtime>,
        targets: &Targets,
    ) -> Self {
        let outbox = Outbox { journal, runtime: Arc::downgrade(runtime), signal };
        let deliverer = Self { outbox, workers: Mutex::default() };
        deliverer.exchange(targets);
        deliverer
    }

    /// Delivers to these targets from now on. Attempts under way end as they are: of one target there is never more than
    /// one.
    pub fn exchange(&self, targets: &Targets) {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut earlier = std::mem::take(&mut *workers);
        earlier.values().for_each(|worker| worker.replaced.cancel());
        for (name, target) in &targets.ready {
            let before = earlier.remove(name).map(|worker| worker.task);
            let (outbox, replaced) = (self.outbox.clone(), CancellationToken::new());
            let work = TargetWorker { name: Arc::clone(name), target: Arc::clone(target), outbox };
            let token = replaced.clone();
            let task = tokio::spawn(async move {
                if let Some(before) = before {
                    // A worker that has panicked is replaced all the same.
                    let (Ok(()) | Err(_)) = before.await;
                }
                work.run(&token).await;
            });
            workers.insert(Arc::clone(name), Worker { replaced, task });
        }
    }

    /// Waits until each message of this run is delivered, is dead, or has failed once; at most `limit`. Returns the messages
    /// of the run that are pending still.
    pub async fn wait_for_run(&self, run: RunId, limit: Duration) -> Result<Vec<Delivery>, ReadError> {
        let settled = async {
            loop {
                let pending = self.pending_of(run).await?;
                let is_served = |delivery: &Delivery| {
                    let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
                    workers.contains_key(&delivery.message.target)
                };
                if pending.iter().all(|delivery| delivery.attempts > 0 || !is_served(delivery)) {
                    return Ok(pending);
                }
                sleep(POLL).await;
            }
        };
        match timeout(limit, settled).await {
            Ok(pending) => pending,
            Err(_) => self.pending_of(run).await,
        }
    }

    async fn pending_of(&self, run: RunId) -> Result<Vec<Delivery>, ReadError> {
        let query = DeliveryQuery::of_state(DeliveryState::Pending, MAX_OWN);
        let pending = self.outbox.journal.rows().deliveries(query).await?;
        let of_run = pending.into_iter().map(|stored| stored.delivery);
        Ok(of_run.filter(|delivery| delivery.message.run == run).collect())
    }

    /// Ends the workers. An attempt under way is dropped: it is repeated later, with the same id.
    pub fn stop(&self) {
        let workers = std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        workers.values().for_each(|worker| worker.task.abort());
    }
}

impl Drop for Deliverer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Delivers to one target.
struct TargetWorker {
    name: Arc<str>,
    target: Arc<Target>,
    outbox: Outbox,
}

impl TargetWorker {
    async fn run(self, replaced: &CancellationToken) {
        let mut changed = self.outbox.signal.subscribe();
        loop {
            // Before the read, so that no message comes unseen between the two.
            changed.mark_unchanged();
            let step = tokio::select! {
                biased;
                () = replaced.cancelled() => return,
                head = self.due_message(&mut changed) => head,
            };
            match step {
                Ok(Some(stored)) => {
                    if let Err(RuntimeGone) = self.attempt(stored).await {
                        return;
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(to = &*self.name, %error, "the outbox cannot be read now");
                    sleep(READ_PAUSE).await;
                }
            }
        }
    }

    /// The oldest message of the target if it may be tried now. Otherwise waits for that time or for new messages, and
    /// returns `None`: the outbox is read again then.
    async fn due_message(
        &self,
        changed: &mut watch::Receiver<()>,
    ) -> Result<Option<StoredDelivery>, ReadError> {
        let query = DeliveryQuery {
            target: Some(Arc::clone(&self.name)),
            ..DeliveryQuery::of_state(DeliveryState::Pending, 1)
        };
        let head = self.outbox.journal.rows().deliveries(query).await?.into_iter().next();
        let Some(stored) = head else {
            // The worker has a sender itself, so this does not fail.
            let (Ok(()) | Err(_)) = changed.changed().await;
            return Ok(None);
        };
        let wait = stored.delivery.next_at.map_or(0, |next_at| next_at.ms_since(clock::now()));
        if wait == 0 {
            return Ok(Some(stored));
        }
        sleep(Duration::from_millis(wait).min(MAX_SLEEP)).await;
        Ok(None)
    }

    /// Makes an attempt and writes its result.
    async fn attempt(&self, StoredDelivery { number, delivery }: StoredDelivery) -> Result<(), RuntimeGone> {
        let sent = self.target.send(&delivery.message).await;
        let [chance] = clock::random_bytes::<1>();
        let after = after_attempt(delivery, sent, &self.target.limits, (clock::now(), chance));
        let (id, state) = (Arc::clone(&after.message.id), after.state);
        match (state, &after.error) {
            (DeliveryState::Dead, why) => {
                tracing::error!(to = &*self.name, %id, ?why, "a message is a dead letter");
            }
            (DeliveryState::Pending, why) => {
                tracing::warn!(to = &*self.name, %id, ?why, "a message is not delivered yet");
            }
            (DeliveryState::Delivered, _) => {
                tracing::debug!(to = &*self.name, %id, "a message is delivered");
            }
        }
        let runtime = self.outbox.runtime.upgrade().ok_or(RuntimeGone)?;
        match runtime.update_delivery(StoredDelivery { number, delivery: after }).await {
            Ok(_) => Ok(()),
            Err(error @ (RunError::Read(_) | RunError::Terminated(_))) => {
                tracing::debug!(to = &*self.name, %error, "no more is delivered in this process");
                Err(RuntimeGone)
            }
            Err(error) => {
                tracing::error!(to = &*self.name, %error, "no more is delivered in this process");
                Err(RuntimeGone)
            }
        }
    }
}
