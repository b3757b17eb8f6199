//! Checks compactions of the view, and the calls for summaries.

use std::sync::Arc;

use super::{State, Watch};
use crate::{
    model::{
        Amounts, AsideAnswered, Attempt, AttemptId, Body, CallId, ContextCompacted, ModelFailed,
        ModelStarted, RunId, RunSpec, SummaryStarted, Usage,
    },
    policy::{Billing, billing},
    turn::{DueAction, Turn, tests::fuzz::hold},
};

/// State of the calls for summaries.
#[derive(Debug, Default)]
pub(super) struct Summaries {
    /// The attempt under way.
    asked: Option<Arc<ModelStarted>>,
    /// Whether the view has changed since the last request of a model call.
    pub(super) changed: bool,
}

impl Summaries {
    pub(super) const fn is_idle(&self) -> bool {
        self.asked.is_none()
    }

    /// Whether a due action for a summary fits the attempt under way.
    pub(super) fn fits(&self, effect: &DueAction) -> bool {
        match *effect {
            DueAction::CallModel(AttemptId { call, attempt }) => {
                self.asked.as_ref().is_some_and(|asked| (asked.call, asked.attempt) == (call, attempt))
            }
            DueAction::Acquire { .. } => self.asked.is_none(),
            DueAction::RunTool { .. }
            | DueAction::EndTool { .. }
            | DueAction::AwaitSubagent { .. }
            | DueAction::Begin(_)
            | DueAction::Verify(_)
            | DueAction::SaveMemory(_)
            | DueAction::WakeAt(_)
            | DueAction::WakeAtActive(_) => false,
        }
    }
}

impl Watch {
    /// Checks a record about a compaction or a summary.
    pub(super) fn summary(&mut self, body: &Body, turn: &Turn) -> Result<(), String> {
        if let Body::ContextCompacted(compacted) = body {
            self.compacted(compacted, turn)
        } else if let Body::SummaryStarted(started) = body {
            self.summary_started(started)
        } else if let Body::SummaryAnswered(answered) = body {
            self.summary_answered(answered)
        } else if let Body::SummaryFailed(failed) = body {
            self.summary_failed(failed)
        } else {
            Ok(())
        }
    }

    fn summary_started(&mut self, started: &SummaryStarted) -> Result<(), String> {
        let asked = &started.started;
        hold!(self.summaries.is_idle(), "{started:?} while {:?}", self.summaries);
        hold!(self.flushes.lets_summarise(), "{started:?} while {:?}", self.flushes);
        hold!(asked.view_seq + 1 == self.seq, "{started:?} is record {}", self.seq);
        hold!(asked.reserved.iterations.is_none(), "{started:?} costs an iteration");
        hold!(asked.reserved.tokens > Some(asked.max_tokens), "{started:?} reserves too little");
        let compression = self.open_spec(asked.call.run)?.compaction.clone();
        let may_be = compression.is_some_and(|compression| compression.chain.contains(&asked.model));
        hold!(may_be, "{started:?} asks somebody else");
        self.hold_for(asked.call.run, &asked.reserved)?;
        self.summaries.asked = Some(Arc::clone(asked));
        Ok(())
    }

    fn take_summary(&mut self, call: CallId, attempt: Attempt) -> Result<Arc<ModelStarted>, String> {
        let asked = self.summaries.asked.take_if(|asked| (asked.call, asked.attempt) == (call, attempt));
        let asked = asked.ok_or_else(|| format!("{call} attempt {attempt} is not under way"))?;
        self.give_back_for(call.run, &asked.reserved)?;
        Ok(asked)
    }

    fn summary_answered(&mut self, answered: &AsideAnswered) -> Result<(), String> {
        let asked = self.take_summary(answered.call, answered.attempt)?;
        hold!(answered.unusable.is_some() == answered.text.is_empty(), "{answered:?}");
        if let Some(usage) = &answered.usage {
            self.used(answered.call.run, usage, &asked)?;
        }
        Ok(())
    }

    fn summary_failed(&mut self, failed: &ModelFailed) -> Result<(), String> {
        // If no model can be called, no attempt was under way.
        if self.summaries.is_idle() {
            hold!(failed.retry_at.is_none(), "{failed:?} of nothing");
            return Ok(());
        }
        let asked = self.take_summary(failed.call, failed.attempt)?;
        if let Some(usage) = failed.failure.usage.as_deref() {
            self.used(failed.call.run, usage, &asked)?;
        }
        if billing(&failed.failure) == Billing::Everything {
            self.may_be_late(failed.call, failed.attempt, asked.reserved.tokens);
        }
        Ok(())
    }

    fn compacted(&mut self, compacted: &ContextCompacted, turn: &Turn) -> Result<(), String> {
        hold!(self.asked.is_none(), "{compacted:?} while {:?}", self.asked);
        hold!(compacted.tokens_after < compacted.tokens_before, "{compacted:?} makes nothing shorter");
        hold!(self.summaries.is_idle(), "{compacted:?} while {:?}", self.summaries);
        hold!(self.flushes.is_idle(), "{compacted:?} while {:?}", self.flushes);
        self.summaries.changed = true;
        self.shown.compacted(turn);
        Ok(())
    }

    fn open_spec(&mut self, run: RunId) -> Result<&Arc<RunSpec>, String> {
        let run = self.running(run)?;
        hold!(run.state == State::Running && run.exhausted.is_none(), "{run:?} wants a summary");
        Ok(&run.spec)
    }

    fn hold_for(&mut self, run: RunId, amounts: &Amounts) -> Result<(), String> {
        self.running(run)?.held.reserve(amounts);
        Ok(())
    }

    fn give_back_for(&mut self, run: RunId, amounts: &Amounts) -> Result<(), String> {
        self.running(run)?.held.give_back(amounts);
        Ok(())
    }

    pub(super) fn used(&mut self, run: RunId, usage: &Usage, asked: &ModelStarted) -> Result<(), String> {
        let run = self.running(run)?;
        run.usage.add(usage);
        run.held.excess += usage.total().saturating_sub(asked.reserved.tokens.unwrap_or(0));
        Ok(())
    }

    /// Notes an attempt whose usage may still arrive.
    pub(super) fn may_be_late(&mut self, call: CallId, attempt: Attempt, booked: Option<u64>) {
        self.cancelled.push((call, attempt, booked));
    }
}
