use ractor::{ActorProcessingErr, ActorRef, Message};

use crate::{
    Runtime,
    look::Look,
    model::SessionId,
    provider::ProviderMsg,
    session::SessionMsg,
    supervisor::{Directory, ProvidersMsg, RootMsg, SessionsMsg},
    tool_executor::ToolExecutorMsg,
};

/// A kind of actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The actor at the top.
    Root,
    /// The one writer. It can only be killed from here; a journal makes it fail.
    Persistence,
    /// Keeps the providers.
    ProviderSupervisor,
    /// The provider `test` of [`world`](super::world).
    Provider,
    /// The control plane of the tools.
    ToolExecutor,
    /// The directory.
    SessionSupervisor,
    /// A live session.
    Session(SessionId),
}

/// How an actor is made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strike {
    /// Its handler panics.
    Panic,
    /// Its handler ends with an error.
    Error,
    /// It is killed: none of its code runs any more.
    Kill,
}

impl Strike {
    fn look<S>(self) -> Look<S> {
        Look::new(move |_| match self {
            Self::Panic => panic!("struck"),
            Self::Error | Self::Kill => Err(ActorProcessingErr::from("struck")),
        })
    }
}

/// What came of a strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Struck {
    /// The actor was told to fail.
    Told,
    /// There was none.
    Absent,
}

/// Makes an actor fail, which must be there. Resolves when it was told to.
pub async fn strike(runtime: &Runtime, part: Part, how: Strike) {
    let struck = try_strike(runtime, part, how).await;
    assert_eq!(struck, Struck::Told, "the actor that is to be struck is there");
}

/// Makes an actor fail that may have gone by now.
pub async fn strike_perhaps(runtime: &Runtime, part: Part, how: Strike) {
    match try_strike(runtime, part, how).await {
        Struck::Told | Struck::Absent => {}
    }
}

/// Makes an actor fail, if it is there.
pub(super) async fn try_strike(runtime: &Runtime, part: Part, how: Strike) -> Struck {
    let (root, doors) = runtime.inside();
    let wiring = &doors.wiring;
    match part {
        Part::Root => hit(how, Some(root.clone()), |actor| said(actor, RootMsg::Look(how.look()))),
        Part::Persistence => {
            wiring.persistence.kill();
            Struck::Told
        }
        Part::ProviderSupervisor => {
            hit(how, wiring.providers.actor(), |actor| said(actor, ProvidersMsg::Look(how.look())))
        }
        Part::Provider => {
            let message = ProvidersMsg::To("test".into(), ProviderMsg::Look(how.look()));
            hit(Strike::Panic, wiring.providers.actor(), |actor| said(actor, message))
        }
        Part::ToolExecutor => {
            hit(how, wiring.executor.actor(), |actor| said(actor, ToolExecutorMsg::Look(how.look())))
        }
        Part::SessionSupervisor => {
            hit(how, doors.sessions.actor(), |actor| said(actor, SessionsMsg::Look(how.look())))
        }
        Part::Session(session) if how == Strike::Kill => {
            let (look, actor) = Look::read(move |directory: &Directory| directory.actor(session));
            hit(Strike::Panic, doors.sessions.actor(), |actor| said(actor, SessionsMsg::Look(look)));
            let Ok(Some(actor)) = actor.await else { return Struck::Absent };
            actor.kill();
            Struck::Told
        }
        Part::Session(session) => {
            let message = SessionsMsg::To(session, None, SessionMsg::Look(how.look()));
            hit(Strike::Error, doors.sessions.actor(), |actor| said(actor, message))
        }
    }
}

fn hit<M: Message>(
    how: Strike,
    actor: Option<ActorRef<M>>,
    say: impl FnOnce(ActorRef<M>) -> Struck,
) -> Struck {
    let Some(actor) = actor else { return Struck::Absent };
    match how {
        Strike::Kill => {
            actor.kill();
            Struck::Told
        }
        Strike::Panic | Strike::Error => say(actor),
    }
}

fn said<M: Message>(actor: ActorRef<M>, message: M) -> Struck {
    if actor.cast(message).is_ok() { Struck::Told } else { Struck::Absent }
}
