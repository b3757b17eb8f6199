//! Writes the states of deliveries, for what delivers the messages of the outbox. The messages themselves are written by
//! the sessions (`core/turn/outbox.rs`).

use super::{RunError, Runtime};
use crate::{
    model::StoredDelivery,
    persistence::{self, WriteResult},
    port::ReadError,
};

impl Runtime {
    /// Writes the state of a delivery that is pending until now. False if it is not pending any more.
    pub async fn update_delivery(&self, delivery: StoredDelivery) -> Result<bool, RunError> {
        written(persistence::update_delivery(&self.parts.persistence, delivery).await)
    }

    /// Makes a dead delivery pending again, behind all others of its target. False if it is not dead any more.
    pub async fn retry_delivery(&self, number: u64) -> Result<bool, RunError> {
        let now = self.parts.clock.at();
        written(persistence::retry_delivery(&self.parts.persistence, number, now).await)
    }
}

/// A refusal is not possible; a store that has failed ends the runtime.
fn written(result: WriteResult<bool>) -> Result<bool, RunError> {
    let unavailable = |why: String| RunError::Read(ReadError::Unavailable(why));
    match result {
        Ok(Ok(is_changed)) => Ok(is_changed),
        Ok(Err(refusal)) => Err(unavailable(refusal.to_string())),
        Err(error) => Err(unavailable(error.to_string())),
    }
}
