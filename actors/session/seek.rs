//! Waiting for a lease: what can end by itself at any moment is waited for here, in a task; a time that a provider has
//! named is the session's to record.

use std::{future, sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    hub::Piece,
    model::{NotAnswered, Timestamp},
    policy::Candidate,
    provider::{Lease, NoLease, Pause, Permit},
    session::{Wiring, said::Published},
};

/// Waits until a link of the chain can be asked, or until it is known that none can be before a named time.
pub(super) async fn lease(
    wiring: &Wiring,
    candidates: &[Candidate],
    published: &Published,
) -> Result<Lease, Arc<[NotAnswered]>> {
    let mut changes = wiring.leases.changes();
    let (mut permit, mut queued) = (None, None);
    loop {
        changes.mark_unchanged();
        let now = wiring.clock.at();
        match wiring.leases.seek(candidates, now, permit.take()) {
            Ok(lease) => return Ok(lease),
            Err(NoLease::Nobody(skipped)) => return Err(skipped.into()),
            Err(NoLease::Queue(provider, permits)) => {
                // Whoever looks round meanwhile keeps its place.
                let mut place = match queued.take() {
                    Some((at, place)) if at == provider => place,
                    Some(_) | None => Box::pin(permits.acquire_owned()),
                };
                let until = wiring.leases.opens_at(candidates, now);
                tokio::select! {
                    biased;
                    got = &mut place => permit = got.ok().map(|permit| Permit(provider, permit)),
                    () = change(&mut changes, until, now) => queued = Some((provider, place)),
                }
            }
            Err(NoLease::Wait(pause)) => {
                // Else it would keep room that it does not want.
                queued = None;
                if let Some(Pause { until, reason }) = pause {
                    published.publish(|| Piece::Waits { reason, until });
                }
                change(&mut changes, pause.map(|pause| pause.until), now).await;
            }
        }
    }
}

/// Resolves when somebody may be let through who was not before.
async fn change(changes: &mut watch::Receiver<()>, until: Option<Timestamp>, now: Timestamp) {
    let time = async {
        match until {
            Some(until) => tokio::time::sleep(Duration::from_millis(until.ms_since(now))).await,
            None => future::pending().await,
        }
    };
    tokio::select! {
        biased;
        changed = changes.changed() => {
            if changed.is_err() {
                future::pending::<()>().await;
            }
        }
        () = time => {}
    }
}
