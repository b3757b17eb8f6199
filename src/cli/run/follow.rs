use hermod_actors::{
    RunError, RunResult, Runtime, Watch,
    model::{Body, EventBody, Record, RunId, RunState, StopReason},
};

use crate::cli::{
    exit::{Exit, Failure},
    hold::Signals,
    output::Teller,
    progress::Progress,
};

/// How waiting for a run ended.
#[derive(Debug)]
pub(crate) enum Followed {
    /// With the run's outcome.
    Ended(Box<RunResult>),
    /// Because it, or the run that it waits for, waits for a person, and nothing else of that is under way.
    Parked,
    /// By a signal: the run has no outcome yet and goes on at the next start.
    Left(Exit),
}

/// Tells what a run does until it ends, is parked, or a signal comes. The first SIGINT stops the run, a second one leaves it at
/// that; SIGTERM leaves at once.
pub(crate) async fn follow(
    runtime: &Runtime,
    run: RunId,
    (mut progress, mut teller): (Progress, Teller),
    (mut watch, signals): (Watch, &mut Signals),
) -> Result<Followed, Failure> {
    let mut stopping = false;
    loop {
        tokio::select! {
            biased;
            _ = signals.terminate.recv() => return left(runtime, run, Exit::Suspended).await,
            _ = signals.interrupt.recv() => {
                if stopping {
                    return left(runtime, run, Exit::Interrupted).await;
                }
                stopping = true;
                runtime.stop(run, StopReason::Signal).await?;
            }
            event = watch.next() => {
                let event = event.map_err(RunError::Read)?;
                teller.take(&event.body);
                if let EventBody::Recorded { record } = event.body {
                    tell(&mut progress, &mut teller, &record);
                    if ends(&record, run) {
                        return Ok(Followed::Ended(Box::new(runtime.wait(run, None).await?)));
                    }
                    if may_park(&record) && is_held_up(runtime, run).await? {
                        return Ok(Followed::Parked);
                    }
                }
            }
            () = teller.frame() => teller.draw(),
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

fn tell(progress: &mut Progress, teller: &mut Teller, record: &Record) {
    if let Some(line) = progress.line(record) {
        teller.line(Progress::tone(record), &line);
    }
}

/// Whether a run may be held up by a person from this record on.
fn may_park(record: &Record) -> bool {
    matches!(
        &record.body,
        Body::ApprovalRequested(_) | Body::CallEnded(_) | Body::SessionRevived(_) | Body::RunAccepted(_)
    )
}

/// Whether the run is parked, or waits for one of its session that is.
async fn is_held_up(runtime: &Runtime, run: RunId) -> Result<bool, RunError> {
    let row = runtime.row(run).await?;
    match row.state {
        RunState::Parked => Ok(true),
        RunState::Running | RunState::Ended => Ok(false),
        RunState::Queued => {
            let open = runtime.open_runs().await?;
            Ok(open.iter().any(|other| other.session == row.session && other.state == RunState::Parked))
        }
    }
}

fn ends(record: &Record, run: RunId) -> bool {
    matches!(&record.body, Body::RunEnded(ended) if ended.run == run)
}
