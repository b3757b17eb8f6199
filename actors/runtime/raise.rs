//! Raises the limits of runs on request. What a raise does, and why it is refused, is in `core/turn/reopen.rs`.

use crate::{
    model::{LimitIncrease, Outcome, RunId, RunRow},
    runtime::{AfterCommand, RunError, Runtime},
    session::InputReply,
    turn::{Input, RaiseError},
};

impl Runtime {
    /// Raises limits of a run, as far as it has them, and returns its new row; resolves when that is durable.
    ///
    /// A run that has not ended continues with the new limits at once. The last run of its session, if it ended as
    /// `budget_exhausted`, begins its next leg. Any other run is [`RunError::NotRaised`].
    pub async fn raise(&self, run: RunId, by: LimitIncrease) -> Result<RunRow, RunError> {
        self.raise_and(run, by, AfterCommand::Resume).await
    }

    /// Raises limits as [`Runtime::raise`] does, without resuming the session: unless its runs are carried out here
    /// already, the run waits for its next revival.
    pub async fn raise_without_resume(&self, run: RunId, by: LimitIncrease) -> Result<RunRow, RunError> {
        self.raise_and(run, by, AfterCommand::Rest).await
    }

    async fn raise_and(&self, run: RunId, by: LimitIncrease, then: AfterCommand) -> Result<RunRow, RunError> {
        let row = self.row(run).await?;
        if let Some(why) = final_outcome(&row) {
            return Err(RunError::NotRaised(run, why));
        }
        let reply = |reply| InputReply::Raise(reply, Ok(()));
        // Not repeated if the session crashed meanwhile: the limits could be raised twice.
        let raised = self.send_command(row.session, Input::Raise { run, by }, reply, then).await?;
        if raised.is_none() {
            self.check_running()?;
        }
        let row = self.row(run).await?;
        match raised.map_or(Err(RaiseError::Unknown), |(raised, _)| raised) {
            Ok(()) => Ok(row),
            // The run has ended meanwhile.
            Err(RaiseError::Superseded) => {
                Err(RunError::NotRaised(run, final_outcome(&row).unwrap_or(RaiseError::Superseded)))
            }
            Err(why) => Err(RunError::NotRaised(run, why)),
        }
    }
}

/// Why a run is over for good, whatever its session reports.
fn final_outcome(row: &RunRow) -> Option<RaiseError> {
    let ended = row.ended.as_ref().filter(|ended| ended.outcome != Outcome::BudgetExhausted);
    ended.cloned().map(Box::new).map(RaiseError::Ended)
}
