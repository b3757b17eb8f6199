//! The supervision tree.
//!
//! ```text
//! Root                    starts its children again; one that keeps dying → `Runtime::terminated` resolves with the reason
//! ├── Persistence         the one writer; its failure is the store's failure and ends the runtime
//! ├── ProviderSupervisor
//! │   └── Provider        one for each endpoint; started again when it dies
//! ├── ToolExecutor
//! └── SessionSupervisor   the directory
//!     └── Session         one for each live session; revived from its journal when it dies
//! ```

mod directory;
mod directory_checkpoint;
mod entry;
mod force_fail;
mod opening;
mod passivation;
mod providers;
mod root;
mod session_restart;
mod sessions;
mod stable_ref;

use std::{fmt, sync::Arc};

use ractor::ActorRef;
use tokio::sync::{Semaphore, watch};

use crate::{
    model::{BreakerPolicy, SessionId},
    persistence::PersistenceMsg,
    port::{Artifacts, Clock, Journal, ModelProvider, Tool},
    session::SessionDependencies,
};
pub(crate) use directory::Directory;
pub(crate) use directory_checkpoint::DirectoryCheckpoint;
pub(crate) use providers::{ProviderSupervisor, ProviderSupervisorState as Providers, ProvidersMsg};
pub(crate) use root::{Root, RootMsg, RootState};
pub(crate) use sessions::{SessionSeed, SessionSupervisor, SessionsMsg};
pub(crate) use stable_ref::StableActorRef;

/// Why a runtime has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuntimeEnd {
    /// It was told to.
    Suspended,
    /// The store takes no writes any more, or cannot be read.
    Store(String),
    /// A part of the runtime itself died, and could not be started again.
    Actor {
        /// Which one.
        name: &'static str,
        /// Of what.
        error: String,
    },
}

impl fmt::Display for RuntimeEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Suspended => f.write_str("suspended"),
            Self::Store(error) => write!(f, "{error}"),
            Self::Actor { name, error } => write!(f, "the {name} actor died: {error}"),
        }
    }
}

/// What the tree is made of.
pub(crate) struct RootArguments {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) boot: String,
    pub(crate) providers: Vec<(Arc<str>, Arc<dyn ModelProvider>, usize)>,
    pub(crate) breakers: BreakerPolicy,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) tool_calls: usize,
    pub(crate) submissions: usize,
    pub(crate) idle: std::time::Duration,
    pub(crate) artifacts: Arc<dyn Artifacts>,
    pub(crate) terminated: watch::Sender<Option<RuntimeEnd>>,
    /// Where the parts that `Runtime` talks to go.
    pub(crate) handles: tokio::sync::oneshot::Sender<RuntimeHandles>,
}

/// What `Runtime` talks to.
#[derive(Debug, Clone)]
pub(crate) struct RuntimeHandles {
    pub(crate) sessions: Arc<StableActorRef<SessionsMsg>>,
    pub(crate) checkpoint: Arc<DirectoryCheckpoint>,
    pub(crate) wiring: Arc<SessionDependencies>,
    /// One for each submission that may wait until it is on disk: the bound of the mailboxes behind the door.
    pub(crate) admission: Arc<Semaphore>,
}

/// The address of Persistence, which is never started again, for those who only write.
pub(crate) type PersistenceRef = ActorRef<PersistenceMsg>;

/// What the supervisors know of the actors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SupervisionTree {
    /// The parts below Root and the providers, from top to bottom.
    pub children: Vec<ChildStatus>,
    /// The sessions that the directory knows, by id.
    pub sessions: Vec<SessionStatus>,
}

/// A part of the tree that is there once, or once for each provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildStatus {
    /// Its name; of a provider, `Provider NAME`.
    pub name: String,
    /// How often it was started again.
    pub restarts: u32,
}

/// A session that the directory knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStatus {
    /// The session.
    pub session: SessionId,
    /// Where it is.
    pub phase: SessionPhase,
    /// How often its actor died since it came in.
    pub crashes: u32,
}

/// Where a session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionPhase {
    /// Its journal is being read.
    Opening,
    /// Its actor is there.
    Live,
    /// Its actor has ended, and what it has left is being ended.
    Ending,
    /// Its journal cannot be read by this program; why. Nothing is done with it until the next start.
    Quarantined(String),
}
