//! Compaction of the view. All sizes are measured. A view that cannot be made shorter is not compacted, and a compacted
//! view is not compacted again before it has grown.
//!
//! Invariant: the view changes only before the first attempt of a model call, or after a provider has refused it as too
//! long. All other attempts show the same view as the first one.

mod fold;
mod methods;
mod need;

use std::sync::Arc;

use crate::{
    model::{CallId, CompactionPolicy, HistoryPosition, ModelRef, TokenDensity},
    turn::{
        active_run::{ActiveRun, LoopState},
        model_call::{AttemptState, ModelCallState},
    },
};

/// Bytes kept of the first request of a conversation whose round is removed.
const MAX_FIRST_REQUEST_BYTES: usize = 4_000;

/// State of compaction of a run's view.
#[derive(Debug, Clone)]
pub(super) struct CompactionState {
    /// Number of the run's present or next compaction, from 1.
    pub(super) nth: u32,
    /// The summary call and its attempts.
    pub(super) call: ModelCallState,
    /// End of the part that the attempt under way summarises.
    pub(super) call_end: HistoryPosition,
    /// End of the part that the summary has to cover; set when a call for it starts.
    pub(super) target: Option<HistoryPosition>,
    /// The summary so far. The view contains it from the trigger on.
    pub(super) summary: Option<PrefixSummary>,
    /// Unusable answers in a row of the present link.
    pub(super) unusable_answers: u32,
    /// Whether no further summary is requested.
    pub(super) given_up: bool,
    /// Whether a summary is requested only once the run has to wait for it, because one made ahead has failed.
    only_when_needed: bool,
    /// Bytes and weight (thousandths of tokens) of the request after the last compaction.
    last_size: (usize, u64),
    /// The first request since the last compaction, from which the growth of the view is measured.
    first_request: Option<RequestSize>,
}

/// The size of a request when it was sent.
#[derive(Debug, Clone, Copy)]
struct RequestSize {
    bytes: u64,
    iteration: u32,
    active_ms: u64,
}

/// A summary of the oldest part of a conversation that no request contains yet.
#[derive(Debug, Clone)]
pub(in crate::turn) struct PrefixSummary {
    /// The first position that the summary does not cover.
    pub(in crate::turn) end: HistoryPosition,
    pub(in crate::turn) text: Arc<str>,
    /// Number of calls that made the summary.
    calls: u32,
}

/// The compaction that a view needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompactionNeed {
    /// The view may stay as it is.
    Nothing,
    /// A summary up to this position, for the moment when the trigger is reached.
    Soon(HistoryPosition),
    /// Compaction up to this position before the next model call.
    Now(HistoryPosition),
    /// Removal up to this position without a summary: nothing more may go, and it is too little for a summary.
    Drop(HistoryPosition),
    /// The view is too long, and nothing of it may be removed.
    Impossible,
}

/// Size limits of a request, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContextBudget {
    /// Above this size the view is compacted.
    pub(super) trigger: usize,
    /// Above this size no request is sent.
    pub(super) max_request: usize,
    /// Maximum size of a summary, in tokens.
    pub(super) summary: u64,
    window: usize,
    density: TokenDensity,
}

impl CompactionState {
    const fn new(nth: u32, last_size: (usize, u64)) -> Self {
        Self {
            nth,
            call: ModelCallState::new(0),
            call_end: HistoryPosition { round: 0, step: 0 },
            target: None,
            summary: None,
            unusable_answers: 0,
            given_up: false,
            only_when_needed: false,
            last_size,
            first_request: None,
        }
    }

    /// The state at the start of a run, with the unused summary of an earlier run of the session.
    pub(super) fn of_new_run(summary: Option<PrefixSummary>) -> Self {
        Self { summary, ..Self::new(1, (0, 0)) }
    }

    /// Tracks the size of a request that is sent.
    pub(super) fn track_request(&mut self, bytes: u64, iteration: u32, active_ms: u64) {
        self.first_request.get_or_insert(RequestSize { bytes, iteration, active_ms });
    }

    /// Whether leaving out long results may suffice: until a summary was requested.
    const fn may_elide(&self) -> bool {
        self.call.since.is_none()
    }

    /// Whether the view is at least an eighth larger than after the last compaction.
    fn has_grown(&self, room: ContextBudget, size: usize) -> bool {
        let (bytes, weight) = self.last_size;
        // A corrected token density also makes a view larger, without another byte.
        let is_heavier = room.density.milli_tokens(size) > weight.saturating_add(weight / 8);
        size > bytes + bytes / 8 || is_heavier
    }

    /// The summary, if it covers everything before `to`.
    pub(super) fn summary_to(&self, to: HistoryPosition) -> Option<&PrefixSummary> {
        self.summary.as_ref().filter(|summary| summary.end >= to)
    }
}

impl ContextBudget {
    /// Maximum size of the view after a compaction.
    pub(super) const fn target(self) -> usize {
        self.trigger / 2
    }

    /// Above this size a summary is made ahead, and requests carry the context pressure text.
    const fn pressure(self) -> usize {
        self.trigger / 10 * 7
    }
}

impl ActiveRun {
    /// The summary call that is wanted or under way.
    pub(super) const fn summary_call(&self) -> CallId {
        CallId::summary(self.id, self.compaction.nth)
    }

    /// Whether the view may change now: the model call is not started, or was refused as too long.
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

    /// Whether the view needs no compaction any more.
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
