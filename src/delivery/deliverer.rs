//! The workers that deliver: one for each target, so that a slow target holds up no other. A worker makes one attempt at
//! a time, for the oldest message of its target.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::FutureExt as _;
use hermod_actors::{
    Runtime,
    model::{Delivery, DeliveryState, RunId, StoredDelivery},
    port::{Journal, ReadError},
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    abandoned::give_up,
    outbox::{Outbox, RuntimeGone},
    outbox_journal::OutboxSignal,
    target::{Target, Targets},
    verdict::{after_attempt, wait_before},
};
use crate::clock;

/// Pause after a read of the outbox has failed, or a worker has crashed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The longest sleep before a planned attempt: the wall clock may be set meanwhile.
const MAX_SLEEP: Duration = Duration::from_secs(30);
/// Pauses between two looks at the outbox while a process waits for its own deliveries: the first, and the longest.
const POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// Time between two looks for messages whose target is gone.
const ABANDONED_INTERVAL: Duration = Duration::from_mins(10);

/// Delivers the messages of a store until it is stopped. Dropping it stops it too.
#[derive(Debug)]
pub struct Deliverer {
    outbox: Outbox,
    workers: Mutex<BTreeMap<Arc<str>, Worker>>,
    /// Looks for messages whose target is gone.
    watch: Mutex<Option<JoinHandle<()>>>,
    /// The targets that are gone, and for which messages wait.
    gone: Arc<Mutex<BTreeSet<Arc<str>>>>,
}

#[derive(Debug)]
struct Worker {
    /// Lets the worker end after its present attempt.
    replaced: CancellationToken,
    task: JoinHandle<()>,
}

