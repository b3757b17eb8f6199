//! Records that count as progress of a run.

use hermod_actors::model::{Body, CallStatus, FailureClass};

/// Whether the record shows progress of its run. Records that a revival alone causes, or that come from outside, are
/// none.
pub fn is_progress(body: &Body) -> bool {
    match body {
        Body::ModelAnswered(_)
        | Body::SummaryAnswered(_)
        | Body::ContextCompacted(_)
        | Body::ModelWaiting(_)
        | Body::RunStopping(_)
        | Body::RunEnded(_)
        | Body::ApprovalRequested(_) => true,
        Body::ModelFailed(failed) | Body::SummaryFailed(failed) => {
            failed.failure.class != FailureClass::Interrupted
        }
        Body::CallEnded(ended) => match ended.end.status {
            CallStatus::Ok | CallStatus::Error | CallStatus::Stopped => true,
            CallStatus::NotStarted | CallStatus::InDoubt => false,
        },
        Body::SessionOpened(_)
        | Body::SessionRevived(_)
        | Body::RunAccepted(_)
        | Body::ModelStarted(_)
        | Body::SummaryStarted(_)
        | Body::ModelLate(_)
        | Body::CallAdmitted(_)
        | Body::CallStarted(_)
        | Body::CallLost(_)
        | Body::MessageSteered(_)
        | Body::RunExhausted(_)
        | Body::RunReopened(_)
        | Body::BudgetRaised(_)
        | Body::ChildEnded(_)
        | Body::TodoChanged(_)
        | Body::ApprovalAnswered(_) => false,
    }
}
