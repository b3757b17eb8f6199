//! Root: creates what all actors share, starts its children, and restarts all but Persistence. Its end is the end of
//! the runtime.

use std::sync::Arc;

use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SpawnErr, SupervisionEvent};
use tokio::sync::{Semaphore, watch};

use crate::{
    compressor::{CompressorActor, CompressorHandle},
    handlers::HandlerWatch,
    inspect::Inspect,
    persistence::{CommitMonitor, PersistenceActor},
    policy::{RestartHistory, RestartIntensity},
    port::{JournalError, ReadError},
    provider::Leases,
    runtime::{
        ConversationMarks, FeedTail, PresentMemory, PresentStoreLimits, PresentVerifier, RuntimeDependencies,
    },
    scheduler::SchedulerActor,
    supervisor::{
        ChildStatus, DirectoryCheckpoint, ProviderSupervisor, RootArguments, RuntimeEnd, RuntimeParts,
        SessionSupervisor, StableActorRef, actor_end,
    },
    tool_executor::ToolExecutorActor,
};

/// Restart intensity of a child; the runtime ends beyond it.
const CHILD_RESTARTS: RestartIntensity = RestartIntensity { crashes_to_give_up: 5, period_ms: 60_000 };

/// The messages of [`Root`].
#[derive(Debug)]
pub(crate) enum RootMsg {
    /// Inspects the children.
    Inspect(Inspect<RootState>),
}

/// The root of the supervision tree.
#[derive(Debug)]
pub(crate) struct Root;

/// The children, and the channel for the reason of the runtime's end.
pub(crate) struct RootState {
    parts: Arc<RuntimeParts>,
    children: Vec<SupervisedChild>,
    terminated: watch::Sender<Option<RuntimeEnd>>,
}

struct SupervisedChild {
    kind: ChildKind,
    id: ActorId,
    restart_history: RestartHistory,
    restarts: u32,
}

/// A child that can be restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
enum ChildKind {
    ProviderSupervisor,
    ToolExecutor,
    Compressor,
    SessionSupervisor,
    Scheduler,
}

impl ChildKind {
    /// All kinds, in the order in which they are started.
    const ALL: [Self; 5] = [
        Self::ProviderSupervisor,
        Self::ToolExecutor,
        Self::Compressor,
        Self::SessionSupervisor,
        Self::Scheduler,
    ];

    /// Starts the child and sets its stable reference.
    async fn start(self, root: ActorCell, parts: &Arc<RuntimeParts>) -> Result<ActorId, SpawnErr> {
        Ok(match self {
            Self::ProviderSupervisor => {
                let arguments = (Arc::clone(&parts.leases), Arc::clone(&parts.clock));
                let (actor, _) = Actor::spawn_linked(None, ProviderSupervisor, arguments, root).await?;
                parts.providers.set_running(actor.clone());
                actor.get_id()
            }
            Self::ToolExecutor => {
                let arguments = (Arc::clone(&parts.executor), Arc::clone(&parts.handlers));
                let (actor, _) = Actor::spawn_linked(None, ToolExecutorActor, arguments, root).await?;
                parts.executor.actor.set_running(actor.clone());
                actor.get_id()
            }
            Self::Compressor => {
                let compressor = Arc::clone(&parts.compressor);
                let arguments = (compressor, Arc::clone(&parts.clock), Arc::clone(&parts.handlers));
                let (actor, _) = Actor::spawn_linked(None, CompressorActor, arguments, root).await?;
                parts.compressor.actor.set_running(actor.clone());
                actor.get_id()
            }
            Self::SessionSupervisor => {
                let arguments = Arc::clone(parts);
                let (actor, _) = Actor::spawn_linked(None, SessionSupervisor, arguments, root).await?;
                parts.sessions.set_running(actor.clone());
                actor.get_id()
            }
            Self::Scheduler => {
                let arguments = Arc::clone(parts);
                let (actor, _) = Actor::spawn_linked(None, SchedulerActor, arguments, root).await?;
                parts.scheduler.actor.set_running(actor.clone());
                actor.get_id()
            }
        })
    }
}

impl Actor for Root {
    type Msg = RootMsg;
    type State = RootState;
    type Arguments = RootArguments;

