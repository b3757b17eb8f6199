//! What `hermod run` shows of a run that another process carries out, and how a signal stops that run there.

use std::{future, path::Path};

use futures::future::BoxFuture;
use hermod_actors::model::RunId;

use super::{
    follow::{FollowOutcome, FollowState},
    subagents::SubagentMonitor,
};
use crate::{
    cli::{Exit, display::ProgressDisplay, terminal::Tone},
    host::{FollowedStep, HandoverError, OwnerConnection, ShutdownSignal, as_text},
    view::{derived_event, record_event},
};

/// What is shown of a run at its owner.
pub(super) struct FollowedView<'v> {
    /// The process of the owner.
    pub(super) pid: u32,
    /// The state directory.
    pub(super) folder: &'v Path,
    pub(super) state: &'v mut FollowState,
    pub(super) display: &'v mut ProgressDisplay,
    pub(super) subagents: SubagentMonitor,
    /// The stop under way.
    pub(super) stop: Option<Stop>,
}

impl FollowedView<'_> {
    /// Shows the next step; returns how following has ended with it.
    pub(super) fn on_step(&mut self, step: FollowedStep) -> Option<FollowOutcome> {
        let is_shown = self.state.next >= self.state.shown_from;
        match step {
            FollowedStep::Record(ids, record) => {
                self.state.is_resumed = true;
                if is_shown {
                    self.display.print_event(ids.run, || record_event(ids, as_text(&record)));
                }
                match record {
                    Ok(record) if is_shown => {
                        self.state.show((ids.seq, &record), self.display, &mut self.subagents);
                    }
                    Ok(record) => self.state.skip(ids.seq, &record),
                    Err(error) => {
                        tracing::warn!(seq = ids.seq, %error, "a record of another version is not shown");
                        self.state.next = ids.seq + 1;
                    }
                }
            }
            FollowedStep::Event(ids, body) if is_shown => {
                self.display.print_event(ids.run, || Ok(derived_event(ids, &body)));
                self.display.take(&body);
            }
            // Only the feed of all sessions has the latter.
            FollowedStep::Event(..) | FollowedStep::Fed(..) => {}
            FollowedStep::Note(line) => self.display.line(Tone::Action, &line),
            FollowedStep::Ended(result) => return Some(FollowOutcome::Ended(result)),
            FollowedStep::Parked(run) => return Some(FollowOutcome::Parked(run)),
        }
        None
    }

    /// Stops the run, or leaves it; returns how following has ended with that.
    pub(super) fn on_signal(&mut self, signal: ShutdownSignal) -> Option<FollowOutcome> {
        let pid = self.pid;
        match signal {
            ShutdownSignal::Terminate => return Some(FollowOutcome::Left { exit: Exit::Suspended, pid }),
            ShutdownSignal::Interrupt if self.state.is_stopping => {
                return Some(FollowOutcome::Left { exit: Exit::Interrupted, pid });
            }
            ShutdownSignal::Interrupt => {}
        }
        self.state.is_stopping = true;
        self.stop = Some(stop_at_owner(self.folder, self.state.run));
        let line = format!("interrupt the run is being stopped; again leaves it to process {pid}");
        self.display.line(Tone::Action, &line);
        None
    }
}

pub(super) type Stop = BoxFuture<'static, Result<(), HandoverError>>;

/// Stops a run at the owner, by a connection of its own.
pub(super) fn stop_at_owner(state: &Path, run: RunId) -> Stop {
    let state = state.to_owned();
    Box::pin(async move {
        match OwnerConnection::connect(&state).await? {
            Some(owner) => owner.stop(run).await,
            None => Err(HandoverError::Gone),
        }
    })
}

/// The result of a stop under way; never resolves without one.
pub(super) async fn stopped(stop: &mut Option<Stop>) -> Result<(), HandoverError> {
    match stop {
        Some(stop) => stop.await,
        None => future::pending().await,
    }
}
