//! Follows the run of `hermod run` until it ends, is parked, or a signal comes. It passes events to the display, and
//! stops the run at the first SIGINT.

use hermod_actors::{
    RunResult, Runtime, Watch,
    model::{Body, EventBody, Record, RunId, RunRow, RunState, StopReason},
};

use super::subagents::SubagentMonitor;
use crate::{
    cli::{CliError, Exit, display::ProgressDisplay, progress::ProgressLines, terminal::Tone},
    control::StoreReader,
    host::{DiskFullMonitor, Signals},
};

/// How following a run ended.
#[derive(Debug)]
pub(crate) enum FollowOutcome {
    /// The run has its outcome.
    Ended(Box<RunResult>),
    /// This run waits for a person, and nothing else is in progress; it is the followed run or the one it is queued
    /// behind.
    Parked(RunId),
    /// A signal came; the run has no outcome yet and resumes at the next start.
    Interrupted(Exit),
}

/// Displays a run until it ends, is parked, or a signal comes. The first SIGINT stops the run, a second one leaves it
/// unfinished; SIGTERM leaves it at once.
pub(crate) async fn follow(
    runtime: &Runtime,
    run: RunId,
    (mut progress, display): (ProgressLines, &mut ProgressDisplay),
    (mut watch, signals, reader): (Watch, &mut Signals, &StoreReader),
) -> Result<FollowOutcome, CliError> {
    let (mut stopping, mut disk) = (false, DiskFullMonitor::new(runtime));
    let mut subagents = SubagentMonitor::new(reader.clone(), runtime.health_probe());
    display.show_run(run);
    loop {
        tokio::select! {
            biased;
            _ = signals.terminate.recv() => return on_signal(runtime, run, Exit::Suspended).await,
            _ = signals.interrupt.recv() => {
                if stopping {
                    return on_signal(runtime, run, Exit::Interrupted).await;
                }
                stopping = true;
                display.line(Tone::Action, &format!(
                    "interrupt the run is being stopped; again leaves it unfinished for `hermod run --resume {run}`"
                ));
                // On a full disk the stop may take long.
                tokio::select! {
                    biased;
                    stopped = runtime.stop(run, StopReason::Signal) => stopped?,
                    signal = signals.next() => return on_signal(runtime, run, signal.into()).await,
                }
            }
            event = watch.next() => {
                let event = event.map_err(hermod_actors::RunError::Read)?;
                display.take(&event.body);
                if let EventBody::Recorded { record } = event.body {
                    print_record(&mut progress, display, &record);
                    if display.is_live() && subagents.take(&record.body) {
                        display.show_subagents(Vec::new());
                    }
                    // The watch may deliver the end of an earlier leg while the run has been reopened.
                    if is_end_of(&record, run) && runtime.row(run).await?.state == RunState::Ended {
                        return Ok(FollowOutcome::Ended(Box::new(runtime.wait(run, None).await?)));
                    }
                    if may_park(&record) && let Some(parked) = parked_run(runtime, run).await? {
                        return Ok(FollowOutcome::Parked(parked));
                    }
                }
            }
            line = disk.next_change() => display.line(Tone::Action, &line),
            () = subagents.wait_for_poll() => display.show_subagents(subagents.poll().await),
            () = display.frame() => display.draw(),
            reason = runtime.wait_for_end() => return Err(reason.into()),
        }
    }
}

/// Reports the run's end if it has ended by now, else the interruption.
async fn on_signal(runtime: &Runtime, run: RunId, exit: Exit) -> Result<FollowOutcome, CliError> {
    if runtime.row(run).await?.state == RunState::Ended {
        return Ok(FollowOutcome::Ended(Box::new(runtime.wait(run, None).await?)));
    }
    Ok(FollowOutcome::Interrupted(exit))
}

fn print_record(progress: &mut ProgressLines, display: &mut ProgressDisplay, record: &Record) {
    if let Some(line) = progress.line(record) {
        display.line(progress.tone(record), &line);
    }
    display.output(&progress.output(record, display.verbosity()));
}

/// True if this record may park a run, or may queue it behind a parked one.
fn may_park(record: &Record) -> bool {
    matches!(
        &record.body,
        Body::ApprovalRequested(_) | Body::CallEnded(_) | Body::SessionRevived(_) | Body::RunAccepted(_)
    )
}

/// The parked run that this one waits for: itself, or the first unfinished one of its session.
async fn parked_run(runtime: &Runtime, run: RunId) -> Result<Option<RunId>, CliError> {
    let row = runtime.row(run).await?;
    let first = match row.state {
        RunState::Queued => first_open(runtime, &row).await?,
        RunState::Parked => Some(row),
        RunState::Running | RunState::Ended => None,
    };
    Ok(first.filter(|first| first.state == RunState::Parked).map(|first| first.id))
}

async fn first_open(runtime: &Runtime, row: &RunRow) -> Result<Option<RunRow>, CliError> {
    let open = runtime.open_runs().await?.into_iter().filter(|other| other.session == row.session);
    Ok(open.min_by_key(|row| row.first))
}

fn is_end_of(record: &Record, run: RunId) -> bool {
    matches!(&record.body, Body::RunEnded(ended) if ended.run == run)
}