impl Deliverer {
    /// Starts a worker for each target. `signal` is that of the journal of `runtime`.
    pub fn start(
        (journal, signal): (Arc<dyn Journal>, OutboxSignal),
        runtime: &Arc<Runtime>,
        targets: &Targets,
    ) -> Self {
        let outbox = Outbox { journal, runtime: Arc::downgrade(runtime), signal };
        let deliverer =
            Self { outbox, workers: Mutex::default(), watch: Mutex::default(), gone: Arc::default() };
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
                    // A worker that was aborted is replaced all the same.
                    let (Ok(()) | Err(_)) = before.await;
                }
                work.run_supervised(&token).await;
            });
            workers.insert(Arc::clone(name), Worker { replaced, task });
        }
        drop(workers);
        self.watch_abandoned(targets);
    }

    /// Gives up old messages of targets that are gone, from now on.
    fn watch_abandoned(&self, targets: &Targets) {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        watch.take().inspect(JoinHandle::abort);
        let Some(max_age) = targets.abandoned_after else { return };
        let (outbox, known) = (self.outbox.clone(), Arc::clone(&targets.known));
        let gone = Arc::clone(&self.gone);
        *watch = Some(tokio::spawn(async move {
            loop {
                match give_up(&outbox, &known, (clock::now(), max_age)).await {
                    Ok(Ok(found)) => *gone.lock().unwrap_or_else(PoisonError::into_inner) = found,
                    Ok(Err(RuntimeGone)) => return,
                    Err(error) => tracing::error!(%error, "the outbox cannot be read now"),
                }
                sleep(ABANDONED_INTERVAL).await;
            }
        }));
    }

    /// The targets for which messages wait, though the configuration does not have them.
    pub fn gone_targets(&self) -> Vec<String> {
        let gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.iter().map(ToString::to_string).collect()
    }

    /// Waits until each message of this run is delivered, is dead, or has failed once; at most `limit`. Returns the messages
    /// of the run that are pending still.
    pub async fn wait_for_run(&self, run: RunId, limit: Duration) -> Result<Vec<Delivery>, ReadError> {
        let settled = async {
            let [mut interval, longest] = POLL_INTERVALS;
            loop {
                let pending = self.outbox.of_run(run).await?;
                let is_served = |delivery: &Delivery| {
                    let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
                    workers.contains_key(&delivery.message.target)
                };
                if pending.iter().all(|delivery| delivery.attempts > 0 || !is_served(delivery)) {
                    return Ok(pending);
                }
                sleep(interval).await;
                interval = (interval * 2).min(longest);
            }
        };
        match timeout(limit, settled).await {
            Ok(pending) => pending,
            Err(_) => self.outbox.of_run(run).await,
        }
    }

    /// Ends the workers. An attempt under way is dropped: it is repeated later, with the same id.
    pub fn stop(&self) {
        let workers = std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        workers.values().for_each(|worker| worker.task.abort());
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        watch.inspect(JoinHandle::abort);
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

/// What a worker does next.
enum NextStep {
    /// This message may be tried.
    Attempt(Box<StoredDelivery>),
    /// Something has changed, or time has passed: the outbox is read again.
    LookAgain,
}

/// The message that a worker has tried last, and when it may try it again by the monotonic clock.
type Planned = Option<(u64, tokio::time::Instant)>;

impl TargetWorker {
    /// Works until it is replaced, also after a crash.
    async fn run_supervised(self, replaced: &CancellationToken) {
        while AssertUnwindSafe(self.run(replaced)).catch_unwind().await.is_err() {
            tracing::error!(to = &*self.name, "a worker of deliveries has crashed, and begins again");
            sleep(RETRY_PAUSE).await;
        }
    }

    async fn run(&self, replaced: &CancellationToken) {
        let mut changed = self.outbox.signal.subscribe();
        let mut planned: Planned = None;
        loop {
            // Before the read, so that no message comes unseen between the two.
            changed.mark_unchanged();
            let step = tokio::select! {
                biased;
                () = replaced.cancelled() => return,
                step = self.next_step(&mut changed, planned) => step,
            };
            match step {
                Ok(NextStep::Attempt(stored)) => match self.attempt(*stored, replaced).await {
                    Ok(next) => planned = next,
                    Err(RuntimeGone) => return,
                },
                Ok(NextStep::LookAgain) => {}
                Err(error) => {
                    tracing::error!(to = &*self.name, %error, "the outbox cannot be read now");
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Tries the oldest message of the target if it may be tried now. Otherwise waits for that time or for new messages.
    async fn next_step(
        &self,
        changed: &mut watch::Receiver<()>,
        planned: Planned,
    ) -> Result<NextStep, ReadError> {
        let Some(stored) = self.outbox.head(&self.name).await? else {
            // The worker has a sender itself, so this does not fail.
            let (Ok(()) | Err(_)) = changed.changed().await;
            return Ok(NextStep::LookAgain);
        };
        let of_this = planned.filter(|(number, _)| *number == stored.number);
        let left = of_this.map(|(_, at)| at.saturating_duration_since(tokio::time::Instant::now()));
        let wait = wait_before(stored.delivery.next_at, clock::now(), left, &self.target.limits);
        if wait.is_zero() {
            return Ok(NextStep::Attempt(Box::new(stored)));
        }
        sleep(wait.min(MAX_SLEEP)).await;
        Ok(NextStep::LookAgain)
    }

    /// Makes an attempt and writes its result. A worker that is replaced does not wait for a store that cannot be written.
    async fn attempt(
        &self,
        StoredDelivery { number, delivery }: StoredDelivery,
        replaced: &CancellationToken,
    ) -> Result<Planned, RuntimeGone> {
        let sent = self.target.send(&delivery.message).await;
        let [chance] = clock::random_bytes::<1>();
        let now = clock::now();
        let after = after_attempt(delivery, sent, &self.target.limits, (now, chance));
        self.log(&after);
        let pause = after.next_at.map(|next_at| Duration::from_millis(next_at.ms_since(now)));
        let planned = pause.map(|pause| (number, tokio::time::Instant::now() + pause));
        let update = StoredDelivery { number, delivery: after };
        self.outbox.write(&update, replaced).await?;
        Ok(planned)
    }

    fn log(&self, after: &Delivery) {
        let (id, why) = (&after.message.id, &after.error);
        match after.state {
            DeliveryState::Dead => {
                tracing::error!(to = &*self.name, %id, ?why, "a message is a dead letter");
            }
            DeliveryState::Pending => {
                tracing::warn!(to = &*self.name, %id, ?why, "a message is not delivered yet");
            }
            DeliveryState::Delivered => {
                tracing::debug!(to = &*self.name, %id, "a message is delivered");
            }
        }
    }
}
