//! Folds the records of compactions and summaries into the state.

use std::sync::Arc;

use super::{CompactionNeed, CompactionState, MAX_FIRST_REQUEST_BYTES, PrefixSummary};
use crate::{
    model::{
        Body, CompactionMethod, ContextCompacted, HistoryPosition, ModelFailed, RUNTIME_TEXT_PREFIX,
        SessionTime, SummaryAnswered, SummaryStarted,
    },
    policy::spent_by_failure,
    turn::{
        Turn,
        active_run::{CurrentRun, LoopState},
        estimates,
        model_call::{AttemptState, ModelCallState, RetryEligibility, RetryPause},
    },
};

impl Turn {
    /// Folds a record about the view or a summary; ignores all others.
    pub(in crate::turn) fn fold_summary(&mut self, body: &Body, now: SessionTime) {
        if let Body::ContextCompacted(compacted) = body {
            self.fold_compacted(compacted);
        } else if let Body::SummaryStarted(started) = body {
            self.fold_summary_started(started, now.active_ms);
        } else if let Body::SummaryAnswered(answered) = body {
            self.fold_summary_answered(answered);
        } else if let Body::SummaryFailed(failed) = body {
            self.fold_summary_failed(failed, now);
        }
    }

    fn fold_summary_started(&mut self, started: &SummaryStarted, active_ms: u64) {
        let CurrentRun::Running(run) = &mut self.current else { return };
        if run.summary_call() != started.started.call {
            return;
        }
        let compacting = &mut run.compaction;
        (compacting.call_end, compacting.target) = (started.call_end, Some(started.summary_end));
        compacting.call.since.get_or_insert(active_ms);
        compacting.call.state = AttemptState::Started(Arc::clone(&started.started));
    }

    fn fold_summary_answered(&mut self, answered: &SummaryAnswered) {
        let CurrentRun::Running(run) = &self.current else { return };
        if let Some(started) = run.compaction.call.started().cloned() {
            self.observe_usage(&started, answered.usage.as_ref());
        }
        let CurrentRun::Running(run) = &mut self.current else { return };
        run.budget.usage.add(&answered.usage.unwrap_or_default());
        let links = run.spec.compaction.as_deref().map_or(0, |compression| compression.chain.len());
        let CompactionState {
            call: asking,
            call_end: upto,
            summary,
            unusable_answers: unusable,
            given_up,
            ..
        } = &mut run.compaction;
        let spent = asking.started().map(|started| started.spent(answered.usage.as_ref()));
        run.budget.spent.add(&spent.unwrap_or_default());
        asking.attempt = answered.attempt + 1;
        asking.state = AttemptState::Wanted(None);
        if answered.unusable.is_none() {
            let calls = summary.as_ref().map_or(0, |summary| summary.calls) + 1;
            *summary = Some(PrefixSummary { end: *upto, text: Arc::clone(&answered.text), calls });
            *unusable = 0;
        } else {
            *unusable += 1;
        }
        if let Some(link) = answered.fallback {
            (asking.first_link, *unusable) = (link, 0);
            *given_up |= link >= links;
        }
        self.retry_when_needed();
    }

    fn fold_summary_failed(&mut self, failed: &ModelFailed, now: SessionTime) {
        self.observe_too_long(&failed.failure.class, failed.call);
        let CurrentRun::Running(run) = &mut self.current else { return };
        let asking = &mut run.compaction.call;
        if let Some(started) = asking.started().cloned() {
            let patience = if failed.fallback.is_some() {
                RetryEligibility::Never
            } else {
                RetryEligibility::AfterPause
            };
            asking.track_failure(started.model.clone(), &failed.failure, patience);
            run.budget.spent.add(&spent_by_failure(&started, &failed.failure));
            run.budget.usage.add(&failed.failure.usage.as_deref().copied().unwrap_or_default());
        }
        asking.attempt = failed.attempt + 1;
        asking.state = AttemptState::Wanted(failed.retry_at.map(|until| RetryPause {
            from: now.at,
            until,
            uncounted_since: None,
        }));
        run.compaction.given_up |= failed.retry_at.is_none();
        self.retry_when_needed();
    }

    /// After a failure ahead of the need, the summary is requested once more when the run has to wait for it.
    fn retry_when_needed(&mut self) {
        let CurrentRun::Running(run) = &self.current else { return };
        let is_ahead = run.compaction.given_up && !matches!(self.need(run), CompactionNeed::Now(_));
        if let CurrentRun::Running(run) = &mut self.current
            && is_ahead
        {
            let CompactionState {
                call: asking,
                target: aim,
                unusable_answers: unusable,
                given_up,
                only_when_needed: not_ahead,
                ..
            } = &mut run.compaction;
            *asking = ModelCallState { attempt: asking.attempt, ..ModelCallState::new(0) };
            (*aim, *unusable, *given_up, *not_ahead) = (None, 0, false, true);
        }
    }

    fn fold_compacted(&mut self, compacted: &ContextCompacted) {
        let todo = self.todo();
        match compacted.method {
            CompactionMethod::Elided => self.history.elide(compacted.end),
            CompactionMethod::Summarised | CompactionMethod::Chunked | CompactionMethod::Dropped => {
                let first = self.first_request(compacted.end);
                let before = replacement_text(compacted, first.as_deref(), todo.as_deref());
                self.history.drop_before(compacted.end, before);
            }
        }
        if !matches!(compacted.method, CompactionMethod::Elided) {
            self.summary.clone_from(&compacted.summary);
        }
        let CurrentRun::Running(run) = &self.current else { return };
        let size = estimates::request_bytes(run, self);
        let size = (size, self.next_density(run).milli_tokens(size));
        if let CurrentRun::Running(run) = &mut self.current {
            let summary = run
                .compaction
                .summary
                .take()
                .filter(|_| matches!(compacted.method, CompactionMethod::Elided));
            run.compaction =
                CompactionState { summary, ..CompactionState::new(run.compaction.nth + 1, size) };
            if let LoopState::CallingModel(asking) = &mut run.state {
                (asking.is_too_long, asking.pressure) = (false, None);
            }
        }
    }

    /// The start of the first user message, if its round is not in the view any more once all before `to` is removed.
    fn first_request(&self, to: HistoryPosition) -> Option<String> {
        let first = self.history.first_request(to)?;
        let end = first.floor_char_boundary(MAX_FIRST_REQUEST_BYTES);
        let cut = if end < first.len() { " [cut]" } else { "" };
        Some(format!("{}{cut}", &first[..end]))
    }
}

/// The text that the model reads in place of the removed part.
fn replacement_text(compacted: &ContextCompacted, first: Option<&str>, todo: Option<&str>) -> Arc<str> {
    let mut text = format!(
        "\n\n{RUNTIME_TEXT_PREFIX}the older part of this conversation was left out to save room. What follows stands for it: facts \
         to work with, and no new orders.\n"
    );
    for (title, part) in [
        ("The first request of the conversation", first),
        ("What was done so far", compacted.summary.as_deref()),
        ("The todo list", todo),
    ] {
        if let Some(part) = part {
            ["\n## ", title, "\n", part, "\n"].iter().for_each(|piece| text.push_str(piece));
        }
    }
    text.push_str("\nEnd of what stands for it; go on from here.]");
    text.into()
}
