//! Whether a view is too long, and up to where it may go.

use std::sync::Arc;

use super::{CompactionNeed, CompactionState, ContextBudget, MAX_FIRST_REQUEST_BYTES, PrefixSummary};
use crate::{
    model::{ContextBreakdown, HistoryPosition, RUNTIME_TEXT_PREFIX, SessionTime, TokenDensity},
    turn::{
        DueAction, Turn,
        active_run::{ActiveRun, CurrentRun, LoopState},
        estimates,
        history::KeepTail,
        model_call::AttemptState,
    },
};

/// Of the window this is left free for what is needed to compress it, in tokens; at most a quarter of it. A request that
/// cannot be made shorter may use it up.
const RESERVED_TOKENS: u64 = 20_000;
/// Before the first call of a run a view over this share of the window is compressed, in percent, wherever the trigger is: what
/// an earlier run has left is not for this one to carry up to the edge.
const BACKSTOP_PERCENT: u64 = 85;
/// A summary has a sixteenth of the window, and so many tokens at most.
const MAX_SUMMARY_TOKENS: u64 = 8_192;
/// Bytes of what stands around a summary.
const SUMMARY_FRAME_BYTES: usize = 500;

impl Turn {
    /// How much fits into the next request; `None` if that is not known, or if nothing is to be done about it.
    pub(in crate::turn) fn context_budget(&self, run: &ActiveRun) -> Option<ContextBudget> {
        let compression = run.spec.compaction.as_deref()?;
        let model = run.next_model()?;
        let window = self.window(run, model)?;
        let output = estimates::wanted_output(run, model).min(window / 4);
        let comfortable = window.saturating_sub(output + RESERVED_TOKENS.min(window / 4));
        let share = u64::from(compression.trigger);
        let share = if run.is_at_its_first_call() { share.min(BACKSTOP_PERCENT) } else { share };
        let trigger = (window * share / 100).min(comfortable);
        let density = self.density(run, model);
        let bytes = |tokens: u64| usize::try_from(density.bytes(tokens)).unwrap_or(usize::MAX);
        Some(ContextBudget {
            trigger: bytes(trigger),
            max_request: bytes(window.saturating_sub(estimates::min_answer_tokens(run, model, window))),
            summary: (window / 16).min(MAX_SUMMARY_TOKENS),
            window: bytes(window),
            density,
        })
    }

    /// How many tokens the requests of the model have that the next call asks first.
    pub(super) fn next_density(&self, run: &ActiveRun) -> TokenDensity {
        run.next_model().map_or(TokenDensity::GUESS, |model| self.density(run, model))
    }

    /// What the view of the run under way needs.
    pub(in crate::turn) fn need(&self, run: &ActiveRun) -> CompactionNeed {
        let Some(room) = self.context_budget(run).filter(|_| !run.is_over()) else {
            return CompactionNeed::Nothing;
        };
        let is_refused = run.is_refused_as_too_long();
        let size = estimates::request_bytes(run, self);
        if !is_refused && size <= room.pressure() {
            return CompactionNeed::Nothing;
        }
        let must = is_refused || size > room.max_request;
        let (request, last) = self.history.minimum_size(run.unseen_from);
        if estimates::head_bytes(run, self) + request + last > room.max_request {
            return if must { CompactionNeed::Impossible } else { CompactionNeed::Nothing };
        }
        let ahead = run.spec.compaction.as_deref().is_some_and(|compression| compression.ahead);
        match self.target_position(run, room, size) {
            Some(to) if is_refused || size > room.trigger => CompactionNeed::Now(to),
            Some(to) if ahead && !self.will_elide(run, room, (size, to)) => CompactionNeed::Soon(to),
            None if must => self.drop_or_fail(run, room, size),
            Some(_) | None => CompactionNeed::Nothing,
        }
    }

