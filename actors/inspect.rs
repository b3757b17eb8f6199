//! Inspection of an actor's state in its own handler: for statuses, and for faults in tests.

use std::{any::type_name, fmt};

use ractor::ActorProcessingErr;
use tokio::sync::oneshot;

type InspectFn<S> = Box<dyn FnOnce(&S) -> Result<(), ActorProcessingErr> + Send>;

/// A function that is called with an actor's state in the actor's own handler. Its error or panic is the actor's: with
/// that the testkit makes an actor fail.
pub(crate) struct Inspect<S>(InspectFn<S>);

impl<S> fmt::Debug for Inspect<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Look at {}", type_name::<S>())
    }
}

impl<S> Inspect<S> {
    /// An inspection with this function.
    pub(crate) fn new(
        inspection: impl FnOnce(&S) -> Result<(), ActorProcessingErr> + Send + 'static,
    ) -> Self {
        Self(Box::new(inspection))
    }

    /// Reads a value of the state. The receiver resolves with it, or with an error if the actor crashes first.
    pub(crate) fn read<T: Send + 'static>(
        read: impl FnOnce(&S) -> T + Send + 'static,
    ) -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        let inspection = Self::new(move |state| {
            if sender.send(read(state)).is_err() {
                tracing::debug!("the reply to an inspection was dropped by its caller");
            }
            Ok(())
        });
        (inspection, receiver)
    }

    /// Calls the function.
    pub(crate) fn run(self, state: &S) -> Result<(), ActorProcessingErr> {
        (self.0)(state)
    }
}
