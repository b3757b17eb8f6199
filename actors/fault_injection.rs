//! Fault injection: makes an actor of a running runtime panic, fail or die.

use ractor::{ActorProcessingErr, ActorRef, Message};

use crate::{
    Runtime,
    compressor::CompressorMsg,
    inspect::Inspect,
    model::SessionId,
    provider::ProviderMsg,
    scheduler::SchedulerMsg,
    session::SessionMsg,
    supervisor::{Directory, ProvidersMsg, RootMsg, SessionsMsg},
    tool_executor::ToolExecutorMsg,
};

/// The actor that is to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActorKind {
    /// The root supervisor.
    Root,
    /// The only writer of the store. Every [`ActorFault`] kills it; a `FaultyJournal` makes it fail otherwise.
    Persistence,
    /// The supervisor of the providers.
    ProviderSupervisor,
    /// The provider `test` of the test kit's world.
    Provider,
    /// The actor that gives permits to tool calls.
    ToolExecutor,
    /// The actor that admits summary calls.
    Compressor,
    /// The actor that starts the runs of schedules.
    Scheduler,
    /// The supervisor of the sessions, with their directory.
    SessionSupervisor,
    /// A live session.
    Session(SessionId),
}

/// How an actor is made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActorFault {
    /// Its handler panics.
    Panic,
    /// Its handler ends with an error.
    Error,
    /// The actor is killed: none of its code runs any more.
    Kill,
}

impl ActorFault {
    fn inspection<S>(self) -> Inspect<S> {
        Inspect::new(move |_| match self {
            Self::Panic => panic!("struck"),
            Self::Error | Self::Kill => Err(ActorProcessingErr::from("struck")),
        })
    }
}

/// Makes an actor fail; panics if the fault cannot be sent. Resolves when the fault is sent, which may be before the
/// actor fails.
pub async fn inject(runtime: &Runtime, kind: ActorKind, fault: ActorFault) {
    assert!(inject_if_alive(runtime, kind, fault).await, "the actor that is to be struck is there");
}

/// Makes an actor fail if it is there to receive the fault; returns whether it was. A fault for a session that is not
/// killed goes through the session's supervisor: only the supervisor's presence is checked then.
pub async fn inject_if_alive(runtime: &Runtime, kind: ActorKind, fault: ActorFault) -> bool {
    let (root, parts) = runtime.parts_for_tests();
    match kind {
        ActorKind::Root => {
            inject_into(fault, Some(root.clone()), |actor| send(actor, RootMsg::Inspect(fault.inspection())))
        }
        ActorKind::Persistence => {
            parts.persistence.kill();
            true
        }
        ActorKind::ProviderSupervisor => inject_into(fault, parts.providers.actor(), |actor| {
            send(actor, ProvidersMsg::Inspect(fault.inspection()))
        }),
        ActorKind::Provider => {
            let actor = parts.leases.gates().get("test").and_then(|gate| gate.actor.actor());
            inject_into(fault, actor, |actor| send(actor, ProviderMsg::Inspect(fault.inspection())))
        }
        ActorKind::ToolExecutor => inject_into(fault, parts.executor.actor.actor(), |actor| {
            send(actor, ToolExecutorMsg::Inspect(fault.inspection()))
        }),
        ActorKind::Compressor => inject_into(fault, parts.compressor.actor.actor(), |actor| {
            send(actor, CompressorMsg::Inspect(fault.inspection()))
        }),
        ActorKind::Scheduler => inject_into(fault, parts.scheduler.actor.actor(), |actor| {
            send(actor, SchedulerMsg::Inspect(fault.inspection()))
        }),
        ActorKind::SessionSupervisor => inject_into(fault, parts.sessions.actor(), |actor| {
            send(actor, SessionsMsg::Inspect(fault.inspection()))
        }),
        ActorKind::Session(session) if fault == ActorFault::Kill => {
            let (inspection, actor) = Inspect::read(move |directory: &Directory| directory.actor(session));
            inject_into(ActorFault::Panic, parts.sessions.actor(), |actor| {
                send(actor, SessionsMsg::Inspect(inspection))
            });
            let Ok(Some(actor)) = actor.await else { return false };
            actor.kill();
            true
        }
        ActorKind::Session(session) => {
            let message = SessionsMsg::Deliver(session, None, SessionMsg::Inspect(fault.inspection()));
            inject_into(ActorFault::Error, parts.sessions.actor(), |actor| send(actor, message))
        }
    }
}

fn inject_into<M: Message>(
    fault: ActorFault,
    actor: Option<ActorRef<M>>,
    deliver: impl FnOnce(ActorRef<M>) -> bool,
) -> bool {
    let Some(actor) = actor else { return false };
    match fault {
        ActorFault::Kill => {
            actor.kill();
            true
        }
        ActorFault::Panic | ActorFault::Error => deliver(actor),
    }
}

fn send<M: Message>(actor: ActorRef<M>, message: M) -> bool {
    actor.cast(message).is_ok()
}
