//! Measures a view against its model's context window. Decides whether the view is compacted, up to which position, and
//! how soon a summary is needed. Also the actions due for a run with its summary, the text about context pressure, and
//! the parts of a request that overflows.

use std::sync::Arc;

use super::{ContextBudget, MAX_FIRST_REQUEST_BYTES};
use crate::{
    model::{ContextBreakdown, HistoryPosition, RUNTIME_TEXT_PREFIX, SessionTime, TokenDensity},
    policy::{SummaryUrgency, ViewGrowth},
    turn::{
        DueAction, Turn,
        active_run::ActiveRun,
        compaction_state::{CompactionNeed, PrefixSummary},
        estimates,
        history::KeepTail,
    },
};

/// Tokens of the window kept free for the compaction itself, at most a quarter of the window. A request that cannot be
/// made shorter may use them.
const RESERVED_TOKENS: u64 = 20_000;
/// Trigger before the first call of a run, in percent of the window, if the configured one is higher. A run should not
/// start with a view that an earlier run has filled to the edge.
const BACKSTOP_PERCENT: u64 = 85;
/// Maximum tokens of a summary. A smaller window allows a sixteenth of its size.
const MAX_SUMMARY_TOKENS: u64 = 8_192;
/// Bytes of the fixed text around a summary.
const SUMMARY_FRAME_BYTES: usize = 500;

impl Turn {
    /// Size limits of the next request; `None` if the window is unknown or compaction is off.
    pub(in crate::turn) fn context_budget(&self, run: &ActiveRun) -> Option<ContextBudget> {
        let policy = run.spec.compaction.as_deref()?;
        let model = run.next_model()?;
        let window = self.observations.window(&run.spec, model)?;
        let output = estimates::wanted_output(run, model).min(window / 4);
        let comfortable = window.saturating_sub(output + RESERVED_TOKENS.min(window / 4));
        let share = u64::from(policy.trigger);
        let share = if run.is_at_its_first_call() { share.min(BACKSTOP_PERCENT) } else { share };
        let trigger = (window * share / 100).min(comfortable);
        let density = self.observations.density(&run.spec, model);
        let bytes = |tokens: u64| usize::try_from(density.bytes(tokens)).unwrap_or(usize::MAX);
        Some(ContextBudget {
            trigger: bytes(trigger),
            max_request: bytes(window.saturating_sub(estimates::min_answer_tokens(run, model, window))),
            summary_tokens: (window / 16).min(MAX_SUMMARY_TOKENS),
            window: bytes(window),
            density,
        })
    }

    /// Token density of the model that the next call uses first.
    pub(in crate::turn) fn next_density(&self, run: &ActiveRun) -> TokenDensity {
        run.next_model().map_or(TokenDensity::GUESS, |model| self.observations.density(&run.spec, model))
    }

    /// The compaction that the view of the run under way needs.
    pub(in crate::turn) fn need(&self, run: &ActiveRun) -> CompactionNeed {
        let Some(limits) = self.context_budget(run).filter(|_| !run.needs_no_compaction()) else {
            return CompactionNeed::Nothing;
        };
        let is_refused = run.is_refused_as_too_long();
        let size = estimates::request_bytes(run, self);
        if !is_refused && size <= limits.pressure_bytes() {
            return CompactionNeed::Nothing;
        }
        let must = is_refused || size > limits.max_request;
        let (request_bytes, last_bytes) = self.history.minimum_size(run.unseen_from);
        if estimates::head_bytes(run, self) + request_bytes + last_bytes > limits.max_request {
            return if must { CompactionNeed::Impossible } else { CompactionNeed::Nothing };
        }
        let starts_ahead = run.spec.compaction.as_deref().is_some_and(|policy| policy.ahead);
        match self.target_position(run, limits, size) {
            Some(to) if is_refused || size > limits.trigger => CompactionNeed::Now(to),
            Some(to) if starts_ahead && !self.will_elide(run, limits, size, to) => CompactionNeed::Soon(to),
            None if must => self.drop_or_fail(run, limits, size),
            Some(_) | None => CompactionNeed::Nothing,
        }
    }