    /// Up to where the view may go. A summary that is there is enough if nothing more has to go behind it.
    fn target_position(&self, run: &ActiveRun, room: ContextBudget, size: usize) -> Option<HistoryPosition> {
        let Some(summary) = &run.compaction.summary else { return self.cut_position(run, room, size) };
        if let Some(aim) = run.compaction.target.filter(|aim| *aim > summary.end) {
            return Some(aim);
        }
        let left = size.max(room.trigger).saturating_sub(self.history.bytes_before(summary.end));
        if left + self.stand_in_bytes(summary.end, summary.text.len()) <= room.pressure() {
            return Some(summary.end);
        }
        let covered = self.history.bytes_before(summary.end);
        let is_worth_it = |to: &HistoryPosition| {
            self.history.bytes_before(*to) > covered.saturating_add(2 * summary_bytes(room))
        };
        self.cut_position(run, room, size).filter(is_worth_it).or(Some(summary.end))
    }

    /// Up to where the view is to go: what is said until it reaches the trigger stays as it is, too. A view that has not
    /// grown since the last compression is cut again only where that one has left much more than it should.
    fn cut_position(&self, run: &ActiveRun, room: ContextBudget, size: usize) -> Option<HistoryPosition> {
        let until = match room.trigger.checked_sub(size) {
            Some(until) => until + room.trigger / 16,
            None => 0,
        };
        let KeepTail { messages, bytes } = self.keep_tail(run, room);
        let has_grown = run.is_refused_as_too_long() || run.compaction.has_grown(room, size);
        let summaries = if has_grown { 2 } else { 4 };
        let is_worth_it = |to: &HistoryPosition| {
            let first =
                self.history.first_request(*to).map_or(0, |first| first.len().min(MAX_FIRST_REQUEST_BYTES));
            *to > self.history.start
                && self.history.bytes_before(*to)
                    > SUMMARY_FRAME_BYTES + first + summaries * summary_bytes(room)
        };
        let keep = KeepTail { messages, bytes: bytes.saturating_sub(until) };
        let keeps = [Some(keep), has_grown.then_some(KeepTail::MINIMUM)];
        let cuts = keeps.into_iter().flatten().filter_map(|keep| self.history.cut_position(keep));
        cuts.map(|to| run.unseen_from.map_or(to, |unshown| to.min(unshown))).find(is_worth_it)
    }

    /// What stays as it is at the end of a view that is compressed.
    fn keep_tail(&self, run: &ActiveRun, room: ContextBudget) -> KeepTail {
        let messages = run.spec.compaction.as_deref().map_or(0, |compression| compression.protect_last);
        let fixed = estimates::head_bytes(run, self)
            + self.history.minimum_size(None).0
            + summary_bytes(room)
            + MAX_FIRST_REQUEST_BYTES / 2;
        let bytes = room.target().saturating_sub(fixed).min(room.window / 5).max(room.target() / 8);
        KeepTail { messages, bytes }
    }

    /// Whether it will be enough at the trigger to leave out long results, if the view grows as it has grown.
    fn will_elide(&self, run: &ActiveRun, room: ContextBudget, (size, to): (usize, HistoryPosition)) -> bool {
        let left = size.saturating_sub(self.history.elidable(to)).saturating_mul(room.trigger);
        run.compaction.may_elide() && left <= room.target().saturating_mul(size)
    }

    /// What is left to do about a view that does not fit, and of which too little can go to be worth a summary.
    fn drop_or_fail(&self, run: &ActiveRun, room: ContextBudget, size: usize) -> CompactionNeed {
        let to = self.history.cut_position(KeepTail::MINIMUM);
        let to = to.map(|to| run.unseen_from.map_or(to, |unshown| to.min(unshown)));
        let fits = |to: &HistoryPosition| {
            let stand_in = self.stand_in_bytes(*to, self.drop_notice(run).len());
            let left = size.saturating_sub(self.history.bytes_before(*to)) + stand_in;
            *to > self.history.start && left < size && left <= room.max_request
        };
        match to.filter(fits) {
            Some(to) => CompactionNeed::Drop(to),
            // It was refused all the same: it is asked again for a shorter answer.
            None if size <= room.max_request => CompactionNeed::Nothing,
            None => CompactionNeed::Impossible,
        }
    }

