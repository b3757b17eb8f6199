//! The supervision tree, and types that its supervisors share: the arguments of Root, the parts that its actors share, why a
//! runtime ended, and the status of the actors.
//!
//! ```text
//! Root                    restarts its children; one that keeps crashing → `Runtime::wait_for_end` gives the reason
//! ├── Persistence         the one writer; its failure is the store's failure and ends the runtime
//! ├── ProviderSupervisor
//! │   └── Provider        one for each endpoint; restarted when it crashes
//! ├── ToolExecutor
//! ├── Compressor
//! ├── SessionSupervisor   the directory
//! │   └── Session         one for each live session; revived from its journal when it crashes
//! └── Scheduler           starts the runs of schedules
//! ```

mod directory;
mod directory_checkpoint;
mod entry;
mod force_fail;
mod lanes;
mod opening;
mod passivation;
mod providers;
mod root;
mod session_restart;
mod sessions;
mod stable_ref;

use std::{fmt, sync::Arc, time::Duration};

use ractor::{ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::{Semaphore, oneshot, watch};

use crate::{
    compressor::CompressorHandle,
    handlers::HandlerWatch,
    hub::Hub,
    model::{BootId, SessionId},
    persistence::{CommitMonitor, PersistenceMsg},
    port::{Clock, DecisionHooks, Journal, TextRedactor},
    provider::Leases,
    runtime::{
        ConversationMarks, FeedTail, PresentMemory, PresentStoreLimits, PresentVerifier, RuntimeDependencies,
    },
    scheduler::SchedulerHandle,
    tool_executor::ToolExecutorHandle,
};
pub(crate) use directory::Directory;
use directory_checkpoint::DirectoryCheckpoint;
pub(crate) use lanes::{LanePlace, Lanes};
pub(crate) use providers::{ProviderSupervisor, ProviderSupervisorState as Providers, ProvidersMsg};
pub(crate) use root::{Root, RootMsg, RootState};
pub(crate) use sessions::{SessionSeed, SessionSupervisor, SessionsMsg};
pub(crate) use stable_ref::StableActorRef;

/// Why a runtime has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuntimeEnd {
    /// On request.
    Suspended,
    /// The store takes no more writes, or cannot be read; the error.
    Store(String),
    /// An actor failed for good: it could not start, is never restarted, or crashed too often.
    Actor {
        /// The actor's name.
        name: &'static str,
        /// The error of its last crash.
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

/// The arguments of Root.
pub(crate) struct RootArguments {
    pub(crate) dependencies: RuntimeDependencies,
    pub(crate) executor: Arc<ToolExecutorHandle>,
    pub(crate) terminated: watch::Sender<Option<RuntimeEnd>>,
    /// Root sends the shared parts to `Runtime` through this.
    pub(crate) parts: oneshot::Sender<Arc<RuntimeParts>>,
}

/// The parts of the runtime that its actors and `Runtime` share.
#[derive(Debug)]
pub(crate) struct RuntimeParts {
    pub(crate) persistence: PersistenceRef,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) sessions: StableActorRef<SessionsMsg>,
    pub(crate) checkpoint: DirectoryCheckpoint,
    pub(crate) providers: StableActorRef<ProvidersMsg>,
    pub(crate) executor: Arc<ToolExecutorHandle>,
    pub(crate) compressor: Arc<CompressorHandle>,
    pub(crate) scheduler: Arc<SchedulerHandle>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) feed_tail: FeedTail,
    pub(crate) conversation_marks: ConversationMarks,
    pub(crate) commit_monitor: Arc<CommitMonitor>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) redactor: Arc<dyn TextRedactor>,
    pub(crate) hooks: Arc<dyn DecisionHooks>,
    pub(crate) handlers: Arc<HandlerWatch>,
    /// One permit for each submission that waits to become durable: it bounds the mailboxes behind the public API.
    pub(crate) admission: Arc<Semaphore>,
    pub(crate) boot: BootId,
    pub(crate) store_limits: PresentStoreLimits,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) verifier: PresentVerifier,
    pub(crate) memory: PresentMemory,
    /// How long an idle session keeps its actor.
    pub(crate) idle: Duration,
}

/// The actor that has ended, with its error; `None` for other events.
fn actor_end(event: SupervisionEvent) -> Option<(ActorId, ActorProcessingErr)> {
    match event {
        SupervisionEvent::ActorFailed(cell, error) => Some((cell.get_id(), error)),
        SupervisionEvent::ActorTerminated(cell, _, why) => {
            Some((cell.get_id(), why.unwrap_or_else(|| "it stopped".into()).into()))
        }
        SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => None,
    }
}

/// A reference to Persistence, which is never restarted, for writes only.
pub(crate) type PersistenceRef = ActorRef<PersistenceMsg>;

/// The supervisors' view of the actors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SupervisionTree {
    /// The children of Root and the providers, from top to bottom.
    pub children: Vec<ChildStatus>,
    /// The sessions in the directory, by id.
    pub sessions: Vec<SessionStatus>,
}

/// A child of a supervisor, other than a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildStatus {
    /// The actor's name; of a provider, `Provider NAME`.
    pub name: String,
    /// Number of restarts.
    pub restarts: u32,
}

/// A session in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStatus {
    /// The session.
    pub session: SessionId,
    /// The phase of the session.
    pub phase: SessionPhase,
    /// Number of crashes of its actor since the directory has it.
    pub crashes: u32,
}

/// The sessions of the directory in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionCounts {
    /// Sessions with an actor.
    pub live: usize,
    /// Crashes of actors of sessions since the directory was started.
    pub crashes: u64,
}

/// The phase of a session in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionPhase {
    /// Its journal is being read.
    Opening,
    /// Its actor runs, perhaps asked to stop because it is idle.
    Live,
    /// It has no actor: its tasks or its runs are being ended, the store closes it, or it waits for its next opening.
    Ending,
    /// Its journal, its inbox or its run's account cannot be read, with the reason. It is not touched until the next start.
    Quarantined(String),
}
