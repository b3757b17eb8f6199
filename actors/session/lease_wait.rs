//! Waiting for a lease, in a task: for a permit, a probe or a limit per minute. A reset time that a provider reported
//! is not waited for here: the session records it. Also bounds the sleep until a wall-clock time.

use std::{future, pin::pin, sync::Arc, time::Duration};

use tokio::time::sleep;

use crate::{
    hub::DeltaBody,
    model::{Timestamp, UnansweredModel},
    policy::Candidate,
    provider::{Lease, LeaseUnavailable, WaitHint},
    session::stream_publisher::StreamPublisher,
    supervisor::RuntimeParts,
};

/// A wait without a known end is reported to watchers after this time.
const REPORT_WAIT_AFTER: Duration = Duration::from_secs(1);
/// Most milliseconds of one sleep until a wall-clock time: while a machine sleeps, its monotonic clock may stop, but
/// the wall clock continues.
const WALL_CLOCK_POLL_MS: u64 = 60_000;
const AT_CAPACITY_REASON: &str = "as many calls as may be are under way";
const WARMING_UP_REASON: &str = "others find out whether it can be asked";

/// Waits until one of the candidates can be called. Fails if none is available before a time that a provider reported,
/// or within `max_ms` milliseconds, if given.
pub(super) async fn wait_for_lease(
    parts: &RuntimeParts,
    candidates: &[Candidate],
    publisher: &StreamPublisher,
    max_ms: Option<u64>,
) -> Result<Lease, Arc<[UnansweredModel]>> {
    let deadline = max_ms.map(|max_ms| parts.clock.at().plus_ms(max_ms));
    let (mut permit, mut queued) = (None, None);
    let (mut report_timer, mut is_reported) = (pin!(sleep(REPORT_WAIT_AFTER)), false);
    loop {
        // Subscribes before it checks, so that it misses no change.
        let mut changed = pin!(parts.leases.changes().notified());
        changed.as_mut().enable();
        let now = parts.clock.at();
        match parts.leases.try_lease(candidates, (now, deadline), permit.take()) {
            Ok(lease) => return Ok(lease),
            Err(LeaseUnavailable::NoneAvailable(skipped)) => return Err(skipped.into()),
            Err(LeaseUnavailable::Queue(permits)) => {
                // Keeps its place in the queue during other checks.
                let mut acquisition = match queued.take() {
                    Some((queue, acquisition)) if Arc::ptr_eq(&queue, &permits) => acquisition,
                    Some(_) | None => Box::pin(Arc::clone(&permits).acquire_owned()),
                };
                let until = parts.leases.next_opening(candidates, now);
                tokio::select! {
                    biased;
                    got = &mut acquisition => permit = got.ok(),
                    () = wait_for_change(changed, until, now) => queued = Some((permits, acquisition)),
                    () = &mut report_timer, if !is_reported => {
                        (is_reported, queued) = (true, Some((permits, acquisition)));
                        publisher.publish(|| DeltaBody::Waiting { reason: AT_CAPACITY_REASON, until: None });
                    }
                }
            }
            Err(LeaseUnavailable::Wait(pause)) => {
                // A queued permit would occupy a place that this wait does not need.
                queued = None;
                if let Some(WaitHint { until, reason }) = pause {
                    publisher.publish(|| DeltaBody::Waiting { reason, until: Some(until) });
                }
                tokio::select! {
                    biased;
                    () = wait_for_change(changed, pause.map(|pause| pause.until), now) => {}
                    () = &mut report_timer, if !is_reported && pause.is_none() => {
                        is_reported = true;
                        publisher.publish(|| DeltaBody::Waiting { reason: WARMING_UP_REASON, until: None });
                    }
                }
            }
        }
    }
}

/// Milliseconds until the next poll of a wall-clock time, at most 60,000.
pub(super) fn next_poll_ms(until: Timestamp, now: Timestamp) -> u64 {
    until.ms_since(now).min(WALL_CLOCK_POLL_MS)
}

/// Resolves when the availability of a link may have changed.
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