    /// The position up to which the view may be compacted. A summary under way keeps its target. The end of an existing
    /// summary suffices if the view after it is short enough, or if a further cut would gain too little.
    fn target_position(
        &self,
        run: &ActiveRun,
        limits: ContextBudget,
        size: usize,
    ) -> Option<HistoryPosition> {
        let Some(summary) = &run.compaction.summary else { return self.cut_position(run, limits, size) };
        if let Some(target) = run.compaction.target.filter(|target| *target > summary.end) {
            return Some(target);
        }
        let left = size.max(limits.trigger).saturating_sub(self.history.bytes_before(summary.end));
        if left + self.stand_in_bytes(summary.end, summary.text.len()) <= limits.pressure_bytes() {
            return Some(summary.end);
        }
        let covered = self.history.bytes_before(summary.end);
        let is_worth_it = |to: &HistoryPosition| {
            self.history.bytes_before(*to) > covered.saturating_add(2 * summary_bytes(limits))
        };
        self.cut_position(run, limits, size).filter(is_worth_it).or(Some(summary.end))
    }

    /// The position for the next cut. The kept tail leaves space for the text that arrives before the trigger. A view
    /// that has not grown since the last compaction is cut only if the cut removes more than four summaries' length;
    /// otherwise two suffice.
    fn cut_position(&self, run: &ActiveRun, limits: ContextBudget, size: usize) -> Option<HistoryPosition> {
        let bytes_to_trigger = limits.trigger.checked_sub(size).map_or(0, |left| left + limits.trigger / 16);
        let KeepTail { messages, bytes } = self.keep_tail(run, limits);
        let has_grown = run.is_refused_as_too_long() || run.compaction.has_grown(size, limits.density);
        let min_summary_lengths = if has_grown { 2 } else { 4 };
        let is_worth_it = |to: &HistoryPosition| {
            *to > self.history.start
                && self.history.bytes_before(*to)
                    > SUMMARY_FRAME_BYTES
                        + self.first_request_bytes(*to)
                        + min_summary_lengths * summary_bytes(limits)
        };
        let keep = KeepTail { messages, bytes: bytes.saturating_sub(bytes_to_trigger) };
        let keeps = [Some(keep), has_grown.then_some(KeepTail::MINIMUM)];
        let cuts = keeps.into_iter().flatten().filter_map(|keep| self.history.cut_position(keep));
        cuts.map(|to| run.unseen_from.map_or(to, |unshown| to.min(unshown))).find(is_worth_it)
    }

    /// The tail of the view that a compaction leaves as it is.
    fn keep_tail(&self, run: &ActiveRun, limits: ContextBudget) -> KeepTail {
        let messages = run.spec.compaction.as_deref().map_or(0, |policy| policy.protect_last);
        let fixed = estimates::head_bytes(run, self)
            + self.history.minimum_size(None).0
            + summary_bytes(limits)
            + MAX_FIRST_REQUEST_BYTES / 2;
        let bytes =
            limits.target_bytes().saturating_sub(fixed).min(limits.window / 5).max(limits.target_bytes() / 8);
        KeepTail { messages, bytes }
    }

    /// Whether leaving out long results will suffice at the trigger, if the share of long results stays the same.
    fn will_elide(&self, run: &ActiveRun, limits: ContextBudget, size: usize, to: HistoryPosition) -> bool {
        let left = size.saturating_sub(self.history.elidable(to)).saturating_mul(limits.trigger);
        run.compaction.may_elide() && left <= limits.target_bytes().saturating_mul(size)
    }

