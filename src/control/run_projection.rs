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
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds change no summary")]
    pub(super) fn take(&mut self, body: &Body) {
        self.iterations += u32::from(matches!(body, Body::ModelAnswered(_)));
        if let Some((_, Some(usage))) = body.settled_usage() {
            self.usage.add(usage);
        }
        match body {
            Body::RunAccepted(accepted) => {
                self.input = RunSummaryView::shorten_input(&accepted.input);
            }
            Body::CallStarted(started) => {
                for child in &*started.children {
                    // A repeated call start names the same subagents.
                    if !self.children.contains(&child.run) {
                        self.children.push(child.run);
                    }
                }
            }
            _ => {}
        }
    }
}
