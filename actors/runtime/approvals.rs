//! Approvals: decisions of a person about calls in doubt.

use tokio::sync::oneshot::channel;

use crate::{
    model::{ApprovalDecision, CallId, PendingApproval, RunRow, RunState},
    runtime::{RunError, Runtime, submit::MAX_TRIES},
    session::{SessionMsg, SubmitError},
    supervisor::SessionsMsg,
    turn::{Input, open_approvals},
};

impl Runtime {
    /// The pending approvals of all parked runs, in the order of runs.
    pub async fn pending_approvals(&self) -> Result<Vec<PendingApproval>, RunError> {
        let mut open = Vec::new();
        for row in self.open_runs().await?.into_iter().filter(|row| row.state == RunState::Parked) {
            // A row that an earlier version wrote has no list of approvals.
            open.extend(if let Some(approvals) = row.approvals {
                approvals
            } else {
                let records = self.journal(row.session, 1).await?;
                open_approvals(row.session, records.iter().map(|(_, record)| &**record))
            });
        }
        Ok(open)
    }

    /// Decides about a call in doubt; resolves when that is durable, and the run continues. A call without a pending
    /// approval is [`RunError::NoPendingApproval`].
    pub async fn decide(&self, call: CallId, verdict: ApprovalDecision) -> Result<RunRow, RunError> {
        let session = self.row(call.run).await?.session;
        for _ in 0..MAX_TRIES {
            let input = Input::Decided { call, verdict };
            let decide = |reply| SessionsMsg::Deliver(session, None, SessionMsg::Decide(input, reply));
            match self.request(decide).await {
                Some(true) => return self.row(call.run).await,
                Some(false) => return Err(RunError::NoPendingApproval(call)),
                None => self.check_running()?,
            }
        }
        Err(RunError::NotAccepted(SubmitError::CrashLooping(session)))
    }

    /// Decides as [`Runtime::decide`] does, without resuming the session: unless its runs are carried out here already,
    /// the run waits for its next revival.
    pub async fn decide_without_resume(
        &self,
        call: CallId,
        verdict: ApprovalDecision,
    ) -> Result<RunRow, RunError> {
        let session = self.row(call.run).await?.session;
        for _ in 0..MAX_TRIES {
            let ((decided, on_decided), (rested, on_rest)) = (channel(), channel());
            let input = Input::Decided { call, verdict };
            let order = SessionMsg::DecideWithoutResume(input, decided.into(), rested.into());
            self.cast(SessionsMsg::Deliver(session, None, order))?;
            match (on_decided.await, on_rest.await) {
                (Ok(true), _) => return self.row(call.run).await,
                (Ok(false), _) => return Err(RunError::NoPendingApproval(call)),
                (Err(_), _) => self.check_running()?,
            }
        }
        Err(RunError::NotAccepted(SubmitError::CrashLooping(session)))
    }
}
