//! Raising the limits of runs.

use tokio::sync::oneshot::channel;

use crate::{
    model::{LimitIncrease, Outcome, RunId, RunRow, SessionId},
    runtime::{RunError, Runtime},
    session::SessionMsg,
    supervisor::SessionsMsg,
    turn::{Input, RaiseError},
};

impl Runtime {
    /// Raises limits of a run, as far as it has them, and returns its new row; resolves when that is durable.
    ///
    /// A run that has not ended continues with the new limits at once. The last run of its session, if it ended as
    /// `budget_exhausted`, begins its next leg. Any other run is [`RunError::NotRaised`].
    pub async fn raise(&self, run: RunId, by: LimitIncrease) -> Result<RunRow, RunError> {
        let session = self.session_to_raise(run).await?;
        let input = Input::Raise { run, by };
        let raise = |reply| SessionsMsg::Deliver(session, None, SessionMsg::Raise(input, reply));
        // Not repeated if the session crashed meanwhile: the limits could be raised twice.
        let raised = self.request(raise).await;
        self.raise_result(run, raised).await
    }

    /// Raises limits as [`Runtime::raise`] does, without resuming the session: unless its runs are carried out here
    /// already, the run waits for its next revival.
    pub async fn raise_without_resume(&self, run: RunId, by: LimitIncrease) -> Result<RunRow, RunError> {
        let session = self.session_to_raise(run).await?;
        let ((raised, on_raised), (rested, on_rest)) = (channel(), channel());
        let order = SessionMsg::RaiseWithoutResume(Input::Raise { run, by }, raised.into(), rested.into());
        self.cast(SessionsMsg::Deliver(session, None, order))?;
        let raised = on_raised.await.ok();
        if on_rest.await.is_err() {
            tracing::debug!(%session, "it died before it came to rest");
        }
        self.raise_result(run, raised).await
    }

    /// The session of a run whose limits may be raised, as far as its row tells.
    async fn session_to_raise(&self, run: RunId) -> Result<SessionId, RunError> {
        let row = self.row(run).await?;
        match final_outcome(&row) {
            Some(why) => Err(RunError::NotRaised(run, why)),
            None => Ok(row.session),
        }
    }

    async fn raise_result(
        &self,
        run: RunId,
        raised: Option<Result<(), RaiseError>>,
    ) -> Result<RunRow, RunError> {
        if raised.is_none() {
            self.check_running()?;
        }
        let row = self.row(run).await?;
        match raised.unwrap_or(Err(RaiseError::Unknown)) {
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