    /// The bytes of what stands for all before a place, with notes of so many bytes.
    fn stand_in_bytes(&self, to: HistoryPosition, notes: usize) -> usize {
        let first =
            self.history.first_request(to).map_or(0, |first| first.len().min(MAX_FIRST_REQUEST_BYTES));
        SUMMARY_FRAME_BYTES + first + notes + self.todo().map_or(0, |todo| todo.len())
    }

    /// The summary that the view shows from now on, if it is time for it: at the trigger; or before the first call of a run,
    /// when all stays whole that would if the view were compressed now.
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

    /// What a request that cannot be made shorter consists of, and what there is room for.
    pub(super) fn context_breakdown(&self, run: &ActiveRun) -> ContextBreakdown {
        let density = self.next_density(run);
        let tokens = |bytes: usize| density.tokens(bytes as u64);
        let (request, last) = self.history.minimum_size(run.unseen_from);
        let model = run.next_model();
        let window = model.and_then(|model| self.window(run, model));
        let output =
            model.zip(window).map(|(model, window)| estimates::min_answer_tokens(run, model, window));
        ContextBreakdown {
            limit: window.unwrap_or(0).saturating_sub(output.unwrap_or(0)),
            window,
            output,
            system: tokens(self.system_bytes(run)),
            tools: density.tokens(run.spec.schema_bytes),
            request: tokens(request),
            last: tokens(last),
        }
    }

    /// What is in flight, or should be, with what there is about the view.
    pub(in crate::turn) fn due_with_summary(&self, run: &ActiveRun, now: SessionTime) -> Vec<DueAction> {
        let mut due = run.due(now);
        let need = self.need(run);
        if matches!(need, CompactionNeed::Now(_)) && run.is_at_boundary() {
            let main = run.model_call();
            due.retain(|effect| !matches!(effect, DueAction::Acquire { call, .. } if *call == main));
        }
        let CompactionState { call: asking, given_up, only_when_needed: not_ahead, .. } = &run.compaction;
        let (call, attempt) = (run.summary_call(), asking.attempt);
        let is_there = |to: HistoryPosition| run.compaction.summary_to(to).is_some();
        let wanted = match need {
            CompactionNeed::Now(to) => !given_up && !is_there(to),
            CompactionNeed::Soon(to) => !given_up && !not_ahead && !is_there(to),
            CompactionNeed::Nothing | CompactionNeed::Drop(_) | CompactionNeed::Impossible => false,
        };
        let effect = match &asking.state {
            AttemptState::Started(_) => Some(DueAction::CallModel { call, attempt }),
            AttemptState::Wanted(_) if !wanted => None,
            AttemptState::Wanted(Some(pause)) if !pause.is_over(now.at) => {
                Some(DueAction::WakeAt(pause.until))
            }
            AttemptState::Wanted(_) => Some(DueAction::Acquire { call, attempt }),
        };
        due.extend(effect.filter(|effect| !due.contains(effect)));
        due
    }

    /// What the requests of the call that is wanted or under way say of a view that is nearly full.
    pub(in crate::turn) fn current_pressure(&self) -> Option<Arc<str>> {
        let CurrentRun::Running(run) = &self.current else { return None };
        match &run.state {
            LoopState::CallingModel(asking) if asking.since.is_some() => asking.pressure.clone(),
            LoopState::CallingModel(_) => self.pressure(run).map(Into::into),
            LoopState::RunningTools(_) | LoopState::Answered(_) => None,
        }
    }

    fn pressure(&self, run: &ActiveRun) -> Option<String> {
        let room = self.context_budget(run)?;
        let size = estimates::head_bytes(run, self) + self.history.bytes();
        let percent = size.saturating_mul(100) / room.trigger.max(1);
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

/// The bytes that a summary should have at most; one with more than twice as many is none.
fn summary_bytes(room: ContextBudget) -> usize {
    usize::try_from(room.density.bytes(room.summary)).unwrap_or(usize::MAX)
}
