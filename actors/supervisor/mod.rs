//! The supervision tree.
//!
//! ```text
//! Root                    one of its children gone for good → `Runtime::terminated` resolves with the reason
//! ├── Persistence         the one writer; its failure is the store's failure and ends the runtime
//! ├── ProviderSupervisor
//! │   └── Provider        one for each endpoint; started again when it dies
//! ├── ToolExecutor
//! └── SessionSupervisor   the directory
//!     └── Session         one for each live session; revived from its journal when it dies
//! ```

mod burial;
mod providers;
mod sessions;

use std::{fmt, sync::Arc};

use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::watch;

use crate::{
    hub::Hub,
    persistence::{Persistence, PersistenceMsg},
    port::{Artifacts, Clock, Journal, Provider, Tool},
    provider::Leases,
    session::Wiring,
    tool_executor::{ToolExecutor, Tools},
};
pub(crate) use providers::{ProviderSupervisor, ProvidersMsg};
pub(crate) use sessions::{NewSession, SessionSupervisor, SessionsMsg};

/// Why a runtime has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Terminated {
    /// It was told to.
    Suspended,
    /// The store takes no writes any more.
    Store(String),
    /// A part of the runtime itself died, and could not be started again.
    Actor {
        /// Which one.
        name: &'static str,
        /// Of what.
        error: String,
    },
}

impl fmt::Display for Terminated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suspended => f.write_str("suspended"),
            Self::Store(error) => write!(f, "{error}"),
            Self::Actor { name, error } => write!(f, "the {name} actor died: {error}"),
        }
    }
}

/// What the tree is made of.
pub(crate) struct Parts {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) boot: String,
    pub(crate) providers: Vec<(Arc<str>, Arc<dyn Provider>, usize)>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) tool_calls: usize,
    pub(crate) artifacts: Arc<dyn Artifacts>,
    pub(crate) terminated: watch::Sender<Option<Terminated>>,
    /// Where the parts that `Runtime` talks to go.
    pub(crate) doors: tokio::sync::oneshot::Sender<Doors>,
}

/// What `Runtime` talks to.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    pub(crate) sessions: ActorRef<SessionsMsg>,
    pub(crate) wiring: Arc<Wiring>,
}

/// The actor at the top.
#[derive(Debug)]
pub(crate) struct Root;

/// Its state: who is who, and where to say that all is over.
pub(crate) struct RootState {
    children: Vec<(ActorId, &'static str)>,
    persistence: ActorId,
    hub: Arc<Hub>,
    terminated: watch::Sender<Option<Terminated>>,
}

impl Actor for Root {
    type Msg = ();
    type State = RootState;
    type Arguments = Parts;

    async fn pre_start(&self, me: ActorRef<()>, parts: Parts) -> Result<RootState, ActorProcessingErr> {
        let cell = me.get_cell();
        let hub = Arc::new(Hub::default());
        let leases = Arc::new(Leases::new(parts.providers));
        let (persistence, _) =
            Actor::spawn_linked(None, Persistence, Arc::clone(&parts.journal), cell.clone()).await?;
        let clock = Arc::clone(&parts.clock);
        let (providers, _) =
            Actor::spawn_linked(None, ProviderSupervisor, (Arc::clone(&leases), clock), cell.clone()).await?;
        let (executor, _) = Actor::spawn_linked(None, ToolExecutor, (), cell.clone()).await?;
        let wiring = Arc::new(Wiring {
            persistence: persistence.clone(),
            providers: providers.clone(),
            executor: executor.clone(),
            leases,
            tools: Arc::new(Tools::new(parts.tools, parts.tool_calls, parts.artifacts)),
            hub: Arc::clone(&hub),
            clock: parts.clock,
        });
        let of_sessions = (parts.journal, Arc::clone(&wiring), parts.boot);
        let (sessions, _) = Actor::spawn_linked(None, SessionSupervisor, of_sessions, cell).await?;
        let children = vec![
            (providers.get_id(), "ProviderSupervisor"),
            (executor.get_id(), "ToolExecutor"),
            (sessions.get_id(), "SessionSupervisor"),
        ];
        if parts.doors.send(Doors { sessions, wiring }).is_err() {
            return Err("whoever wanted the runtime has gone".into());
        }
        Ok(RootState { children, persistence: persistence.get_id(), hub, terminated: parts.terminated })
    }

    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<()>,
        event: SupervisionEvent,
        state: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        let (who, error) = match event {
            SupervisionEvent::ActorFailed(cell, error) => (cell.get_id(), error.to_string()),
            SupervisionEvent::ActorTerminated(cell, _, why) => {
                (cell.get_id(), why.unwrap_or_else(|| "it stopped".into()))
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => return Ok(()),
        };
        let name = state.children.iter().find(|(id, _)| *id == who).map(|(_, name)| *name);
        let reason = match name {
            _ if who == state.persistence => Terminated::Store(error),
            Some(name) => Terminated::Actor { name, error },
            None => return Ok(()),
        };
        tracing::error!(%reason, "the runtime ends");
        state.end(reason);
        me.stop(None);
        Ok(())
    }

    async fn post_stop(&self, _me: ActorRef<()>, state: &mut RootState) -> Result<(), ActorProcessingErr> {
        state.end(Terminated::Suspended);
        Ok(())
    }
}

impl RootState {
    /// Says why, unless it was said already, and wakes all who wait.
    fn end(&self, reason: Terminated) {
        self.terminated.send_if_modified(|said| {
            let first = said.is_none();
            said.get_or_insert(reason);
            first
        });
        self.hub.wake_all();
    }
}

/// The address of Persistence, for those who only write.
pub(crate) type Writer = ActorRef<PersistenceMsg>;
