//! The answer to `runs.follow`: the events of a run, then its end.

use std::{pin::pin, sync::Arc};

use hermod_actors::{
    RunError, Runtime,
    model::{RunRow, RunState, Seq},
};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};

use super::{
    commands::RuntimeSlot,
    disk_full::DiskFullMonitor,
    error::RequestError,
    follow::{FollowStep, RunFollower},
    followed_event::FollowedEvent,
    handler::{HEARTBEAT_INTERVAL, send, with_heartbeats},
    protocol::ControlResponse,
    submission::SubmissionService,
};

/// Sends the events of a run to `to`, from the record `from` of its session on. Returns the last line; `None` if the client
/// is gone or the runtime has ended.
pub(super) async fn follow(
    slot: &RuntimeSlot,
    row: RunRow,
    from: Seq,
    to: &mpsc::Sender<ControlResponse>,
) -> Result<Option<ControlResponse>, RequestError> {
    let followed = async {
        let attached = with_heartbeats(async { Ok(slot.attached().await) }, to).await?.flatten();
        let Some((runtime, submissions)) = attached else { return Ok(None) };
        follow_attached((&runtime, &*submissions), row, from, to).await
    };
    // A follower is no command under way: the end of the process does not wait for it.
    tokio::select! {
        biased;
        () = slot.closed() => Ok(None),
        followed = followed => followed,
    }
}

async fn follow_attached(
    (runtime, submissions): (&Arc<Runtime>, &dyn SubmissionService),
    row: RunRow,
    from: Seq,
    to: &mpsc::Sender<ControlResponse>,
) -> Result<Option<ControlResponse>, RequestError> {
    let mut follower = RunFollower::new(runtime, row.id, runtime.watch(row.session, from));
    if let Some(end) = end_before(runtime, &follower, &row, from).await? {
        return Ok(Some(last_line(end)));
    }
    let mut revived = pin!(async {
        match runtime.row(row.id).await?.state {
            RunState::Ended => Ok(()),
            RunState::Queued | RunState::Running | RunState::Parked => submissions.revive(row.session).await,
        }
    });
    let (mut is_revived, mut disk) = (false, DiskFullMonitor::new(runtime));
    let mut ticks = interval(HEARTBEAT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let line = tokio::select! {
            revival = &mut revived, if !is_revived => {
                is_revived = true;
                revival?;
                continue;
            }
            step = follower.next() => match step? {
                FollowStep::Event(event) => {
                    let event = FollowedEvent::new(event).map_err(|error| {
                        RequestError::internal(format!("an event cannot be shown as JSON: {error}"))
                    })?;
                    let Some(event) = event else { continue };
                    ticks.reset();
                    ControlResponse::Followed(event)
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
