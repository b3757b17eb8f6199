//! Follows one run until it ends or waits for a person: for the command that runs it, and for clients that read its
//! events on the socket. A slow reader costs a bounded buffer: its watch falls behind and reads the journal again.

use std::sync::Arc;

use hermod_actors::{
    RunError, RunResult, Runtime, Watch,
    model::{Body, EventBody, Record, RunId, RunRow, RunState, SessionEvent},
};

/// The next thing that happened to a followed run.
#[derive(Debug)]
pub enum FollowStep {
    /// An event of the run's session.
    Event(SessionEvent),
    /// The run has its outcome.
    Ended(Box<RunResult>),
    /// This run waits for a person, and nothing else is in progress; it is the followed run or the one it is queued
    /// behind.
    Parked(RunId),
}

/// What the last record may have done to the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PendingCheck {
    /// It may have ended the run.
    End,
    /// It may have parked the run, or queued it behind a parked one.
    Park,
}

/// Follows a run.
#[derive(Debug)]
pub struct RunFollower {
    runtime: Arc<Runtime>,
    run: RunId,
    watch: Watch,
    check: Option<PendingCheck>,
}

impl RunFollower {
    /// Follows `run` by a watch of its session.
    pub fn new(runtime: &Arc<Runtime>, run: RunId, watch: Watch) -> Self {
        Self { runtime: Arc::clone(runtime), run, watch, check: None }
    }

    /// The next step. May be cancelled at any time.
    pub async fn next(&mut self) -> Result<FollowStep, RunError> {
        if let Some(check) = self.check {
            // The check stays pending until it is done: this future may be dropped before.
            let step = match check {
                PendingCheck::End => self.end().await?,
                PendingCheck::Park => self.parked().await?.map(FollowStep::Parked),
            };
            self.check = None;
            if let Some(step) = step {
                return Ok(step);
            }
        }
        let event = self.watch.next().await.map_err(RunError::Read)?;
        if let EventBody::Recorded { record } = &event.body {
            self.check = check_after(record, self.run);
        }
        Ok(FollowStep::Event(event))
    }

    /// The end of the run, if it has ended by now. A watch may deliver the end of an earlier leg of a reopened run.
    pub async fn end(&self) -> Result<Option<FollowStep>, RunError> {
        if self.runtime.row(self.run).await?.state != RunState::Ended {
            return Ok(None);
        }
        self.runtime.wait(self.run, None).await.map(|result| Some(FollowStep::Ended(Box::new(result))))
    }

    /// The parked run that this one waits for: itself, or the first unfinished one of its session.
    pub async fn parked(&self) -> Result<Option<RunId>, RunError> {
        let row = self.runtime.row(self.run).await?;
        let first = match row.state {
            RunState::Queued => first_open(&self.runtime, &row).await?,
            RunState::Parked => Some(row),
            RunState::Running | RunState::Ended => None,
        };
        Ok(first.filter(|first| first.state == RunState::Parked).map(|first| first.id))
    }
}

async fn first_open(runtime: &Runtime, row: &RunRow) -> Result<Option<RunRow>, RunError> {
    let open = runtime.open_runs().await?.into_iter().filter(|other| other.session == row.session);
    Ok(open.min_by_key(|row| row.first))
}

fn check_after(record: &Record, run: RunId) -> Option<PendingCheck> {
    let is_end = matches!(&record.body, Body::RunEnded(ended) if ended.run == run);
    let may_park = matches!(
        &record.body,
        Body::ApprovalRequested(_) | Body::CallEnded(_) | Body::SessionRevived(_) | Body::RunAccepted(_)
    );
    if is_end { Some(PendingCheck::End) } else { may_park.then_some(PendingCheck::Park) }
}
