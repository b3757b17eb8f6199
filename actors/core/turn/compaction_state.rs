//! State of the compaction of a run's view: the summary so far, and the call that makes or extends it. Also the types
//! for the size of a view and for the compaction that it needs. Folds records; `compaction/` and `summary/` decide.

use std::sync::Arc;

use crate::{
    model::{
        AsideAnswered, AsideJob, Body, CallId, HistoryPosition, HookedSummary, RunId, SessionTime,
        SummaryStarted, TokenDensity,
    },
    turn::{aside_call::AsideCall, flush_state::MemoryFlush, input::DueAction},
};

/// State of compaction of a run's view.
#[derive(Debug, Clone)]
pub(super) struct CompactionState {
    /// Number of the compaction that is next or being prepared, from 1 in its run.
    nth: u32,
    /// The summary call and its attempts. Once it is given up, no further summary is requested for this compaction.
    pub(super) call: AsideCall,
    /// End of the part that the attempt under way summarises.
    pub(super) call_end: HistoryPosition,
    /// End of the part that the summary has to cover; set when a call for it starts.
    pub(super) target: Option<HistoryPosition>,
    /// The summary so far, until the view contains it.
    pub(super) summary: Option<PrefixSummary>,
    /// What hooks have decided about the summary, if they were asked.
    pub(super) hooks: Option<Arc<HookedSummary>>,
    /// What is kept beyond the conversation before the summary is made.
    pub(super) flush: MemoryFlush,
    /// Whether a summary is requested only once the run has to wait for it, because one made ahead has failed.
    only_when_needed: bool,
    /// Size of the request that the last compaction left.
    last_size: ViewSize,
    /// The first request since the last compaction, from which the growth of the view is measured.
    pub(super) first_request: Option<RequestSize>,
}

/// The size of a request, by its bytes and by its estimated tokens.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ViewSize {
    pub(super) bytes: usize,
    pub(super) milli_tokens: u64,
}

/// The size of a request when it was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestSize {
    pub(super) bytes: u64,
    pub(super) iteration: u32,
    pub(super) active_ms: u64,
}

/// A summary of the oldest part of a conversation. No request contains the summary yet.
#[derive(Debug, Clone)]
pub(super) struct PrefixSummary {
    /// The first position that the summary does not cover.
    pub(super) end: HistoryPosition,
    pub(super) text: Arc<str>,
    /// Number of calls that made the summary.
    pub(super) calls: u32,
}

/// The compaction that a view needs. Positions are counted from the beginning of the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompactionNeed {
    /// The view may stay as it is.
    Nothing,
    /// A summary up to this position, made ahead for the moment when the trigger is reached.
    Soon(HistoryPosition),
    /// Compaction up to this position before the next model call.
    Now(HistoryPosition),
    /// Removal up to this position without a summary, because the part is too small for one.
    Drop(HistoryPosition),
    /// The view is too long, and nothing of it may be removed.
    Impossible,
}

impl CompactionState {
    fn new(nth: u32, last_size: ViewSize) -> Self {
        Self {
            nth,
            call: AsideCall::new(1),
            call_end: HistoryPosition { round: 0, step: 0 },
            target: None,
            summary: None,
            hooks: None,
            flush: MemoryFlush::new(),
            only_when_needed: false,
            last_size,
            first_request: None,
        }
    }

    /// The state at the start of a run, with the unused summary of an earlier run of the session.
    pub(super) fn of_new_run(summary: Option<PrefixSummary>) -> Self {
        Self { summary, ..Self::new(1, ViewSize::default()) }
    }

    /// The summary call of `run` that is wanted or under way.
    pub(super) const fn summary_call(&self, run: RunId) -> CallId {
        CallId::aside(run, self.nth, AsideJob::Summary)
    }

