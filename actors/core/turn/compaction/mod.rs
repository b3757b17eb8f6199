//! Compaction of the view. The type of its size limits is here; `need.rs` computes them and decides where the view is
//! cut. `methods.rs` applies the methods, `replacement.rs` writes the text in place of the removed part. The state is
//! in `compaction_state.rs`, the summary calls are in `summary/`.
//!
//! Invariant: the view changes only before the first attempt of a model call, or after a provider has refused it as too
//! long. All other attempts show the same view as the first one.

mod methods;
mod need;
mod replacement;

pub(super) use replacement::replacement_text;

use std::sync::Arc;

use crate::{
    model::{AttemptId, CallId, CompactionPolicy, ModelRef, TokenDensity},
    turn::active_run::{ActiveRun, LoopState},
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
    pub(super) summary_tokens: u64,
    window: usize,
    density: TokenDensity,
}

impl ContextBudget {
    /// Maximum size of the view after a compaction.
    pub(super) const fn target_bytes(self) -> usize {
        self.trigger / 2
    }

    /// Above this size a summary is made ahead, and requests carry the context pressure text (how full the view is).
    const fn pressure_bytes(self) -> usize {
        self.trigger / 10 * 7
    }
}

impl ActiveRun {
    /// The summary call that is wanted or under way.
    pub(super) const fn summary_call(&self) -> CallId {
        self.compaction.summary_call(self.id)
    }

    /// Whether this is the next attempt of the summary call, and has not started.
    pub(super) fn is_summary_wanted(&self, id: AttemptId) -> bool {
        self.compaction.call.is_wanted(self.summary_call(), id)
    }

    /// Whether the view may change now: no attempt of the model call has started, or a provider has refused it as too
    /// long.
    pub(super) fn is_at_boundary(&self) -> bool {
        self.model_call_state()
            .is_some_and(|call| call.started().is_none() && (call.since.is_none() || call.is_too_long))
    }

    /// Whether a provider has refused the present request as too long, and the view has not changed since.
    fn is_refused_as_too_long(&self) -> bool {
        self.model_call_state().is_some_and(|call| call.is_too_long)
    }

    /// Whether a model may still be called for a summary.
    pub(super) fn can_be_summarised(&self) -> bool {
        let has_models = |policy: &Arc<CompactionPolicy>| !policy.chain.is_empty();
        !self.compaction.call.is_given_up && self.spec.compaction.as_ref().is_some_and(has_models)
    }

    /// Whether the run sends no further view that could be compacted: it is ending, exhausted or answered.
    pub(super) const fn needs_no_compaction(&self) -> bool {
        self.planned_end.is_some()
            || self.budget.exhausted.is_some()
            || matches!(self.state, LoopState::Answered(_))
    }

    /// Whether the run has not started any model call.
    fn is_at_its_first_call(&self) -> bool {
        self.iteration == 1 && self.model_call_state().is_some_and(|call| call.since.is_none())
    }

    /// The model that the next call uses first.
    fn next_model(&self) -> Option<&ModelRef> {
        let Some(call) = self.model_call_state() else {
            return self.spec.chain.get(self.answer_recovery.link());
        };
        match call.failed_models.last().filter(|_| call.is_too_long) {
            Some(failed) => Some(&failed.model),
            None => self.spec.chain.get(call.first_link),
        }
    }
}
