//! What lets others look at an actor's state.

use std::{any::type_name, fmt};

use ractor::ActorProcessingErr;
use tokio::sync::oneshot;

type InspectFn<S> = Box<dyn FnOnce(&S) -> Result<(), ActorProcessingErr> + Send>;

/// Something that is done with an actor's state in the actor's own handler. An error or a panic in it is the actor's: that
/// is how the testkit makes an actor fail.
pub(crate) struct Inspect<S>(InspectFn<S>);

impl<S> fmt::Debug for Inspect<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Look at {}", type_name::<S>())
    }
}

impl<S> Inspect<S> {
    /// Does this with the state.
    pub(crate) fn new(look: impl FnOnce(&S) -> Result<(), ActorProcessingErr> + Send + 'static) -> Self {
        Self(Box::new(look))
    }

    /// Reads something of the state. The receiver resolves with it, or with an error if the actor dies first.
    pub(crate) fn read<T: Send + 'static>(
        read: impl FnOnce(&S) -> T + Send + 'static,
    ) -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        let look = Self::new(move |state| {
            if sender.send(read(state)).is_err() {
                tracing::debug!("nobody waits for what was looked at any more");
            }
            Ok(())
        });
        (look, receiver)
    }

    /// Looks.
    pub(crate) fn run(self, state: &S) -> Result<(), ActorProcessingErr> {
        (self.0)(state)
    }
}
