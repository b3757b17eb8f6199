//! Where a part of the tree is. A restarted actor has a new reference and an empty mailbox, so nobody holds a reference
//! across a restart: what is to be said is said here.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ractor::{ActorRef, Message, MessagingErr};

/// The address of an actor that may be started again. What is said while nobody is there waits: that is bounded, since
/// submissions carry permits, and all else comes from calls that have theirs.
#[derive(Debug)]
pub(crate) struct StableActorRef<M: Message>(Mutex<RefTarget<M>>);

#[derive(Debug)]
enum RefTarget<M: Message> {
    Running(ActorRef<M>),
    /// Dead, or not started yet.
    Restarting(Vec<M>),
    /// Nobody will be there any more.
    Closed,
}

/// Nobody will be there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ActorGone;

impl<M: Message> Default for StableActorRef<M> {
    fn default() -> Self {
        Self(Mutex::new(RefTarget::Restarting(Vec::new())))
    }
}

impl<M: Message> StableActorRef<M> {
    /// Says something to whoever is there, now or after the next start.
    pub(crate) fn cast(&self, message: M) -> Result<(), ActorGone> {
        let mut place = self.lock();
        match &mut *place {
            RefTarget::Running(actor) => match actor.cast(message) {
                Ok(()) => Ok(()),
                Err(MessagingErr::SendErr(message)) => {
                    *place = RefTarget::Restarting(vec![message]);
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

    /// The actor is there (again), and hears what was said meanwhile.
    pub(crate) fn set_running(&self, actor: ActorRef<M>) {
        let mut place = self.lock();
        let waiting = match std::mem::replace(&mut *place, RefTarget::Running(actor)) {
            RefTarget::Restarting(waiting) => waiting,
            RefTarget::Running(_) | RefTarget::Closed => Vec::new(),
        };
        drop(place);
        for message in waiting {
            if self.cast(message).is_err() {
                tracing::debug!("a message for a part that is gone");
            }
        }
    }

    /// Nobody will be there any more; what waits is dropped.
    pub(crate) fn close(&self) {
        let before = std::mem::replace(&mut *self.lock(), RefTarget::Closed);
        drop(before);
    }

    /// Who is there.
    #[cfg(feature = "testkit")]
    pub(crate) fn actor(&self) -> Option<ActorRef<M>> {
        match &*self.lock() {
            RefTarget::Running(actor) => Some(actor.clone()),
            RefTarget::Restarting(_) | RefTarget::Closed => None,
        }
    }

    /// No panic leaves a place half changed.
    fn lock(&self) -> MutexGuard<'_, RefTarget<M>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
