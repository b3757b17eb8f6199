//! Waiting for a lease: what can end by itself at any moment is waited for here, in a task; a time that a provider has
//! named is the session's to record.

use std::{future, pin::pin, sync::Arc, time::Duration};

use tokio::time::sleep;

use crate::{
    hub::Piece,
    model::{NotAnswered, Timestamp},
    policy::Candidate,
    provider::{Lease, NoLease, Pause, Permit},
    session::{Wiring, said::Published},
};

/// A wait whose end nobody knows is told to whoever watches when it has lasted so long.
const LONG: Duration = Duration::from_secs(1);
/// A sleep until a time of the wall clock is cut here, in milliseconds: while a machine sleeps its monotonic clock may
/// stand still, and the wall clock goes on.
const LOOK_AGAIN: u64 = 60_000;
const FULL: &str = "as many calls as may be are under way";
const STARTING: &str = "others find out whether it can be asked";

/// Waits until a link of the chain can be asked, or until it is known that none can be before a time that a provider has named;
/// with `most_ms`, that none can be within so many milliseconds.
pub(super) async fn lease(
    wiring: &Wiring,
    candidates: &[Candidate],
    published: &Published,
    most_ms: Option<u64>,
) -> Result<Lease, Arc<[NotAnswered]>> {
    let by = most_ms.map(|most_ms| wiring.clock.at().plus_ms(most_ms));
    let (mut permit, mut queued) = (None, None);
    let (mut long, mut is_long) = (pin!(sleep(LONG)), false);
    loop {
        // Whoever listens before it looks misses no change.
        let mut changed = pin!(wiring.leases.changes().notified());
        changed.as_mut().enable();
        let now = wiring.clock.at();
        match wiring.leases.seek(candidates, (now, by), permit.take()) {
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
                    () = change(changed, until, now) => queued = Some((provider, place)),
                    () = &mut long, if !is_long => {
                        (is_long, queued) = (true, Some((provider, place)));
                        published.publish(|| Piece::Waits { reason: FULL, until: None });
                    }
                }
            }
            Err(NoLease::Wait(pause)) => {
                // Else it would keep room that it does not want.
                queued = None;
                if let Some(Pause { until, reason }) = pause {
                    published.publish(|| Piece::Waits { reason, until: Some(until) });
                }
                tokio::select! {
                    biased;
                    () = change(changed, pause.map(|pause| pause.until), now) => {}
                    () = &mut long, if !is_long && pause.is_none() => {
                        is_long = true;
                        published.publish(|| Piece::Waits { reason: STARTING, until: None });
                    }
                }
            }
        }
    }
}

/// In how many milliseconds whoever waits for a time of the wall clock looks whether it has come.
pub(super) fn look_in(until: Timestamp, now: Timestamp) -> u64 {
    until.ms_since(now).min(LOOK_AGAIN)
}

/// Resolves when somebody may be let through who was not before.
async fn change(changed: impl Future<Output = ()>, until: Option<Timestamp>, now: Timestamp) {
    let time = async {
        match until {
            Some(until) => sleep(Duration::from_millis(look_in(until, now))).await,
            None => future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = changed => {}
        () = time => {}
    }
}
