//! Folding: what records change of a view and of what is done about it.

use std::sync::Arc;

use super::{Compacting, FIRST, Need, PrefixSummary};
use crate::{
    model::{
        Body, ContextCompacted, FROM_RUNTIME, ModelFailed, Now, Place, Rung, SummaryAnswered, SummaryStarted,
    },
    policy::spent_by_failure,
    turn::{
        Turn,
        asking::{Asked, Asking, Patience, Pause},
        limits,
        run::{Phase, Step},
    },
};

impl Turn {
    /// What a record says of the view, or of a summary.
    pub(in crate::turn) fn fold_summary(&mut self, body: &Body, now: Now) {
        if let Body::ContextCompacted(compacted) = body {
            self.compacted(compacted);
        } else if let Body::SummaryStarted(started) = body {
            self.summary_started(started, now.active_ms);
        } else if let Body::SummaryAnswered(answered) = body {
            self.summary_answered(answered);
        } else if let Body::SummaryFailed(failed) = body {
            self.summary_failed(failed, now);
        }
    }

    fn summary_started(&mut self, started: &SummaryStarted, active_ms: u64) {
        let Phase::Running(run) = &mut self.phase else { return };
        if run.summary_call() != started.asked.call {
            return;
        }
        let compacting = &mut run.compacting;
        (compacting.upto, compacting.aim) = (started.upto, Some(started.to));
        compacting.asking.since.get_or_insert(active_ms);
        compacting.asking.state = Asked::Started(Arc::clone(&started.asked));
    }

    fn summary_answered(&mut self, answered: &SummaryAnswered) {
        let Phase::Running(run) = &self.phase else { return };
        if let Some(started) = run.compacting.asking.started().cloned() {
            self.measure(&started, answered.usage.as_ref());
        }
        let Phase::Running(run) = &mut self.phase else { return };
        run.usage.add(&answered.usage.unwrap_or_default());
        let links = run.spec.compression.as_deref().map_or(0, |compression| compression.chain.len());
        let Compacting { asking, upto, summary, unusable, given_up, .. } = &mut run.compacting;
        let spent = asking.started().map(|started| started.spent(answered.usage.as_ref()));
        run.spent.add(&spent.unwrap_or_default());
        asking.attempt = answered.attempt + 1;
        asking.state = Asked::Wanted(None);
        if answered.unusable.is_none() {
            let calls = summary.as_ref().map_or(0, |summary| summary.calls) + 1;
            *summary = Some(PrefixSummary { upto: *upto, text: Arc::clone(&answered.text), calls });
            *unusable = 0;
        } else {
            *unusable += 1;
        }
        if let Some(link) = answered.fallback {
            (asking.from, *unusable) = (link, 0);
            *given_up |= link >= links;
        }
        self.try_again_when_needed();
    }

    fn summary_failed(&mut self, failed: &ModelFailed, now: Now) {
        self.learn(&failed.failure.class, failed.call);
        let Phase::Running(run) = &mut self.phase else { return };
        let asking = &mut run.compacting.asking;
        if let Some(started) = asking.started().cloned() {
            let patience = if failed.fallback.is_some() { Patience::Spent } else { Patience::Left };
            asking.note(started.model.clone(), &failed.failure, patience);
            run.spent.add(&spent_by_failure(&started, &failed.failure));
            run.usage.add(&failed.failure.usage.as_deref().copied().unwrap_or_default());
        }
        asking.attempt = failed.attempt + 1;
        asking.state =
            Asked::Wanted(failed.retry_at.map(|until| Pause { from: now.at, until, uncounted: None }));
        run.compacting.given_up |= failed.retry_at.is_none();
        self.try_again_when_needed();
    }

    /// A summary that could not be had ahead is asked for once more when the run has to wait for it.
    fn try_again_when_needed(&mut self) {
        let Phase::Running(run) = &self.phase else { return };
        let is_ahead = run.compacting.given_up && !matches!(self.need(run), Need::Now(_));
        if let Phase::Running(run) = &mut self.phase
            && is_ahead
        {
            let Compacting { asking, aim, unusable, given_up, not_ahead, .. } = &mut run.compacting;
            *asking = Asking { attempt: asking.attempt, ..Asking::first(0) };
            (*aim, *unusable, *given_up, *not_ahead) = (None, 0, false, true);
        }
    }

    fn compacted(&mut self, compacted: &ContextCompacted) {
        let todo = self.todo();
        match compacted.by {
            Rung::Elided => self.history.elide(compacted.to),
            Rung::Summarised | Rung::Chunked | Rung::Dropped => {
                let first = self.first_request(compacted.to);
                let before = stands_for(compacted, first.as_deref(), todo.as_deref());
                self.history.shorten(compacted.to, before);
            }
        }
        if !matches!(compacted.by, Rung::Elided) {
            self.summary.clone_from(&compacted.summary);
        }
        let Phase::Running(run) = &self.phase else { return };
        let size = limits::request_bytes(run, self);
        let size = (size, self.next_density(run).weight(size));
        if let Phase::Running(run) = &mut self.phase {
            let summary = run.compacting.summary.take().filter(|_| matches!(compacted.by, Rung::Elided));
            run.compacting = Compacting { summary, ..Compacting::first(run.compacting.nth + 1, size) };
            if let Step::Asking(asking) = &mut run.step {
                (asking.is_too_long, asking.pressure) = (false, None);
            }
        }
    }

    /// What the user said first of all, if that is not in the view any more when all before a place is left out.
    fn first_request(&self, to: Place) -> Option<String> {
        let first = self.history.first_request(to)?;
        let mut end = first.len().min(FIRST);
        while !first.is_char_boundary(end) {
            end -= 1;
        }
        let cut = if end < first.len() { " [cut]" } else { "" };
        Some(format!("{}{cut}", &first[..end]))
    }
}

/// What the model reads in place of what was left out.
fn stands_for(compacted: &ContextCompacted, first: Option<&str>, todo: Option<&str>) -> Arc<str> {
    let mut text = format!(
        "\n\n{FROM_RUNTIME}the older part of this conversation was left out to save room. What follows stands for it: facts \
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
