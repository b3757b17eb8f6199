//! Decides about the call of a flush: its start, what follows from answers and failures, and when it is given up. Also the
//! end of the write of its entries.

use super::{PROMPT, chain_of};
use crate::{
    model::{
        AttemptId, Body, CallId, Failure, FailureClass, MemorySave, MemorySaved, ModelAnswer, ModelFailed,
        ModelRef, ModelStarted,
    },
    policy::{format_flush, parse_flush},
    turn::{
        active_run::ActiveRun,
        aside::{AsideContent, aside_answered, aside_refusal},
        decision::DecisionBuilder,
    },
};

impl DecisionBuilder {
    /// Whether this is the wanted attempt of the flush, and may start.
    fn is_flush_wanted(&self, id: AttemptId) -> bool {
        let is_wanted = |run: &ActiveRun| {
            run.compaction.flush.call.is_wanted(run.flush_call(), id)
                && self.turn.memory.pending.is_none()
                && self.turn.flush_target(run).is_some()
        };
        self.may_start() && self.run().is_some_and(is_wanted)
    }

    pub(in crate::turn) fn start_flush(&mut self, id: AttemptId, model: &ModelRef) {
        let Some(run) = self.run().filter(|_| self.is_flush_wanted(id)) else { return };
        let Some(part) = self.turn.flushed_part(run, model) else { return };
        let max_tokens = self.turn.flush_tokens(run);
        let content = AsideContent { prompt: PROMPT, text: &part.text, images: 0 };
        let started = self.aside_start(id, (&run.spec, model), content, max_tokens);
        match aside_refusal(run, &started.reserved, "a memory flush") {
            Some(why) => self.give_up_flush(id, Failure::new(FailureClass::NotSent, why)),
            None => self.record(Body::AsideStarted(started.into())),
        }
    }

    /// Whether this attempt of the flush is under way.
    fn is_flushing(&self, id: AttemptId) -> bool {
        let started = self.run().and_then(|run| run.compaction.flush.call.started());
        started.is_some_and(|started| started.id() == id)
    }

    pub(in crate::turn) fn on_flush_answer(&mut self, started: &ModelStarted, answer: &ModelAnswer) {
        let Some(run) = self.run().filter(|_| self.is_flushing(started.id())) else {
            return self.on_late_answer(started, answer);
        };
        let checked = parse_flush(&answer.message.text).map(|entries| format_flush(&entries));
        let (call, chain) = (&run.compaction.flush.call, chain_of(&run.spec));
        let answered = aside_answered(call, chain, (started, answer), checked);
        self.record(Body::AsideAnswered(answered));
    }

    /// Reacts to a failed attempt of the flush: another attempt, the next model, or no flush.
    pub(in crate::turn) fn on_flush_failure(&mut self, id: AttemptId, failure: &Failure) {
        let Some(run) = self.run().filter(|_| self.is_flushing(id)) else { return };
        let call = &run.compaction.flush.call;
        let Some(started) = call.started() else { return };
        let failed = self.aside_failed(call, started, chain_of(&run.spec), failure);
        self.record(Body::AsideFailed(failed));
    }

    /// Gives up the wanted attempt and with it the flush.
    pub(in crate::turn) fn give_up_flush(&mut self, id: AttemptId, failure: Failure) {
        if self.is_flush_wanted(id) {
            self.record(Body::AsideFailed(ModelFailed::new(id, failure, None)));
        }
    }

    /// Cancels the started attempt of a flush, because its run needs none any more.
    pub(in crate::turn) fn cancel_flush(&mut self) {
        let Some(started) = self.run().and_then(|run| run.compaction.flush.call.started()) else { return };
        let id = started.id();
        let failure = self.cancelled_failure(id, "its run needs no summary any more");
        self.record(Body::AsideFailed(ModelFailed::new(id, failure, None)));
    }

    /// Reacts to the end of the write of a flush's entries.
    pub(in crate::turn) fn on_memory_saved(&mut self, call: CallId, save: &MemorySave) {
        if self.turn.pending_memory(call).is_some() {
            self.record(Body::MemorySaved(MemorySaved { call, save: save.clone() }));
        }
    }
}