    /// The text that replaces a dropped part: the summary so far, if there is one, and a marker.
    pub(super) fn drop_notice(&self, run: &ActiveRun) -> Arc<str> {
        let text = self.summary_text(&run.compaction).map_or_else(String::new, |text| format!("{text}\n\n"));
        let marker = "[More of the conversation was left out here, and nobody could summarise it.]";
        let text = text.strip_suffix(&format!("{marker}\n\n")).unwrap_or(&text);
        format!("{text}{marker}").into()
    }

    /// The need of a view that does not fit and whose removable part is too small for a summary.
    fn drop_or_fail(&self, run: &ActiveRun, limits: ContextBudget, size: usize) -> CompactionNeed {
        let to = self.history.cut_position(KeepTail::MINIMUM);
        let to = to.map(|to| run.unseen_from.map_or(to, |unshown| to.min(unshown)));
        let fits = |to: &HistoryPosition| {
            let stand_in = self.stand_in_bytes(*to, self.drop_notice(run).len());
            let left = size.saturating_sub(self.history.bytes_before(*to)) + stand_in;
            *to > self.history.start && left < size && left <= limits.max_request
        };
        match to.filter(fits) {
            Some(to) => CompactionNeed::Drop(to),
            // The provider has refused a request that should fit: the next attempt asks for a shorter answer.
            None if size <= limits.max_request => CompactionNeed::Nothing,
            None => CompactionNeed::Impossible,
        }
    }

    /// Bytes of the text that replaces everything before `to`. `text_bytes` are those of its summary or drop notice.
    fn stand_in_bytes(&self, to: HistoryPosition, text_bytes: usize) -> usize {
        let todo = self.todo().map_or(0, |todo| todo.len());
        SUMMARY_FRAME_BYTES + self.first_request_bytes(to) + text_bytes + todo
    }

    /// Bytes of the first request of the conversation that are kept if everything before `to` is removed.
    fn first_request_bytes(&self, to: HistoryPosition) -> usize {
        self.history.first_request(to).map_or(0, |first| first.len().min(MAX_FIRST_REQUEST_BYTES))
    }

