//! Read-only projection of a run's records; pure.

use hermod_actors::model::{Body, RunId, Usage};

use crate::view::RunSummaryView;

/// The projection of one run. It expects all records of the run, from the first on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RunProjection {
    /// The beginning of the run's input.
    pub(super) input: String,
    /// Number of iterations that have their answer.
    pub(super) iterations: u32,
    /// Tokens used by the run's model calls.
    pub(super) usage: Usage,
    /// The subagents of the run, including ended ones.
    pub(super) children: Vec<RunId>,
}

impl RunProjection {
    /// Applies the next record.
    pub(super) fn take(&mut self, body: &Body) {
        match body {
            Body::RunAccepted(accepted) => {
                self.input = RunSummaryView::shorten_input(&accepted.input);
            }
            Body::ModelAnswered(answered) => {
                self.iterations += 1;
                self.usage.add(&answered.usage.unwrap_or_default());
            }
            Body::SummaryAnswered(answered) => self.usage.add(&answered.usage.unwrap_or_default()),
            Body::ModelFailed(failed) | Body::SummaryFailed(failed) => {
                self.usage.add(&failed.failure.usage.as_deref().copied().unwrap_or_default());
            }
            Body::ModelLate(late) => self.usage.add(&late.usage),
            Body::CallStarted(started) => {
                for child in &*started.children {
                    // A repeated call start names the same subagents.
                    if !self.children.contains(&child.run) {
                        self.children.push(child.run);
                    }
                }
            }
            Body::SessionOpened(_)
            | Body::SessionRevived(_)
            | Body::RunStopping(_)
            | Body::RunEnded(_)
            | Body::RunExhausted(_)
            | Body::RunReopened(_)
            | Body::BudgetRaised(_)
            | Body::ModelStarted(_)
            | Body::ContextCompacted(_)
            | Body::SummaryStarted(_)
            | Body::ModelWaiting(_)
            | Body::CallAdmitted(_)
            | Body::CallEnded(_)
            | Body::CallLost(_)
            | Body::MessageSteered(_)
            | Body::ApprovalRequested(_)
            | Body::ApprovalAnswered(_)
            | Body::ChildEnded(_)
            | Body::TodoChanged(_) => {}
        }
    }
}
