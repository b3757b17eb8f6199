use hermod_actors::{
    RunResult, Runtime, Watch,
    model::{Body, EventBody, Record, RunId, RunRow, RunState, StopReason},
};

use super::subagents::Subagents;
use crate::{
    cli::{
        display::ProgressDisplay,
        exit::{Exit, Failure},
        hold::{Room, Signals},
        progress::Progress,
        terminal::Tone,
    },
    control::Reader,
};

/// How waiting for a run ended.
#[derive(Debug)]
pub(crate) enum Followed {
    /// With the run's outcome.
    Ended(Box<RunResult>),
    /// Because this run waits for a person, and nothing else is under way: it itself, or the one that it waits behind.
    Parked(RunId),
    /// By a signal: the run has no outcome yet and goes on at the next start.
    Left(Exit),
}

/// Tells what a run does until it ends, is parked, or a signal comes. The first SIGINT stops the run, a second one leaves it at
/// that; SIGTERM leaves at once.
pub(crate) async fn follow(
    runtime: &Runtime,
    run: RunId,
    (mut progress, display): (Progress, &mut ProgressDisplay),
    (mut watch, signals, reader): (Watch, &mut Signals, &Reader),
) -> Result<Followed, Failure> {
    let (mut stopping, mut room) = (false, Room::of(runtime));
    let mut subagents = Subagents::new(reader.clone(), runtime.vitals());
    display.show_run(run);
    loop {
        tokio::select! {
            biased;
            _ = signals.terminate.recv() => return left(runtime, run, Exit::Suspended).await,
            _ = signals.interrupt.recv() => {
                if stopping {
                    return left(runtime, run, Exit::Interrupted).await;
                }
                stopping = true;
                display.line(Tone::Action, &format!(
                    "interrupt the run is being stopped; again leaves it unfinished for `hermod run --resume {run}`"
                ));
                // A full disk may not take that for long.
                tokio::select! {
                    biased;
                    stopped = runtime.stop(run, StopReason::Signal) => stopped?,
                    exit = signals.either() => return left(runtime, run, exit).await,
                }
            }
            event = watch.next() => {
                let event = event.map_err(hermod_actors::RunError::Read)?;
                display.take(&event.body);
                if let EventBody::Recorded { record } = event.body {
                    tell(&mut progress, display, &record);
                    if display.is_live() && subagents.take(&record.body) {
                        display.show_subagents(Vec::new());
                    }
                    // Of an earlier leg an end may be told while the run goes on.
                    if ends(&record, run) && runtime.row(run).await?.state == RunState::Ended {
                        return Ok(Followed::Ended(Box::new(runtime.wait(run, None).await?)));
                    }
                    if may_park(&record) && let Some(parked) = parked(runtime, run).await? {
                        return Ok(Followed::Parked(parked));
                    }
                }
            }
            line = room.changes() => display.line(Tone::Action, &line),
            () = subagents.time() => display.show_subagents(subagents.look().await),
            () = display.frame() => display.draw(),
            reason = runtime.terminated() => return Err(reason.into()),
        }
    }
}

/// A run that has ended by now is not left.
async fn left(runtime: &Runtime, run: RunId, exit: Exit) -> Result<Followed, Failure> {
    if runtime.row(run).await?.state == RunState::Ended {
        return Ok(Followed::Ended(Box::new(runtime.wait(run, None).await?)));
    }
    Ok(Followed::Left(exit))
}

fn tell(progress: &mut Progress, display: &mut ProgressDisplay, record: &Record) {
    if let Some(line) = progress.line(record) {
        display.line(progress.tone(record), &line);
    }
    display.output(&progress.output(record, display.verbosity()));
}

/// Whether a run may be parked from this record on, or wait behind one that is.
fn may_park(record: &Record) -> bool {
    matches!(
        &record.body,
        Body::ApprovalRequested(_) | Body::CallEnded(_) | Body::SessionRevived(_) | Body::RunAccepted(_)
    )
}

/// The parked run that this one waits for: itself, or the first unfinished one of its session.
async fn parked(runtime: &Runtime, run: RunId) -> Result<Option<RunId>, Failure> {
    let row = runtime.row(run).await?;
    let first = match row.state {
        RunState::Queued => first_open(runtime, &row).await?,
        RunState::Parked => Some(row),
        RunState::Running | RunState::Ended => None,
    };
    Ok(first.filter(|first| first.state == RunState::Parked).map(|first| first.id))
}

async fn first_open(runtime: &Runtime, row: &RunRow) -> Result<Option<RunRow>, Failure> {
    let open = runtime.open_runs().await?.into_iter().filter(|other| other.session == row.session);
    Ok(open.min_by_key(|row| row.first))
}

fn ends(record: &Record, run: RunId) -> bool {
    matches!(&record.body, Body::RunEnded(ended) if ended.run == run)
}
