//! What the records of a run tell of it. Pure.

use hermod_actors::model::{Body, RunId, Usage};

/// Characters of a task that are kept.
const MAX_INPUT_CHARS: usize = 200;

/// See the module. Take all records of the run, from the first on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RunProjection {
    /// The beginning of its input.
    pub(super) input: String,
    /// The iterations that have their answer.
    pub(super) iterations: u32,
    /// What its model calls have used.
    pub(super) usage: Usage,
    /// The subagents that it has begun, ended ones too.
    pub(super) children: Vec<RunId>,
}

impl RunProjection {
    /// Takes the next record.
    pub(super) fn take(&mut self, body: &Body) {
        match body {
            Body::RunAccepted(accepted) => {
                self.input = accepted.input.chars().take(MAX_INPUT_CHARS).collect();
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
                    // A call that is started again has the same.
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
