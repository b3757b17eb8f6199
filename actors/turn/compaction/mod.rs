//! When a view is too long, and what of it may go. Everything is measured: a view that cannot be made shorter is not
//! compressed, and one that was compressed is not again before it has grown.
//!
//! Invariant: the view changes only at a boundary, before the first attempt of a model call or after the provider has
//! said that it is too long; all other attempts show what the first one has shown.

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

/// Bytes of the first request of a conversation that stay when its round is gone.
const MAX_FIRST_REQUEST_BYTES: usize = 4_000;

/// What is being done about the view of a run.
#[derive(Debug, Clone)]
pub(super) struct CompactionState {
    /// The how-manieth compression of the run this is or will be, from 1.
    pub(super) nth: u32,
    /// The attempts at a summary.
    pub(super) call: ModelCallState,
    /// Up to where the attempt under way summarises.
    pub(super) call_end: HistoryPosition,
    /// Up to where the summary is to reach, once a call for it was started.
    pub(super) target: Option<HistoryPosition>,
    /// What was summarised so far. The view shows it from the trigger on.
    pub(super) summary: Option<PrefixSummary>,
    /// Unusable answers in a row of the link that is asked.
    pub(super) unusable_answers: u32,
    /// Whether nobody is asked for a summary any more.
    pub(super) given_up: bool,
    /// Whether nobody is before the run has to wait for it: ahead of that it has failed.
    only_when_needed: bool,
    /// The bytes of the request behind the last compression, and their weight.
    last_size: (usize, u64),
}

/// A summary of the oldest part of a conversation, which no request shows yet.
#[derive(Debug, Clone)]
pub(in crate::turn) struct PrefixSummary {
    /// The first place that it does not cover.
    pub(in crate::turn) end: HistoryPosition,
    /// The summary.
    pub(in crate::turn) text: Arc<str>,
    /// The calls that made it.
    calls: u32,
}

/// What a view needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompactionNeed {
    /// Nothing.
    Nothing,
    /// A summary up to here, for when the trigger is reached.
    Soon(HistoryPosition),
    /// To be compressed up to here before the model is asked again.
    Now(HistoryPosition),
    /// To lose what is before here, without a summary: that is all that can go, and too little to be summarised.
    Drop(HistoryPosition),
    /// It is too long, and nothing of it may go.
    Impossible,
}

/// How much fits, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContextBudget {
    /// Over this the view is compressed.
    pub(super) trigger: usize,
    /// Over this no request is made.
    pub(super) max_request: usize,
    /// What a summary may have, in tokens.
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
        }
    }

    /// The state at the begin of a run, with a summary that an earlier run of the session has paid for.
    pub(super) fn of_new_run(summary: Option<PrefixSummary>) -> Self {
        Self { summary, ..Self::new(1, (0, 0)) }
    }

    /// Whether leaving out long results may be enough: until a summary was asked for.
    const fn may_elide(&self) -> bool {
        self.call.since.is_none()
    }

    /// Whether the view is larger by an eighth than the last compression has left it.
    fn has_grown(&self, room: ContextBudget, size: usize) -> bool {
        let (bytes, weight) = self.last_size;
        // A view that was found to have more tokens has grown without another byte.
        let is_heavier = room.density.milli_tokens(size) > weight.saturating_add(weight / 8);
        size > bytes + bytes / 8 || is_heavier
    }

    /// The summary, if it covers everything before `to`.
    pub(super) fn summary_to(&self, to: HistoryPosition) -> Option<&PrefixSummary> {
        self.summary.as_ref().filter(|summary| summary.end >= to)
    }
}

impl ContextBudget {
    /// After a compression the view should not be longer.
    pub(super) const fn target(self) -> usize {
        self.trigger / 2
    }

    /// From here on a summary is made ahead, and requests say how full the view is.
    const fn pressure(self) -> usize {
        self.trigger / 10 * 7
    }
}

impl ActiveRun {
    /// The call for the summary that is wanted or under way.
    pub(super) const fn summary_call(&self) -> CallId {
        CallId::summary(self.id, self.compaction.nth)
    }

    /// Whether the view may change now: the model call has not been made, or was refused for its length.
    pub(super) const fn is_at_boundary(&self) -> bool {
        match &self.state {
            LoopState::CallingModel(asking) => {
                matches!(asking.state, AttemptState::Wanted(_))
                    && (asking.since.is_none() || asking.is_too_long)
            }
            LoopState::RunningTools(_) | LoopState::Answered(_) => false,
        }
    }

    /// Whether a provider has refused the request of the present call for its length, and the view is the same still.
    const fn is_refused_as_too_long(&self) -> bool {
        matches!(&self.state, LoopState::CallingModel(asking) if asking.is_too_long)
    }

    /// Whether a model may still be asked for a summary.
    fn can_be_summarised(&self) -> bool {
        let has_models = |compression: &Arc<CompactionPolicy>| !compression.chain.is_empty();
        !self.compaction.given_up && self.spec.compaction.as_ref().is_some_and(has_models)
    }

    /// Whether nothing is to be done about its view any more.
    pub(super) const fn is_over(&self) -> bool {
        self.planned_end.is_some() || self.exhausted.is_some() || matches!(self.state, LoopState::Answered(_))
    }

    /// Whether no model call of it has been made yet.
    const fn is_at_its_first_call(&self) -> bool {
        match &self.state {
            LoopState::CallingModel(asking) => self.iteration == 1 && asking.since.is_none(),
            LoopState::RunningTools(_) | LoopState::Answered(_) => false,
        }
    }

    /// Follows with the clock since when the model call is wanted.
    pub(super) fn track_model_wanted(&mut self, active_ms: u64) {
        if matches!(&self.state, LoopState::CallingModel(asking) if matches!(asking.state, AttemptState::Wanted(_)))
        {
            self.model_wanted_since.get_or_insert(active_ms);
        } else {
            self.model_wanted_since = None;
        }
    }

    /// The model that the next call asks first.
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
