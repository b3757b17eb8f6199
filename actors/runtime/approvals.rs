//! Approvals: decisions of a person about calls, and the list of those that are pending. What follows from a decision
//! is in `core/turn/approval.rs`.

use crate::{
    model::{CallId, PendingApproval, PersonAnswer, RunRow, RunState},
    redaction::redact_text,
    runtime::{AfterCommand, RunError, Runtime},
    session::InputReply,
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

    /// Answers the request about a call that waits for a person; resolves when that is durable, and the run continues. A
    /// call without a pending request that the answer fits is [`RunError::NoPendingApproval`]. The rules of an approval
    /// for [`ApprovalScope::Always`](crate::model::ApprovalScope::Always) are the caller's to make durable first.
    pub async fn decide(&self, call: CallId, answer: impl Into<PersonAnswer>) -> Result<RunRow, RunError> {
        self.decide_and(call, answer.into(), AfterCommand::Resume).await
    }

    /// Answers as [`Runtime::decide`] does, without resuming the session: unless its runs are carried out here already,
    /// the run waits for its next revival.
    pub async fn decide_without_resume(
        &self,
        call: CallId,
        answer: impl Into<PersonAnswer>,
    ) -> Result<RunRow, RunError> {
        self.decide_and(call, answer.into(), AfterCommand::Rest).await
    }

    async fn decide_and(
        &self,
        call: CallId,
        mut answer: PersonAnswer,
        then: AfterCommand,
    ) -> Result<RunRow, RunError> {
        if let PersonAnswer::Text(text) = &mut answer {
            redact_text(text, &*self.parts.redactor);
        }
        let session = self.row(call.run).await?.session;
        let (input, reply) = (Input::Approval { call, answer }, |reply| InputReply::Decide(reply, false));
        match self.repeat_command(session, input, reply, then).await? {
            true => self.row(call.run).await,
            false => Err(RunError::NoPendingApproval(call)),
        }
    }
}
