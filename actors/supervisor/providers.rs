//! ProviderSupervisor: keeps one Provider actor for each endpoint, and restarts those that crash.

use std::{collections::BTreeMap, sync::Arc};

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::{
    inspect::Inspect,
    policy::{RestartHistory, RestartIntensity},
    port::Clock,
    provider::{Gate, Leases, ProviderActor, ProviderMsg},
    supervisor::{ChildStatus, actor_end},
};

/// Restart intensity of a provider's actor; beyond it the runtime continues without its statistics.
const PROVIDER_RESTARTS: RestartIntensity = RestartIntensity { crashes_to_give_up: 5, period_ms: 60_000 };

/// The messages of [`ProviderSupervisor`].
#[derive(Debug)]
pub(crate) enum ProvidersMsg {
    /// The providers were exchanged.
    Exchanged,
    /// Inspects the children.
    Inspect(Inspect<ProviderSupervisorState>),
}

#[derive(Debug)]
pub(crate) struct ProviderSupervisor;

/// The children by name.
pub(crate) struct ProviderSupervisorState {
    leases: Arc<Leases>,
    clock: Arc<dyn Clock>,
    children: BTreeMap<Arc<str>, ProviderChild>,
}

struct ProviderChild {
    gate: Arc<Gate>,
    /// `None` if it was given up.
    actor: Option<ActorRef<ProviderMsg>>,
    restart_history: RestartHistory,
    restarts: u32,
}

impl Actor for ProviderSupervisor {
    type Msg = ProvidersMsg;
    type State = ProviderSupervisorState;
    type Arguments = (Arc<Leases>, Arc<dyn Clock>);

    async fn pre_start(
        &self,
        me: ActorRef<ProvidersMsg>,
        (leases, clock): Self::Arguments,
    ) -> Result<ProviderSupervisorState, ActorProcessingErr> {
        let mut state = ProviderSupervisorState { leases, clock, children: BTreeMap::new() };
        state.reconcile(&me).await;
        Ok(state)
    }

    async fn handle(
        &self,
        me: ActorRef<ProvidersMsg>,
        message: ProvidersMsg,
        state: &mut ProviderSupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ProvidersMsg::Exchanged => state.reconcile(&me).await,
            ProvidersMsg::Inspect(inspection) => return inspection.run(state),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<ProvidersMsg>,
        event: SupervisionEvent,
        state: &mut ProviderSupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        if let Some((id, error)) = actor_end(event)
            && let Some(name) = state.name_of(id)
            && state.may_restart(&name, &error.to_string())
        {
            state.start(&me, &name).await;
        }
        Ok(())
    }
}

impl ProviderSupervisorState {
    /// Stops the actors whose gate is gone, and starts one for each new gate.
    async fn reconcile(&mut self, me: &ActorRef<ProvidersMsg>) {
        let gates = self.leases.gates();
        self.children.retain(|name, child| {
            let is_there = gates.get(name).is_some_and(|gate| Arc::ptr_eq(gate, &child.gate));
            if !is_there {
                child.gate.actor.close();
                child.actor.iter().for_each(|actor| actor.stop(None));
            }
            is_there
        });
        for (name, gate) in gates {
            if self.children.contains_key(&name) {
                continue;
            }
            let (actor, restart_history) = (None, RestartHistory::default());
            self.children
                .insert(Arc::clone(&name), ProviderChild { gate, actor, restart_history, restarts: 0 });
            self.start(me, &name).await;
        }
    }

    fn name_of(&self, id: ActorId) -> Option<Arc<str>> {
        let is_child = |child: &ProviderChild| child.actor.as_ref().is_some_and(|actor| actor.get_id() == id);
        self.children.iter().find(|(_, child)| is_child(child)).map(|(name, _)| Arc::clone(name))
    }

    /// Counts a crash. Returns true if the actor may be restarted.
    fn may_restart(&mut self, name: &str, error: &str) -> bool {
        let now_ms = self.clock.monotonic_ms();
        let Some(child) = self.children.get_mut(name) else { return false };
        child.actor = None;
        let may_restart = child.restart_history.may_restart(now_ms, PROVIDER_RESTARTS);
        if may_restart {
            tracing::warn!(provider = name, error, "provider actor died, starting it again");
            child.restarts += 1;
        } else {
            tracing::error!(provider = name, error, "provider actor keeps dying, given up");
            child.gate.actor.close();
        }
        may_restart
    }

    /// Starts a child; a failed start counts as a crash.
    async fn start(&mut self, me: &ActorRef<ProvidersMsg>, name: &Arc<str>) {
        while let Some(child) = self.children.get_mut(name) {
            let arguments = (Arc::clone(name), Arc::clone(&child.gate), Arc::clone(&self.clock));
            match Actor::spawn_linked(None, ProviderActor, arguments, me.get_cell()).await {
                Ok((actor, _)) => {
                    child.gate.actor.set_running(actor.clone());
                    child.actor = Some(actor);
                    return;
                }
                Err(error) if self.may_restart(name, &error.to_string()) => {}
                Err(_) => return,
            }
        }
    }

    /// The restarts of each child.
    pub(crate) fn child_statuses(&self) -> Vec<ChildStatus> {
        let status = |(name, child): (&Arc<str>, &ProviderChild)| ChildStatus {
            name: format!("Provider {name}"),
            restarts: child.restarts,
        };
        self.children.iter().map(status).collect()
    }
}
