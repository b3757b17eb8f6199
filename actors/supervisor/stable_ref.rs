//! A reference to an actor that survives its restarts. A restarted actor has a new `ActorRef` and an empty mailbox, so
//! no other code keeps an `ActorRef` across a restart.

use std::sync::Mutex;

use ractor::{ActorRef, Message, MessagingErr};

use crate::lock;

/// A stable reference. Messages wait while the actor is down. Of the waiting messages only submissions are bounded, by
/// their permits.
#[derive(Debug)]
pub(crate) struct StableActorRef<M: Message>(Mutex<RefTarget<M>>);

#[derive(Debug)]
enum RefTarget<M: Message> {
    Running(ActorRef<M>),
    /// Crashed, or not started yet.
    Restarting(Vec<M>),
    /// The actor will not be started again.
    Closed,
}

/// The actor is gone for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ActorGone;

impl<M: Message> Default for StableActorRef<M> {
    fn default() -> Self {
        Self(Mutex::new(RefTarget::Restarting(Vec::new())))
    }
}

impl<M: Message> StableActorRef<M> {
    /// Sends a message to the actor, now or after its next start.
    pub(crate) fn cast(&self, message: M) -> Result<(), ActorGone> {
        let mut target = lock(&self.0);
        match &mut *target {
            RefTarget::Running(actor) => match actor.cast(message) {
                Ok(()) => Ok(()),
                Err(MessagingErr::SendErr(message)) => {
                    *target = RefTarget::Restarting(vec![message]);
                    Ok(())
                }
                Err(_) => Err(ActorGone),
            },
            RefTarget::Restarting(waiting) => {
                waiting.push(message);
                Ok(())
            }
            RefTarget::Closed => Err(ActorGone),
        }
    }

    /// The actor runs (again): sends it the waiting messages.
    pub(crate) fn set_running(&self, actor: ActorRef<M>) {
        let mut target = lock(&self.0);
        let waiting = match std::mem::replace(&mut *target, RefTarget::Running(actor)) {
            RefTarget::Restarting(waiting) => waiting,
            RefTarget::Running(_) | RefTarget::Closed => Vec::new(),
        };
        drop(target);
        for message in waiting {
            if self.cast(message).is_err() {
                tracing::debug!("a message for a part that is gone");
            }
        }
    }

    /// Closes the reference for good; waiting messages are dropped.
    pub(crate) fn close(&self) {
        let before = std::mem::replace(&mut *lock(&self.0), RefTarget::Closed);
        drop(before);
    }

    /// The running actor.
    #[cfg(feature = "testkit")]
    pub(crate) fn actor(&self) -> Option<ActorRef<M>> {
        if let RefTarget::Running(actor) = &*lock(&self.0) { Some(actor.clone()) } else { None }
    }
}
