//! Root: starts the parts of the tree, and starts them again. Its end is the runtime's.

use std::sync::Arc;

use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use tokio::sync::{Semaphore, watch};

use crate::{
    handlers::HandlerWatch,
    hub::Hub,
    look::Look,
    persistence::{Persistence, Writing},
    policy::{Deaths, Intensity, Verdict},
    port::{Journal, JournalError, ReadError},
    provider::Leases,
    session::Wiring,
    supervisor::{
        Doors, PartStatus, Parts, ProviderSupervisor, Roster, SessionSupervisor, Terminated, Writer,
        directory::Foundation,
    },
    tool_executor::{ToolExecutor, Tools},
};

/// A part may die so often; then the runtime ends.
const INTENSITY: Intensity = Intensity { deaths: 5, within_ms: 60_000 };

/// The messages of [`Root`].
#[derive(Debug)]
pub(crate) enum RootMsg {
    /// What its children are.
    Look(Look<RootState>),
}

/// The actor at the top.
#[derive(Debug)]
pub(crate) struct Root;

/// Its state: who is who, and where to say that all is over.
pub(crate) struct RootState {
    foundation: Arc<Foundation>,
    doors: Doors,
    persistence: Writer,
    children: Vec<Child>,
    terminated: watch::Sender<Option<Terminated>>,
}

struct Child {
    part: Part,
    id: ActorId,
    deaths: Deaths,
    restarts: u32,
}

/// What can be started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Providers,
    Executor,
    Sessions,
}

impl Part {
    /// All, in the order in which they are started.
    const ALL: [Self; 3] = [Self::Providers, Self::Executor, Self::Sessions];

    const fn name(self) -> &'static str {
        match self {
            Self::Providers => "ProviderSupervisor",
            Self::Executor => "ToolExecutor",
            Self::Sessions => "SessionSupervisor",
        }
    }

    /// Starts it and says at its address that it is there.
    async fn start(
        self,
        root: ActorCell,
        foundation: &Arc<Foundation>,
        doors: &Doors,
    ) -> Result<ActorId, SpawnErr> {
        let wiring = &doors.wiring;
        Ok(match self {
            Self::Providers => {
                let arguments = (Arc::clone(&wiring.leases), Arc::clone(&wiring.clock));
                let (actor, _) = Actor::spawn_linked(None, ProviderSupervisor, arguments, root).await?;
                wiring.providers.arrive(actor.clone());
                actor.get_id()
            }
            Self::Executor => {
                let (actor, _) = Actor::spawn_linked(None, ToolExecutor, (), root).await?;
                wiring.executor.arrive(actor.clone());
                actor.get_id()
            }
            Self::Sessions => {
                let arguments = Arc::clone(foundation);
                let (actor, _) = Actor::spawn_linked(None, SessionSupervisor, arguments, root).await?;
                doors.sessions.arrive(actor.clone());
                actor.get_id()
            }
        })
    }
}

impl Actor for Root {
    type Msg = RootMsg;
    type State = RootState;
    type Arguments = Parts;

    async fn pre_start(&self, me: ActorRef<RootMsg>, parts: Parts) -> Result<RootState, ActorProcessingErr> {
        let cell = me.get_cell();
        let journal: Arc<dyn Journal> = Arc::clone(&parts.journal);
        let writing = Arc::new(Writing::new(Arc::clone(&parts.clock), Arc::clone(&journal)));
        let handlers = HandlerWatch::new(Arc::clone(&parts.clock));
        let arguments = (Arc::clone(&journal), Arc::clone(&writing), Arc::clone(&handlers));
        let (persistence, _) = Actor::spawn_linked(None, Persistence, arguments, cell.clone()).await?;
        let wiring = Arc::new(Wiring {
            persistence: persistence.clone(),
            journal,
            sessions: Arc::default(),
            providers: Arc::default(),
            executor: Arc::default(),
            leases: Arc::new(Leases::new(parts.providers, parts.breakers)),
            tools: Arc::new(Tools::new(parts.tools, parts.tool_calls, parts.artifacts)),
            hub: Arc::new(Hub::default()),
            writing,
            clock: parts.clock,
            handlers,
        });
        let roster = Arc::<Roster>::default();
        let foundation = Arc::new(Foundation {
            journal: parts.journal,
            wiring: Arc::clone(&wiring),
            boot: parts.boot,
            idle: parts.idle,
            roster: Arc::clone(&roster),
        });
        let admission = Arc::new(Semaphore::new(parts.submissions));
        let sessions = Arc::clone(&wiring.sessions);
        let doors = Doors { sessions, roster, wiring, admission };
        let mut children = Vec::new();
        for part in Part::ALL {
            let id = part.start(cell.clone(), &foundation, &doors).await?;
            children.push(Child { part, id, deaths: Deaths::default(), restarts: 0 });
        }
        if parts.doors.send(doors.clone()).is_err() {
            return Err("whoever wanted the runtime has gone".into());
        }
        Ok(RootState { foundation, doors, persistence, children, terminated: parts.terminated })
    }

