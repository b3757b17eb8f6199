//! Messages for targets that the configuration does not have any more: they wait for the target to come back, and are dead
//! letters once they are too old.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hermod_actors::{
    model::{Delivery, DeliveryState, StoredDelivery, Timestamp},
    port::ReadError,
};
use tokio_util::sync::CancellationToken;

use super::outbox::{Outbox, RuntimeGone};

/// Makes the messages dead that wait for a target that is gone, and are older than `max_age`. Returns the targets for
/// which younger ones wait.
pub(super) async fn give_up(
    outbox: &Outbox,
    known: &Arc<BTreeSet<Arc<str>>>,
    (now, max_age): (Timestamp, Duration),
) -> Result<Result<BTreeSet<Arc<str>>, RuntimeGone>, ReadError> {
    loop {
        let waiting = outbox.without(known).await?;
        let (old, young): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|stored| is_too_old(&stored.delivery, now, max_age));
        if old.is_empty() {
            return Ok(Ok(young.into_iter().map(|stored| stored.delivery.message.target).collect()));
        }
        for stored in old {
            let dead = dead_letter(stored, now);
            let (id, target) = (&dead.delivery.message.id, &dead.delivery.message.target);
            tracing::error!(to = &**target, %id, "a message is a dead letter: its target is gone");
            if let Err(gone) = outbox.write(&dead, &CancellationToken::new()).await {
                return Ok(Err(gone));
            }
        }
    }
}

fn is_too_old(delivery: &Delivery, now: Timestamp, max_age: Duration) -> bool {
    Duration::from_millis(now.ms_since(delivery.since)) >= max_age
}

fn dead_letter(stored: StoredDelivery, now: Timestamp) -> StoredDelivery {
    let target = &stored.delivery.message.target;
    let why = format!("given up, as it is too old; there is no target `{target}` any more");
    let delivery = Delivery {
        state: DeliveryState::Dead,
        next_at: None,
        error: Some(why.into()),
        ended_at: Some(now),
        ..stored.delivery
    };
    StoredDelivery { delivery, ..stored }
}