    /// Folds a record about a summary, or the start of a request; `links` is the length of the summarisers' chain.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds do not change the summary")]
    pub(super) fn apply(&mut self, body: &Body, links: usize, now: SessionTime) {
        match body {
            Body::ModelStarted(started) => {
                let (bytes, iteration) = (started.bytes, started.call.iteration);
                let active_ms = now.active_ms;
                self.first_request.get_or_insert(RequestSize { bytes, iteration, active_ms });
            }
            Body::SummaryStarted(started) => self.on_started(started, now),
            Body::SummaryAnswered(answered) => self.on_answered(answered, links),
            Body::SummaryFailed(failed) => self.call.on_failed(failed, now),
            _ => {}
        }
    }

    fn on_started(&mut self, started: &SummaryStarted, now: SessionTime) {
        let call = started.started.call;
        if self.summary_call(call.run) == call {
            (self.call_end, self.target) = (started.call_end, Some(started.summary_end));
            self.hooks = started.hooks.clone().or(self.hooks.take());
            self.call.on_started(&started.started, now);
        }
    }

    fn on_answered(&mut self, answered: &AsideAnswered, links: usize) {
        self.call.on_answered(answered, links);
        if answered.unusable.is_none() {
            let calls = self.summary.as_ref().map_or(0, |summary| summary.calls) + 1;
            let (end, text) = (self.call_end, Arc::clone(&answered.text));
            self.summary = Some(PrefixSummary { end, text, calls });
        }
    }

    /// Discards the failures of a summary made ahead. The next summary starts only when the run has to wait for it.
    pub(super) fn allow_retry(&mut self) {
        self.call = AsideCall::new(self.call.attempts.attempt);
        (self.target, self.only_when_needed) = (None, true);
    }

    /// Starts the state of the next compaction; `size` is the size of the request that the last one left. Leaving out
    /// long results keeps the summary.
    pub(super) fn on_compacted(&mut self, is_elided: bool, size: ViewSize) {
        let summary = self.summary.take().filter(|_| is_elided);
        *self = Self { summary, ..Self::new(self.nth + 1, size) };
    }

    /// Whether long results may still be left out: neither a summary call nor a flush of this compaction has started.
    pub(super) const fn may_elide(&self) -> bool {
        !self.is_summarising() && self.flush.call.attempts.since.is_none()
    }

    /// Whether a call for the summary of this compaction has started.
    pub(super) const fn is_summarising(&self) -> bool {
        self.call.attempts.since.is_some()
    }

    /// Whether a view of `size` bytes has grown by more than an eighth since the last compaction, in bytes or estimated
    /// tokens.
    pub(super) fn has_grown(&self, size: usize, density: TokenDensity) -> bool {
        let ViewSize { bytes, milli_tokens: weight } = self.last_size;
        // A corrected token density also makes a view heavier, without another byte.
        let is_heavier = density.milli_tokens(size) > weight.saturating_add(weight / 8);
        size > bytes + bytes / 8 || is_heavier
    }

    /// The summary, if it covers everything before `to`.
    pub(super) fn summary_to(&self, to: HistoryPosition) -> Option<&PrefixSummary> {
        self.summary.as_ref().filter(|summary| summary.end >= to)
    }

    /// The action that should be in flight for the summary of `run`.
    pub(super) fn due(&self, run: RunId, need: CompactionNeed, now: SessionTime) -> Option<DueAction> {
        let is_started = self.call.started().is_some();
        let is_wanted = self.wanted_end(need).is_some();
        (is_started || is_wanted).then(|| self.call.due(self.summary_call(run), now))
    }

    /// The end of the part of which a summary is wanted; `None` if none is wanted.
    pub(super) fn wanted_end(&self, need: CompactionNeed) -> Option<HistoryPosition> {
        let to = match need {
            CompactionNeed::Now(to) => to,
            CompactionNeed::Soon(to) if !self.only_when_needed => to,
            CompactionNeed::Soon(_)
            | CompactionNeed::Nothing
            | CompactionNeed::Drop(_)
            | CompactionNeed::Impossible => return None,
        };
        (!self.call.is_given_up && self.summary_to(to).is_none()).then_some(to)
    }
}
