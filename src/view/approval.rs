//! Views of a pending approval, and of a person's answer to one.

use hermod_actors::model::{ApprovalDecision, CallId, PendingApproval, RunId, SessionId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{encoding, run::RunView};

/// An approval that a person has to give or deny.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalView {
    /// The call to decide about; it identifies the approval.
    pub call: CallId,
    /// The call's run.
    pub run: RunId,
    /// The call's session.
    pub session: SessionId,
    /// The known facts and the question.
    pub question: String,
    /// When the approval was requested.
    #[serde(with = "encoding::time")]
    pub since: Timestamp,
    /// When a missing answer counts as a denial.
    #[serde(with = "encoding::time")]
    pub expires_at: Timestamp,
}

impl ApprovalView {
    /// A pending approval of a session.
    pub fn new(session: SessionId, pending: PendingApproval) -> Self {
        let PendingApproval { request, since } = pending;
        Self {
            call: request.call,
            run: request.call.run,
            session,
            question: request.question,
            since,
            expires_at: request.expires_at,
        }
    }
}

/// The answer to an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionView {
    /// The call that was decided.
    pub call: CallId,
    /// Whether the call may be made again.
    pub verdict: ApprovalDecision,
    /// The call's run.
    pub run: RunView,
}
