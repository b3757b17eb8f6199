//! Follows the run of `hermod run` in this process until it ends, is parked, or a signal comes. It passes events to the
//! display, and stops the run at the first SIGINT. `handover.rs` follows a run of another process, with the same display.

use hermod_actors::{
    RunResult, Runtime,
    model::{EventBody, Record, RunId, Seq, StopReason},
};

use super::subagents::SubagentMonitor;
use crate::{
    cli::{CliError, Exit, display::ProgressDisplay, progress::ProgressLines, terminal::Tone},
    control::{DiskFullMonitor, FollowStep, RunFollower, StoreReader},
    host::Signals,
    view::stream_event,
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
    /// A signal came; the run goes on in another process.
    Left {
        /// The exit of this command.
        exit: Exit,
        /// The other process.
        pid: u32,
    },
}

/// What has been shown of a run. It survives a change of the process that carries the run out.
#[derive(Debug)]
pub(super) struct FollowState {
    /// The run.
    pub(super) run: RunId,
    progress: ProgressLines,
    /// The next record of its session to show.
    pub(super) next: Seq,
    /// Records before this one are only read for the names of calls.
    pub(super) shown_from: Seq,
    /// True if the run was followed in another process before.
    pub(super) is_resumed: bool,
    /// True after a SIGINT: the run is being stopped.
    pub(super) is_stopping: bool,
}

impl FollowState {
    /// Shows the records of a run from `next` on.
    pub(super) fn new(run: RunId, next: Seq) -> Self {
        Self {
            run,
            progress: ProgressLines::new(run),
            next,
            shown_from: next,
            is_resumed: false,
            is_stopping: false,
        }
    }

    /// Reads a record for the names of calls, without showing it.
    pub(super) fn skip(&mut self, seq: Seq, record: &Record) {
        self.progress.line(record);
        self.next = seq + 1;
    }

    /// Shows a record.
    pub(super) fn show(
        &mut self,
        (seq, record): (Seq, &Record),
        display: &mut ProgressDisplay,
        subagents: &mut SubagentMonitor,
    ) {
        self.next = seq + 1;
        display.take_record(record);
        if let Some(line) = self.progress.line(record) {
            display.line(self.progress.tone(record), &line);
        }
        display.output(&self.progress.output(record, display.verbosity()));
        if display.is_live() && subagents.take(&record.body) {
            display.show_subagents(Vec::new());
        }
    }
}

/// Displays a run until it ends, is parked, or a signal comes. The first SIGINT stops the run, a second one leaves it
/// unfinished; SIGTERM leaves it at once.
pub(super) async fn follow(
    runtime: &Runtime,
    mut follower: RunFollower,
    (mut state, display): (FollowState, &mut ProgressDisplay),
    (signals, reader): (&mut Signals, &StoreReader),
) -> Result<FollowOutcome, CliError> {
    let run = state.run;
    let mut disk = DiskFullMonitor::new(runtime);
    let mut subagents = SubagentMonitor::new(reader.clone(), runtime.health_probe());
    display.show_run(run);
    if state.is_stopping
        && let Some(signal) = stop(runtime, run, signals).await?
    {
        return on_signal(&follower, signal).await;
    }
    loop {
        tokio::select! {
            biased;
            _ = signals.terminate.recv() => return on_signal(&follower, Exit::Suspended).await,
            _ = signals.interrupt.recv() => {
                if state.is_stopping {
                    return on_signal(&follower, Exit::Interrupted).await;
                }
                state.is_stopping = true;
                display.line(Tone::Action, &format!(
                    "interrupt the run is being stopped; again leaves it unfinished for `hermod run --resume {run}`"
                ));
                if let Some(signal) = stop(runtime, run, signals).await? {
                    return on_signal(&follower, signal).await;
                }
            }
            step = follower.next() => match step? {
                FollowStep::Event(event) => {
                    display.print_event(event.run, || stream_event(&event));
                    if let EventBody::Recorded { record } = &event.body {
                        state.show((event.seq, record), display, &mut subagents);
                    } else {
                        display.take(&event.body);
                    }
                }
                FollowStep::Ended(result) => return Ok(FollowOutcome::Ended(result)),
                FollowStep::Parked(run) => return Ok(FollowOutcome::Parked(run)),
            },
            line = disk.next_change() => display.line(Tone::Action, &line),
            () = subagents.wait_for_poll() => display.show_subagents(subagents.poll().await),
            () = display.frame() => display.draw(),
            reason = runtime.wait_for_end() => return Err(reason.into()),
        }
    }
}

/// Stops the run; returns the exit of a further signal, since on a full disk the stop may take long.
async fn stop(runtime: &Runtime, run: RunId, signals: &mut Signals) -> Result<Option<Exit>, CliError> {
    tokio::select! {
        biased;
        stopped = runtime.stop(run, StopReason::Signal) => Ok(stopped.map(|()| None)?),
        signal = signals.next() => Ok(Some(signal.into())),
    }
}

/// Reports the run's end if it has ended by now, else the interruption.
async fn on_signal(follower: &RunFollower, exit: Exit) -> Result<FollowOutcome, CliError> {
    Ok(match follower.end().await? {
        Some(FollowStep::Ended(result)) => FollowOutcome::Ended(result),
        Some(FollowStep::Event(_) | FollowStep::Parked(_)) | None => FollowOutcome::Interrupted(exit),
    })
}
