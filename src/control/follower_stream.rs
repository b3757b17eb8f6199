//! The answers to `runs.follow`, `sessions.follow` and `feed.follow`: the events of a run and its end, those of a session, or
//! the records of all sessions.

use std::{pin::pin, sync::Arc};

use hermod_actors::{
    RunError, Runtime,
    model::{RunRow, RunState, Seq, SessionEvent, SessionId},
    port::FeedCursor,
};
use tokio::{
    sync::mpsc,
    time::{Interval, MissedTickBehavior, interval},
};

use super::{
    commands::RuntimeSlot,
    disk_full::DiskFullMonitor,
    error::RequestError,
    follow::{FollowStep, RunFollower},
    followed_event::{FedRecord, FollowedEvent},
    handler::{HEARTBEAT_INTERVAL, send, with_heartbeats},
    protocol::ControlResponse,
    submission::SubmissionService,
};

/// The last line of an answer; `None` if the client is gone or the runtime has ended.
type LastLine = Result<Option<ControlResponse>, RequestError>;

/// Sends the events of a run to `to`, from the record `from` of its session on; without `from`, from the run's first one.
/// An unfinished run goes on if `revives`.
pub(super) async fn follow(
    slot: &RuntimeSlot,
    row: RunRow,
    (from, revives): (Option<Seq>, bool),
    to: &mpsc::Sender<ControlResponse>,
) -> LastLine {
    let from = from.unwrap_or(row.first);
    let follow = |attached: Attached| async move {
        let (runtime, submissions) = attached;
        let submissions = revives.then_some(&*submissions);
        follow_attached((&runtime, submissions), row, from, to).await
    };
    while_attached(slot, to, follow).await
}

/// Sends the events of a session to `to`, from the record `from` on, until the client goes.
pub(super) async fn follow_session(
    slot: &RuntimeSlot,
    (session, from): (SessionId, Seq),
    to: &mpsc::Sender<ControlResponse>,
) -> LastLine {
    let follow = |(runtime, _): Attached| async move {
        let (mut watch, mut ticks) = (runtime.watch(session, from), heartbeats());
        loop {
            let line = tokio::select! {
                event = watch.next() => {
                    ticks.reset();
                    followed(event.map_err(RunError::Read)?)?
                }
                _ = ticks.tick() => ControlResponse::Heartbeat {},
                _ = runtime.wait_for_end() => return Ok(None),
            };
            if !send(to, line).await {
                return Ok(None);
            }
        }
    };
    while_attached(slot, to, follow).await
}

/// Sends the records of all sessions to `to`, from the place `after` on, until the client goes. Without `after`, from now on.
pub(super) async fn follow_feed(
    slot: &RuntimeSlot,
    after: Option<FeedCursor>,
    to: &mpsc::Sender<ControlResponse>,
) -> LastLine {
    let follow = |(runtime, _): Attached| async move {
        let after = match after {
            Some(after) => after,
            None => runtime.feed_end().await.map_err(RunError::Read)?,
        };
        let (mut feed, mut ticks) = (runtime.feed(after), heartbeats());
        loop {
            let line = tokio::select! {
                entry = feed.next() => {
                    ticks.reset();
                    let record = FedRecord::new(entry.map_err(RunError::Read)?.entry()).map_err(unreadable)?;
                    ControlResponse::Fed(record)
                }
                _ = ticks.tick() => ControlResponse::Heartbeat {},
                _ = runtime.wait_for_end() => return Ok(None),
            };
            if !send(to, line).await {
                return Ok(None);
            }
        }
    };
    while_attached(slot, to, follow).await
}

/// The runtime, and what takes submissions.
type Attached = (Arc<Runtime>, Arc<dyn SubmissionService>);

/// Waits for the runtime, with heartbeats, then lets `follow` send its lines until the slot is closed. A follower is no command
/// under way: the end of the process does not wait for it.
async fn while_attached<F: Future<Output = LastLine>>(
    slot: &RuntimeSlot,
    to: &mpsc::Sender<ControlResponse>,
    follow: impl FnOnce(Attached) -> F,
) -> LastLine {
    let followed = async {
        let attached = with_heartbeats(async { Ok(slot.attached().await) }, to).await?.flatten();
        match attached {
            Some(attached) => follow(attached).await,
            None => Ok(None),
        }
    };
    tokio::select! {
        biased;
        () = slot.closed() => Ok(None),
        followed = followed => followed,
    }
}

fn heartbeats() -> Interval {
    let mut ticks = interval(HEARTBEAT_INTERVAL);
    // The first tick of an interval is at once.
    ticks.reset();
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

fn followed(event: SessionEvent) -> Result<ControlResponse, RequestError> {
    Ok(ControlResponse::Followed(FollowedEvent::new(event).map_err(unreadable)?))
}

fn unreadable(error: serde_json::Error) -> RequestError {
    RequestError::internal(format!("an event cannot be shown as JSON: {error}"))
}

async fn follow_attached(
    (runtime, submissions): (&Arc<Runtime>, Option<&dyn SubmissionService>),
    row: RunRow,
    from: Seq,
    to: &mpsc::Sender<ControlResponse>,
) -> LastLine {
    let mut follower = RunFollower::new(runtime, row.id, runtime.watch(row.session, from));
    if let Some(end) = end_before(runtime, &follower, &row, from).await? {
        return Ok(Some(last_line(end)));
    }
    let mut revived = pin!(async {
        match (submissions, runtime.row(row.id).await?.state) {
            (None, _) | (Some(_), RunState::Ended) => Ok(()),
            (Some(submissions), RunState::Queued | RunState::Running | RunState::Parked) => {
                submissions.revive(row.session).await
            }
        }
    });
    let (mut is_revived, mut disk, mut ticks) = (false, DiskFullMonitor::new(runtime), heartbeats());
    loop {
        let line = tokio::select! {
            revival = &mut revived, if !is_revived => {
                is_revived = true;
                revival?;
                continue;
            }
            step = follower.next() => match step? {
                FollowStep::Event(event) => {
                    ticks.reset();
                    followed(event)?
                }
                end @ (FollowStep::Ended(_) | FollowStep::Parked(_)) => return Ok(Some(last_line(end))),
            },
            text = disk.next_change() => ControlResponse::Note { text },
            _ = ticks.tick() => ControlResponse::Heartbeat {},
            _ = runtime.wait_for_end() => return Ok(None),
        };
        if !send(to, line).await {
            return Ok(None);
        }
    }
}

/// The end of a run that ended or was parked before the record `from`: no further record tells of it.
async fn end_before(
    runtime: &Runtime,
    follower: &RunFollower,
    row: &RunRow,
    from: Seq,
) -> Result<Option<FollowStep>, RunError> {
    let now = runtime.row(row.id).await?;
    if now.state == RunState::Ended {
        return if now.last < from { follower.end().await } else { Ok(None) };
    }
    // Of a session that is not live, the revival may find that the question has expired.
    let Some(parked) = follower.parked().await? else { return Ok(None) };
    let is_known = runtime.row(parked).await?.last < from;
    let is_live = runtime.health_probe().runs(row.session).await;
    Ok((is_known && is_live).then_some(FollowStep::Parked(parked)))
}

fn last_line(end: FollowStep) -> ControlResponse {
    match end {
        FollowStep::Ended(result) => ControlResponse::RunEnded(result),
        FollowStep::Parked(run) => ControlResponse::RunParked { run },
        FollowStep::Event(_) => ControlResponse::End {},
    }
}
