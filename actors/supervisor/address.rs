//! Where a part of the tree is. A restarted actor has a new reference and an empty mailbox, so nobody holds a reference
//! across a restart: what is to be said is said here.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ractor::{ActorRef, Message, MessagingErr};

/// The address of an actor that may be started again. What is said while nobody is there waits: that is bounded, since
/// submissions carry permits, and all else comes from calls that have theirs.
#[derive(Debug)]
pub(crate) struct Address<M: Message>(Mutex<Place<M>>);

#[derive(Debug)]
enum Place<M: Message> {
    Here(ActorRef<M>),
    /// Dead, or not started yet.
    Away(Vec<M>),
    /// Nobody will be there any more.
    Closed,
}

/// Nobody will be there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

impl<M: Message> Default for Address<M> {
    fn default() -> Self {
        Self(Mutex::new(Place::Away(Vec::new())))
    }
}

impl<M: Message> Address<M> {
    /// Says something to whoever is there, now or after the next start.
    pub(crate) fn cast(&self, message: M) -> Result<(), Closed> {
        let mut place = self.place();
        match &mut *place {
            Place::Here(actor) => match actor.cast(message) {
                Ok(()) => Ok(()),
                Err(MessagingErr::SendErr(message)) => {
                    *place = Place::Away(vec![message]);
                    Ok(())
                }
                Err(_) => Err(Closed),
            },
            Place::Away(waiting) => {
                waiting.push(message);
                Ok(())
            }
            Place::Closed => Err(Closed),
        }
    }

    /// The actor is there (again), and hears what was said meanwhile.
    pub(crate) fn arrive(&self, actor: ActorRef<M>) {
        let mut place = self.place();
        let waiting = match std::mem::replace(&mut *place, Place::Here(actor)) {
            Place::Away(waiting) => waiting,
            Place::Here(_) | Place::Closed => Vec::new(),
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
        let before = std::mem::replace(&mut *self.place(), Place::Closed);
        drop(before);
    }

    /// Who is there.
    #[cfg(feature = "testkit")]
    pub(crate) fn actor(&self) -> Option<ActorRef<M>> {
        match &*self.place() {
            Place::Here(actor) => Some(actor.clone()),
            Place::Away(_) | Place::Closed => None,
        }
    }

    /// No panic leaves a place half changed.
    fn place(&self) -> MutexGuard<'_, Place<M>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
