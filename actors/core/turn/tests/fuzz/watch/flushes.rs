//! Checks the memory flushes: one for each compaction at most, before its summary, and each answer with entries is
//! followed by one end of their write.

use std::{collections::BTreeSet, sync::Arc};

use super::{State, Watch};
use crate::{
    model::{AsideAnswered, Attempt, AttemptId, Body, CallId, MemorySaved, ModelFailed, ModelStarted},
    policy::{Billing, billing, parse_flush},
    turn::{DueAction, tests::fuzz::hold},
};

/// State of the flushes.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    /// The attempt under way.
    asked: Option<Arc<ModelStarted>>,
    /// The flush whose entries are to be written, and their number.
    pending: Option<(CallId, usize)>,
    /// The flushes that are over.
    over: BTreeSet<CallId>,
}

impl Flushes {
    /// Whether none is under way.
    pub(super) const fn is_idle(&self) -> bool {
        self.asked.is_none()
    }

    /// Whether neither a flush nor a write of its entries is under way.
    pub(super) const fn lets_summarise(&self) -> bool {
        self.asked.is_none() && self.pending.is_none()
    }

    /// Whether a due action for a flush fits its records.
    pub(super) fn fits(&self, effect: &DueAction) -> bool {
        match *effect {
            DueAction::CallModel(id) => self.asked.as_ref().is_some_and(|asked| asked.id() == id),
            DueAction::Acquire(AttemptId { call, .. }) => self.lets_summarise() && !self.over.contains(&call),
            DueAction::SaveMemory(call) => self.pending.is_some_and(|(pending, _)| pending == call),
            DueAction::RunTool { .. }
            | DueAction::EndTool { .. }
            | DueAction::AwaitSubagent { .. }
            | DueAction::Begin(_)
            | DueAction::Verify(_)
            | DueAction::WakeAt(_)
            | DueAction::WakeAtActive(_) => false,
        }
    }
}

impl Watch {
    /// Checks a record about a flush.
    pub(super) fn flush(&mut self, body: &Body) -> Result<(), String> {
        if let Body::AsideStarted(started) = body {
            self.flush_started(started)
        } else if let Body::AsideAnswered(answered) = body {
            self.flush_answered(answered)
        } else if let Body::AsideFailed(failed) = body {
            self.flush_failed(failed)
        } else if let Body::MemorySaved(saved) = body {
            self.memory_saved(saved)
        } else {
            Ok(())
        }
    }

    fn flush_started(&mut self, asked: &Arc<ModelStarted>) -> Result<(), String> {
        hold!(self.flushes.lets_summarise(), "{asked:?} while {:?}", self.flushes);
        hold!(!self.flushes.over.contains(&asked.call), "{asked:?} again");
        hold!(self.summaries.is_idle(), "{asked:?} while {:?}", self.summaries);
        hold!(asked.attempt <= 2, "{asked:?} is one attempt too many");
        hold!(asked.view_seq + 1 == self.seq, "{asked:?} is record {}", self.seq);
        hold!(asked.incarnation == self.incarnation, "{asked:?} in {}", self.incarnation);
        hold!(asked.reserved.iterations.is_none(), "{asked:?} costs an iteration");
        hold!(asked.reserved.tokens > Some(asked.max_tokens), "{asked:?} reserves too little");
        let run = self.running(asked.call.run)?;
        hold!(run.state == State::Running && run.exhausted.is_none(), "{run:?} wants a flush");
        let may_be = run.spec.memory.as_ref().is_some_and(|memory| memory.chain.contains(&asked.model));
        hold!(may_be, "{asked:?} asks somebody else");
        run.held.reserve(&asked.reserved);
        self.flushes.asked = Some(Arc::clone(asked));
        Ok(())
    }

    fn take_flush(&mut self, call: CallId, attempt: Attempt) -> Result<Arc<ModelStarted>, String> {
        let asked = self.flushes.asked.take_if(|asked| (asked.call, asked.attempt) == (call, attempt));
        let asked = asked.ok_or_else(|| format!("{call} attempt {attempt} is not under way"))?;
        self.running(call.run)?.held.give_back(&asked.reserved);
        Ok(asked)
    }

    fn flush_answered(&mut self, answered: &AsideAnswered) -> Result<(), String> {
        let asked = self.take_flush(answered.call, answered.attempt)?;
        hold!(answered.unusable.is_some() == answered.text.is_empty(), "{answered:?}");
        if answered.unusable.is_none() {
            self.flushes.over.insert(answered.call);
            let entries =
                parse_flush(&answered.text).map_err(|defect| format!("{answered:?}: {defect:?}"))?;
            let count = entries.len();
            self.flushes.pending = (count > 0).then_some((answered.call, count));
        } else if answered.attempt == 2 {
            self.flushes.over.insert(answered.call);
        }
        match &answered.usage {
            Some(usage) => self.used(answered.call.run, usage, &asked),
            None => Ok(()),
        }
    }

    fn flush_failed(&mut self, failed: &ModelFailed) -> Result<(), String> {
        if failed.retry_at.is_none() {
            self.flushes.over.insert(failed.call);
        }
        // If no model can be called, no attempt was under way.
        if self.flushes.is_idle() {
            hold!(failed.retry_at.is_none(), "{failed:?} of nothing");
            return Ok(());
        }
        let asked = self.take_flush(failed.call, failed.attempt)?;
        if let Some(usage) = failed.failure.usage.as_deref() {
            self.used(failed.call.run, usage, &asked)?;
        }
        if billing(&failed.failure) == Billing::Everything {
            self.may_be_late(failed.call, failed.attempt, asked.reserved.tokens);
        }
        Ok(())
    }

    fn memory_saved(&mut self, saved: &MemorySaved) -> Result<(), String> {
        let pending = self.flushes.pending.take();
        let save = &saved.save;
        let count = save.added + save.present + u32::try_from(save.refused.len()).unwrap_or(u32::MAX);
        hold!(
            pending.is_some_and(|(call, entries)| call == saved.call && u64::from(count) == entries as u64),
            "{saved:?} of {pending:?}"
        );
        Ok(())
    }
}
