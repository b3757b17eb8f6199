//! Compaction of the view: its size limits (here), whether and where it is cut (`need.rs`), the methods (`methods.rs`),
//! and the text in place of the removed part (`replacement.rs`). The state is in `compaction_state.rs`, the summary
//! calls are in `summary/`.
//!
//! Invariant: the view changes only before the first attempt of a model call, or after a provider has refused it as too
//! long. All other attempts show the same view as the first one.

mod methods;
mod need;
mod replacement;

pub(super) use replacement::replacement_text;

use std::sync::Arc;

use crate::{
    model::{CallId, CompactionPolicy, ModelRef, TokenDensity},
    turn::{
        active_run::{ActiveRun, LoopState},
        model_call::AttemptState,
    },
};

/// Most bytes that are kept of the first request of a conversation, once its round is removed.
const MAX_FIRST_REQUEST_BYTES: usize = 4_000;

/// Size limits of a request, in bytes unless another unit is named.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContextBudget {
    /// Above this size the view is compacted.
    pub(super) trigger: usize,
    /// Above this size no request is sent.
    pub(super) max_request: usize,
    /// Maximum tokens of a summary.
    pub(super) summary: u64,
    window: usize,
    density: TokenDensity,
}

impl ContextBudget {
    /// Maximum size of the view after a compaction.
    pub(super) const fn target(self) -> usize {
        self.trigger / 2
    }

    /// Above this size a summary is made ahead, and requests carry the context pressure text (how full the view is).
    const fn pressure(self) -> usize {
        self.trigger / 10 * 7
    }
}

impl ActiveRun {
    /// The summary call that is wanted or under way.
    pub(super) const fn summary_call(&self) -> CallId {
        self.compaction.summary_call(self.id)
    }

    /// Whether the view may change now: no attempt of the model call has started, or a provider has refused it as too
    /// long.
    pub(super) const fn is_at_boundary(&self) -> bool {
        match &self.state {
            LoopState::CallingModel(asking) => {
                matches!(asking.state, AttemptState::Wanted(_))
                    && (asking.since.is_none() || asking.is_too_long)
            }
            LoopState::RunningTools(_) | LoopState::Answered(_) => false,
        }
    }

    /// Whether a provider has refused the present request as too long, and the view has not changed since.
    const fn is_refused_as_too_long(&self) -> bool {
        matches!(&self.state, LoopState::CallingModel(asking) if asking.is_too_long)
    }

    /// Whether a model may still be called for a summary.
    fn can_be_summarised(&self) -> bool {
        let has_models = |compression: &Arc<CompactionPolicy>| !compression.chain.is_empty();
        !self.compaction.given_up && self.spec.compaction.as_ref().is_some_and(has_models)
    }

    /// Whether the run sends no further view that could be compacted: it is ending, exhausted or answered.
    pub(super) const fn is_over(&self) -> bool {
        self.planned_end.is_some()
            || self.budget.exhausted.is_some()
            || matches!(self.state, LoopState::Answered(_))
    }

    /// Whether the run has not started any model call.
    const fn is_at_its_first_call(&self) -> bool {
        match &self.state {
            LoopState::CallingModel(asking) => self.iteration == 1 && asking.since.is_none(),
            LoopState::RunningTools(_) | LoopState::Answered(_) => false,
        }
    }

    /// The model that the next call uses first.
    fn next_model(&self) -> Option<&ModelRef> {
        let link = match &self.state {
            LoopState::CallingModel(asking) => {
                match asking.failed_models.last().filter(|_| asking.is_too_long) {
                    Some(tried) => return Some(&tried.model),
                    None => asking.first_link,
                }
            }
            LoopState::RunningTools(_) | LoopState::Answered(_) => self.answer_recovery.link(),
        };
        self.spec.chain.get(link)
    }
}
