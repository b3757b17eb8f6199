//! What a tree of runs shows of each run (input, counts, subagents), folded from its records; pure. `run_detail.rs`
//! folds the details of a single run.

use hermod_actors::model::{Body, RunCounts, RunId};

use crate::view::RunSummaryView;

/// The projection of one run. It expects all records of the run, from the first on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RunProjection {
    /// The beginning of the run's input.
    pub(super) input: String,
    /// The counts of the run.
    pub(super) counts: RunCounts,
    /// The subagents of the run, including ended ones.
    pub(super) children: Vec<RunId>,
}

impl RunProjection {
    /// Applies the next record.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds change no summary")]
    pub(super) fn take(&mut self, body: &Body) {
        self.counts.take(body);
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