    async fn handle(
        &self,
        _me: ActorRef<RootMsg>,
        RootMsg::Look(look): RootMsg,
        state: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        look.at(state)
    }

    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<RootMsg>,
        event: SupervisionEvent,
        state: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        let (who, error) = match event {
            SupervisionEvent::ActorFailed(cell, error) => (cell.get_id(), error),
            SupervisionEvent::ActorTerminated(cell, _, why) => {
                (cell.get_id(), why.unwrap_or_else(|| "it stopped".into()).into())
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => return Ok(()),
        };
        if let Err(reason) = state.died(&me, who, error).await {
            tracing::error!(%reason, "the runtime ends");
            state.end(reason);
            me.stop(None);
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _me: ActorRef<RootMsg>,
        state: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        state.end(Terminated::Suspended);
        Ok(())
    }
}

impl RootState {
    /// Starts a child again, or says why the runtime has to end.
    async fn died(
        &mut self,
        me: &ActorRef<RootMsg>,
        who: ActorId,
        error: ActorProcessingErr,
    ) -> Result<(), Terminated> {
        if let Some(store) = of_the_store(&error) {
            return Err(store);
        }
        if who == self.persistence.get_id() {
            return Err(Terminated::Actor { name: "Persistence", error: error.to_string() });
        }
        let clock = Arc::clone(&self.doors.wiring.clock);
        let Some(child) = self.children.iter_mut().find(|child| child.id == who) else { return Ok(()) };
        let (name, mut error) = (child.part.name(), error.to_string());
        loop {
            if child.deaths.count(clock.monotonic_ms(), INTENSITY) == Verdict::GiveUp {
                return Err(Terminated::Actor { name, error });
            }
            tracing::warn!(name, error, "a part of the runtime died, starting it again");
            child.restarts += 1;
            match child.part.start(me.get_cell(), &self.foundation, &self.doors).await {
                Ok(id) => {
                    child.id = id;
                    return Ok(());
                }
                // What does not start has died.
                Err(failed) => error = failed.to_string(),
            }
        }
    }

    /// What became of its children.
    pub(crate) fn parts(&self) -> Vec<PartStatus> {
        let persistence = PartStatus { name: "Persistence".into(), restarts: 0 };
        let others = self
            .children
            .iter()
            .map(|child| PartStatus { name: child.part.name().into(), restarts: child.restarts });
        std::iter::once(persistence).chain(others).collect()
    }

    /// Says why, unless it was said already, and wakes all who wait.
    fn end(&self, reason: Terminated) {
        self.terminated.send_if_modified(|said| {
            let first = said.is_none();
            said.get_or_insert(reason);
            first
        });
        let wiring = &self.doors.wiring;
        self.doors.sessions.close();
        wiring.providers.close();
        wiring.executor.close();
        wiring.hub.wake_all();
    }
}

impl Drop for RootState {
    /// Whatever Root died of, nobody waits for ever.
    fn drop(&mut self) {
        self.end(Terminated::Actor { name: "Root", error: "it died without a word".into() });
    }
}

/// Whether a part died of the store.
fn of_the_store(error: &ActorProcessingErr) -> Option<Terminated> {
    let write = error.downcast_ref::<JournalError>().map(ToString::to_string);
    let read = error.downcast_ref::<ReadError>().map(ToString::to_string);
    write.or(read).map(Terminated::Store)
}