    async fn pre_start(
        &self,
        me: ActorRef<RootMsg>,
        arguments: RootArguments,
    ) -> Result<RootState, ActorProcessingErr> {
        let cell = me.get_cell();
        let RuntimeDependencies {
            journal,
            clock,
            boot,
            providers,
            breakers,
            summaries,
            submissions,
            idle,
            redactor,
            hooks,
            ..
        } = arguments.dependencies;
        let commit_monitor = Arc::new(CommitMonitor::new(Arc::clone(&clock), Arc::clone(&journal)));
        let handlers = HandlerWatch::new(Arc::clone(&clock));
        let writer = (Arc::clone(&journal), Arc::clone(&commit_monitor), Arc::clone(&handlers));
        let (persistence, _) = Actor::spawn_linked(None, PersistenceActor, writer, cell.clone()).await?;
        let parts = Arc::new(RuntimeParts {
            persistence,
            journal,
            sessions: StableActorRef::default(),
            checkpoint: DirectoryCheckpoint::default(),
            providers: StableActorRef::default(),
            executor: arguments.executor,
            compressor: Arc::new(CompressorHandle::new(summaries)),
            scheduler: Arc::default(),
            leases: Arc::new(Leases::new(providers, breakers)),
            hub: Arc::default(),
            feed_tail: FeedTail::default(),
            conversation_marks: ConversationMarks::default(),
            commit_monitor,
            clock,
            redactor,
            hooks,
            handlers,
            admission: Arc::new(Semaphore::new(submissions)),
            boot,
            store_limits: PresentStoreLimits::default(),
            lanes: Arc::default(),
            verifier: PresentVerifier::default(),
            memory: PresentMemory::default(),
            idle,
        });
        let mut children = Vec::new();
        for kind in ChildKind::ALL {
            let id = kind.start(cell.clone(), &parts).await?;
            children.push(SupervisedChild {
                kind,
                id,
                restart_history: RestartHistory::default(),
                restarts: 0,
            });
        }
        if arguments.parts.send(Arc::clone(&parts)).is_err() {
            return Err("the caller that starts the runtime has gone".into());
        }
        Ok(RootState { parts, children, terminated: arguments.terminated })
    }

    async fn handle(
        &self,
        _me: ActorRef<RootMsg>,
        RootMsg::Inspect(inspection): RootMsg,
        state: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        inspection.run(state)
    }

    async fn handle_supervisor_evt(
        &self,
        me: ActorRef<RootMsg>,
        event: SupervisionEvent,
        state: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        if let Some((id, error)) = actor_end(event)
            && let Err(reason) = state.on_child_end(&me, id, error).await
        {
            tracing::error!(%reason, "the runtime ends");
            state.publish_end(reason);
            me.stop(None);
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _me: ActorRef<RootMsg>,
        state: &mut RootState,
    ) -> Result<(), ActorProcessingErr> {
        state.publish_end(RuntimeEnd::Suspended);
        Ok(())
    }
}

impl RootState {
    /// Restarts a child, or returns why the runtime has to end.
    async fn on_child_end(
        &mut self,
        me: &ActorRef<RootMsg>,
        id: ActorId,
        error: ActorProcessingErr,
    ) -> Result<(), RuntimeEnd> {
        if let Some(store) = store_failure(&error) {
            return Err(store);
        }
        if id == self.parts.persistence.get_id() {
            return Err(RuntimeEnd::Actor { name: "Persistence", error: error.to_string() });
        }
        let clock = Arc::clone(&self.parts.clock);
        let Some(child) = self.children.iter_mut().find(|child| child.id == id) else { return Ok(()) };
        let (name, mut error) = (child.kind.into(), error.to_string());
        loop {
            if !child.restart_history.may_restart(clock.monotonic_ms(), CHILD_RESTARTS) {
                return Err(RuntimeEnd::Actor { name, error });
            }
            tracing::warn!(name, error, "a part of the runtime died, starting it again");
            child.restarts += 1;
            match child.kind.start(me.get_cell(), &self.parts).await {
                Ok(id) => {
                    child.id = id;
                    return Ok(());
                }
                // A failed start counts as a crash.
                Err(failed) => error = failed.to_string(),
            }
        }
    }

    /// The restarts of each child.
    pub(crate) fn child_statuses(&self) -> Vec<ChildStatus> {
        let persistence = ChildStatus { name: "Persistence".into(), restarts: 0 };
        let others = self.children.iter().map(|child| {
            let name: &str = child.kind.into();
            ChildStatus { name: name.into(), restarts: child.restarts }
        });
        std::iter::once(persistence).chain(others).collect()
    }

    /// Publishes the reason, unless there is one already, and wakes all waiters.
    fn publish_end(&self, reason: RuntimeEnd) {
        self.terminated.send_if_modified(|end| {
            let is_first = end.is_none();
            end.get_or_insert(reason);
            is_first
        });
        let parts = &self.parts;
        parts.sessions.close();
        parts.providers.close();
        parts.executor.shut_down();
        parts.compressor.actor.close();
        parts.scheduler.actor.close();
        parts.hub.wake_all();
    }
}

impl Drop for RootState {
    /// Publishes an end in every case, so that no caller waits for ever.
    fn drop(&mut self) {
        self.publish_end(RuntimeEnd::Actor { name: "Root", error: "it died without a word".into() });
    }
}

/// The store's error, if a child ended with one.
fn store_failure(error: &ActorProcessingErr) -> Option<RuntimeEnd> {
    let write = error.downcast_ref::<JournalError>().map(ToString::to_string);
    let read = error.downcast_ref::<ReadError>().map(ToString::to_string);
    write.or(read).map(RuntimeEnd::Store)
}
