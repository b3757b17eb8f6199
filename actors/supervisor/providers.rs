//! ProviderSupervisor: keeps one Provider actor for each endpoint, and passes on what is said to them by name.

use std::{collections::BTreeMap, sync::Arc};

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::{
    policy::{Deaths, Intensity, Verdict},
    port::Clock,
    provider::{Leases, Provider, ProviderMsg},
};

/// A provider's actor may die so often; then the runtime goes on without its statistics.
const INTENSITY: Intensity = Intensity { deaths: 5, within_ms: 60_000 };

/// The messages of [`ProviderSupervisor`].
#[derive(Debug)]
pub(crate) enum ProvidersMsg {
    /// For the provider of that name.
    To(Arc<str>, ProviderMsg),
}

/// The actor.
#[derive(Debug)]
pub(crate) struct ProviderSupervisor;

/// Its state.
pub(crate) struct State {
    clock: Arc<dyn Clock>,
    children: BTreeMap<Arc<str>, Child>,
}

struct Child {
    actor: ActorRef<ProviderMsg>,
    deaths: Deaths,
}

impl Actor for ProviderSupervisor {
    type Msg = ProvidersMsg;
    type State = State;
    type Arguments = (Arc<Leases>, Arc<dyn Clock>);

    async fn pre_start(
        &self,
        me: ActorRef<ProvidersMsg>,
        (leases, clock): Self::Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let mut children = BTreeMap::new();
        for name in leases.names() {
            let (actor, _) = Actor::spawn_linked(None, Provider, Arc::clone(name), me.get_cell()).await?;
            children.insert(Arc::clone(name), Child { actor, deaths: Deaths::default() });
        }
        Ok(State { clock, children })
    }

    async fn handle(
        &self,
        _me: ActorRef<ProvidersMsg>,
        ProvidersMsg::To(name, message): ProvidersMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let sent = state.children.get(&name).map(|child| child.actor.cast(message));
        if !matches!(sent, Some(Ok(()))) {
            tracing::debug!(provider = %name, "a message for a provider that is not there");
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<ProvidersMsg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let SupervisionEvent::ActorFailed(cell, error) = event else { return Ok(()) };
        let now_ms = state.clock.monotonic_ms();
        let dead = state.children.iter_mut().find(|(_, child)| child.actor.get_id() == cell.get_id());
        let Some((name, child)) = dead else { return Ok(()) };
        match child.deaths.count(now_ms, INTENSITY) {
            Verdict::Restart => {
                tracing::warn!(provider = %name, %error, "provider actor died, starting it again");
                let (actor, _) = Actor::spawn_linked(None, Provider, Arc::clone(name), me.get_cell()).await?;
                child.actor = actor;
            }
            Verdict::GiveUp => {
                tracing::error!(provider = %name, %error, "provider actor keeps dying, given up");
            }
        }
        Ok(())
    }
}
