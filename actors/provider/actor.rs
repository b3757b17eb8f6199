//! Provider: the actor that keeps the statistics of one endpoint, requests its model lists, and probes its open
//! breakers. Its handlers await nothing: requests are tasks that end with the actor.

use std::{sync::Arc, time::Duration};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    inspect::Inspect,
    model::{ModelLimits, Timestamp},
    port::Clock,
    provider::{
        AttemptReport, Gate, ProviderStatus,
        model_lists::{LimitsReply, ModelLists},
        statistics::ProviderStatistics,
    },
};

/// Limit of a request for a model's limits, and of the wait of a submission for them.
pub(crate) const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit of a free probe; one that takes longer tells nothing.
const PROBE_TIMEOUT: Duration = Duration::from_secs(15);

/// The messages of [`ProviderActor`].
#[derive(Debug)]
pub(crate) enum ProviderMsg {
    /// An attempt has ended.
    Report(Box<AttemptReport>),
    /// A run needs the limits of a model from the provider's list.
    RequestLimits(Arc<str>, LimitsReply),
    /// A request for a model's limits has ended; `None` if it was not answered.
    LimitsListed(Arc<str>, Option<ModelLimits>),
    /// A list request or a free probe is due, or a probe has ended.
    Wake,
    /// Inspects the state.
    Inspect(Inspect<ProviderState>),
}

#[derive(Debug)]
pub(crate) struct ProviderActor;

/// The name, gate and clock of a provider's actor.
pub(crate) type ProviderArguments = (Arc<str>, Arc<Gate>, Arc<dyn Clock>);

/// The statistics, the model lists and the gate of one provider.
#[derive(Debug)]
pub(crate) struct ProviderState {
    name: Arc<str>,
    gate: Arc<Gate>,
    clock: Arc<dyn Clock>,
    statistics: ProviderStatistics,
    lists: ModelLists,
    /// List requests and free probes in flight.
    requests: JoinSet<()>,
    /// Sends the next `Wake`, at this time.
    timer: Option<(Timestamp, JoinSet<()>)>,
}

impl Actor for ProviderActor {
    type Msg = ProviderMsg;
    type State = ProviderState;
    type Arguments = ProviderArguments;

    async fn pre_start(
        &self,
        me: ActorRef<ProviderMsg>,
        (name, gate, clock): ProviderArguments,
    ) -> Result<ProviderState, ActorProcessingErr> {
        let mut state = ProviderState {
            name,
            gate,
            clock,
            statistics: ProviderStatistics::default(),
            lists: ModelLists::default(),
            requests: JoinSet::new(),
            timer: None,
        };
        // A breaker may have opened before a crash.
        state.start_due(&me);
        Ok(state)
    }

    async fn handle(
        &self,
        me: ActorRef<ProviderMsg>,
        message: ProviderMsg,
        state: &mut ProviderState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ProviderMsg::Report(report) => state.statistics.add(&state.name, *report),
            ProviderMsg::RequestLimits(model, reply) => state.lists.request(model, reply, state.clock.at()),
            ProviderMsg::LimitsListed(model, limits) => {
                tracing::debug!(provider = %state.name, %model, ?limits, "listed limits");
                state.lists.on_end(&model, limits, state.clock.at());
            }
            ProviderMsg::Wake => state.timer = None,
            ProviderMsg::Inspect(inspection) => return inspection.run(state),
        }
        state.start_due(&me);
        Ok(())
    }
}

impl ProviderState {
    /// Starts what is due, and sets the timer for what is due next.
    fn start_due(&mut self, me: &ActorRef<ProviderMsg>) {
        while self.requests.try_join_next().is_some() {}
        let now = self.clock.at();
        self.start_probe(me, now);
        while let Some(model) = self.lists.take_due(now) {
            self.start_list_request(me, model);
        }
        let next = [self.gate.free_probe_at(now), self.lists.next_at()].into_iter().flatten().min();
        if self.timer.as_ref().map(|(at, _)| *at) == next {
            return;
        }
        self.timer = next.map(|at| {
            let (mut timer, me) = (JoinSet::new(), me.clone());
            timer.spawn(async move {
                sleep(Duration::from_millis(at.ms_since(now))).await;
                send(&me, ProviderMsg::Wake);
            });
            (at, timer)
        });
    }

    fn start_probe(&mut self, me: &ActorRef<ProviderMsg>, now: Timestamp) {
        let Some(mut probe) = self.gate.begin_free_probe(now) else { return };
        let (me, name, clock) = (me.clone(), Arc::clone(&self.name), Arc::clone(&self.clock));
        self.requests.spawn(async move {
            let reached = match probe.endpoint().probe() {
                Some(request) => timeout(PROBE_TIMEOUT, request).await.ok(),
                None => None,
            };
            tracing::debug!(provider = %name, ?reached, "free probe");
            probe.finish(reached, clock.at());
            send(&me, ProviderMsg::Wake);
        });
    }

    fn start_list_request(&mut self, me: &ActorRef<ProviderMsg>, model: Arc<str>) {
        let endpoint = Arc::clone(&self.gate.endpoint);
        let mut report = LimitsReport { actor: me.clone(), model: Arc::clone(&model), limits: None };
        self.requests.spawn(async move {
            report.limits = match endpoint.model_limits(&model) {
                Some(request) => timeout(LIST_TIMEOUT, request).await.ok().flatten(),
                None => None,
            };
            drop(report);
        });
    }

    /// The statistics, and the current state of the breakers.
    pub(crate) fn status(&self, now: Timestamp) -> ProviderStatus {
        self.statistics.status(&self.name, &self.gate, now)
    }
}

/// Reports the end of a request for limits when dropped, also if its task panics.
struct LimitsReport {
    actor: ActorRef<ProviderMsg>,
    model: Arc<str>,
    limits: Option<ModelLimits>,
}

impl Drop for LimitsReport {
    fn drop(&mut self) {
        send(&self.actor, ProviderMsg::LimitsListed(Arc::clone(&self.model), self.limits));
    }
}

fn send(actor: &ActorRef<ProviderMsg>, message: ProviderMsg) {
    if actor.cast(message).is_err() {
        tracing::debug!("a provider's actor has ended before its request");
    }
}
