//! Waiting for a lease: what can end by itself at any moment is waited for here, in a task; a time that a provider has
//! named is the session's to record.

use std::{future, pin::pin, sync::Arc, time::Duration};

use tokio::time::sleep;

use crate::{
    hub::DeltaBody,
    model::{Timestamp, UnansweredModel},
    policy::Candidate,
    provider::{Lease, LeaseUnavailable, QueuedPermit, WaitHint},
    session::{SessionDependencies, stream_publisher::StreamPublisher},
};

/// A wait whose end nobody knows is told to whoever watches when it has lasted so long.
const REPORT_WAIT_AFTER: Duration = Duration::from_secs(1);
/// A sleep until a time of the wall clock is cut here, in milliseconds: while a machine sleeps its monotonic clock may
/// stand still, and the wall clock goes on.
const WALL_CLOCK_POLL_MS: u64 = 60_000;
const AT_CAPACITY_REASON: &str = "as many calls as may be are under way";
const WARMING_UP_REASON: &str = "others find out whether it can be asked";

/// Waits until a link of the chain can be asked, or until it is known that none can be before a time that a provider has named;
/// with `most_ms`, that none can be within so many milliseconds.
pub(super) async fn wait_for_lease(
    wiring: &SessionDependencies,
    candidates: &[Candidate],
    published: &StreamPublisher,
    most_ms: Option<u64>,
) -> Result<Lease, Arc<[UnansweredModel]>> {
    let by = most_ms.map(|most_ms| wiring.clock.at().plus_ms(most_ms));
    let (mut permit, mut queued) = (None, None);
    let (mut long, mut is_long) = (pin!(sleep(REPORT_WAIT_AFTER)), false);
    loop {
        // Whoever listens before it looks misses no change.
        let mut changed = pin!(wiring.leases.changes().notified());
        changed.as_mut().enable();
        let now = wiring.clock.at();
        match wiring.leases.try_lease(candidates, (now, by), permit.take()) {
            Ok(lease) => return Ok(lease),
            Err(LeaseUnavailable::NoneAvailable(skipped)) => return Err(skipped.into()),
            Err(LeaseUnavailable::Queue(provider, permits)) => {
                // Whoever looks round meanwhile keeps its place.
                let mut place = match queued.take() {
                    Some((at, place)) if at == provider => place,
                    Some(_) | None => Box::pin(permits.acquire_owned()),
                };
                let until = wiring.leases.next_opening(candidates, now);
                tokio::select! {
                    biased;
                    got = &mut place => permit = got.ok().map(|permit| QueuedPermit(provider, permit)),
                    () = wait_for_change(changed, until, now) => queued = Some((provider, place)),
                    () = &mut long, if !is_long => {
                        (is_long, queued) = (true, Some((provider, place)));
                        published.publish(|| DeltaBody::Waiting { reason: AT_CAPACITY_REASON, until: None });
                    }
                }
            }
            Err(LeaseUnavailable::Wait(pause)) => {
                // Else it would keep room that it does not want.
                queued = None;
                if let Some(WaitHint { until, reason }) = pause {
                    published.publish(|| DeltaBody::Waiting { reason, until: Some(until) });
                }
                tokio::select! {
                    biased;
                    () = wait_for_change(changed, pause.map(|pause| pause.until), now) => {}
                    () = &mut long, if !is_long && pause.is_none() => {
                        is_long = true;
                        published.publish(|| DeltaBody::Waiting { reason: WARMING_UP_REASON, until: None });
                    }
                }
            }
        }
    }
}

/// In how many milliseconds whoever waits for a time of the wall clock looks whether it has come.
pub(super) fn next_poll_ms(until: Timestamp, now: Timestamp) -> u64 {
    until.ms_since(now).min(WALL_CLOCK_POLL_MS)
}

/// Resolves when somebody may be let through who was not before.
async fn wait_for_change(changed: impl Future<Output = ()>, until: Option<Timestamp>, now: Timestamp) {
    let time = async {
        match until {
            Some(until) => sleep(Duration::from_millis(next_poll_ms(until, now))).await,
            None => future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = changed => {}
        () = time => {}
    }
}