    /// The summary that becomes part of the view now: at the trigger, or before the first call of a run. Before the
    /// first call it may cover no more than a cut at this moment would.
    pub(super) fn due_summary<'a>(&self, run: &'a ActiveRun) -> Option<&'a PrefixSummary> {
        match self.need(run) {
            CompactionNeed::Now(to) => run.compaction.summary_to(to),
            CompactionNeed::Soon(to) if run.is_at_its_first_call() => {
                let keep = self.keep_tail(run, self.context_budget(run)?);
                let cut = self.history.cut_position(keep)?;
                run.compaction.summary_to(to).filter(|summary| summary.end <= cut)
            }
            CompactionNeed::Nothing
            | CompactionNeed::Soon(_)
            | CompactionNeed::Drop(_)
            | CompactionNeed::Impossible => None,
        }
    }

    /// The parts of a request that cannot be made shorter, and the limit, in tokens.
    pub(super) fn context_breakdown(&self, run: &ActiveRun) -> ContextBreakdown {
        let density = self.next_density(run);
        let tokens = |bytes: usize| density.tokens(bytes as u64);
        let (request_bytes, last_bytes) = self.history.minimum_size(run.unseen_from);
        let model = run.next_model();
        let window = model.and_then(|model| self.observations.window(&run.spec, model));
        let output =
            model.zip(window).map(|(model, window)| estimates::min_answer_tokens(run, model, window));
        ContextBreakdown {
            limit: window.unwrap_or(0).saturating_sub(output.unwrap_or(0)),
            window,
            output,
            system: tokens(self.system_bytes(run)),
            tools: density.tokens(run.spec.schema_bytes),
            request: tokens(request_bytes),
            last: tokens(last_bytes),
        }
    }

    /// True if the view must be compacted before the run's next model call.
    pub(in crate::turn) fn waits_for_compaction(&self, run: &ActiveRun) -> bool {
        matches!(self.need(run), CompactionNeed::Now(_)) && run.is_at_boundary()
    }

    /// The actions due for the run with its asides. While the view must be compacted, or its pictures described, no lease
    /// for the next model call is due.
    pub(in crate::turn) fn due_with_asides(&self, run: &ActiveRun, now: SessionTime) -> Vec<DueAction> {
        let mut due = run.due(now);
        if self.waits_for_compaction(run) || self.waits_for_description(run) {
            let main = run.model_call();
            due.retain(|action| action.acquired_attempt().is_none_or(|id| id.call != main));
        }
        let summary = run.compaction.due(run.id, self.need(run), now).filter(|_| !self.waits_for_flush(run));
        let asides = self.due_for_flush(run, now).into_iter().chain(summary);
        for action in asides.chain(self.due_for_vision(run, now)) {
            if !due.contains(&action) {
                due.push(action);
            }
        }
        due
    }

    /// If a summary made ahead has failed for good, allows another one, which starts only when the run has to wait for
    /// it.
    pub(in crate::turn) fn allow_summary_retry(&mut self) {
        let Some(run) = self.run() else { return };
        let is_ahead = run.compaction.call.is_given_up && !matches!(self.need(run), CompactionNeed::Now(_));
        if let Some(run) = &mut self.current
            && is_ahead
        {
            run.compaction.allow_retry();
        }
    }

    /// How soon the run under way needs its summary. The Compressor orders and delays summary calls by it.
    pub fn summary_urgency(&self, now: SessionTime) -> SummaryUrgency {
        let Some(run) = self.run() else { return SummaryUrgency::Foreground };
        match self.context_budget(run).filter(|_| !self.waits_for_compaction(run)) {
            Some(limits) => SummaryUrgency::Background(self.view_growth(run, limits, now)),
            None => SummaryUrgency::Foreground,
        }
    }

    /// How far the view is from the trigger, at the rate of its growth since the last compaction.
    fn view_growth(&self, run: &ActiveRun, limits: ContextBudget, now: SessionTime) -> ViewGrowth {
        let size = estimates::request_bytes(run, self) as u64;
        let trigger = limits.trigger as u64;
        let fill_percent = size.saturating_mul(100) / trigger.max(1);
        let slack_ms = run.compaction.first_request.and_then(|first| {
            let grown = size.checked_sub(first.bytes).filter(|grown| *grown > 0)?;
            let iterations = u64::from(run.iteration.checked_sub(first.iteration).filter(|n| *n > 0)?);
            let elapsed = now.active_ms.saturating_sub(first.active_ms);
            let left = elapsed.saturating_mul(trigger.saturating_sub(size)) / grown;
            // The view is measured once per iteration. The time of one iteration is taken off, so that the summary
            // starts before the trigger is passed.
            Some(left.saturating_sub(elapsed / iterations))
        });
        ViewGrowth { fill_percent, slack_ms }
    }

    /// The context pressure text (how full the view is) for the call that is wanted or under way.
    pub(in crate::turn) fn current_pressure(&self) -> Option<Arc<str>> {
        let run = self.run()?;
        let call = run.model_call_state()?;
        if call.since.is_some() { call.pressure.clone() } else { self.pressure_text(run).map(Into::into) }
    }

    fn pressure_text(&self, run: &ActiveRun) -> Option<String> {
        let limits = self.context_budget(run)?;
        let size = estimates::head_bytes(run, self) + self.history.bytes;
        let percent = size.saturating_mul(100) / limits.trigger.max(1);
        let urgent = match percent {
            0..70 => return None,
            70..85 => "",
            _ => " Write down now what you must not lose: state results in your answer.",
        };
        Some(format!(
            "{RUNTIME_TEXT_PREFIX}this conversation fills {percent} % of what fits before its older part is replaced by a \
             summary.{urgent}]"
        ))
    }
}

/// Maximum size of a summary in bytes, by the density of the next model. The check of a finished summary is
/// `summary_defect`.
fn summary_bytes(limits: ContextBudget) -> usize {
    usize::try_from(limits.density.bytes(limits.summary_tokens)).unwrap_or(usize::MAX)
}
