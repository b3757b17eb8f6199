//! The result of an append. If it is durable, the turn applies its records, callers are answered, and due actions
//! start. If it was refused, its inputs are rejected or decided again. `append.rs` makes the append.

use std::sync::Arc;

use ractor::ActorProcessingErr;

use crate::{
    model::{Durable, Record, RunId, Timestamp},
    persistence::AppendResult,
    port::WriteRefusal,
    session::{
        AcceptedRun, SubmitError,
        shell::{InFlightAppend, InputReply, QueuedInput, SessionActorState, StartPhase},
    },
    turn::Input,
};

impl SessionActorState {
    /// The append was written or refused. An error ends this actor; the supervisor decides what follows.
    pub(super) fn on_append_done(
        &mut self,
        number: u64,
        stored: AppendResult,
    ) -> Result<(), ActorProcessingErr> {
        let Some(InFlightAppend { inputs, .. }) = self.in_flight.take_if(|flight| flight.number == number)
        else {
            return Ok(());
        };
        match stored? {
            Ok(records) => self.on_durable(&records, inputs),
            Err(WriteRefusal::BudgetRefusal(refusal)) => {
                self.put_back(inputs);
                let input = Input::BudgetRefused(refusal);
                self.waiting.push_front(QueuedInput { input, reply: None, grant: None });
            }
            Err(WriteRefusal::Duplicate(run)) => {
                self.reject(inputs, &SubmitError::Duplicate(run));
            }
            Err(WriteRefusal::OccurrenceLeftOut(occurrence)) => {
                self.reject(inputs, &SubmitError::OccurrenceLeftOut(occurrence));
            }
            Err(WriteRefusal::KeyTaken(other)) => {
                self.reject(inputs, &SubmitError::KeyTaken(other));
                self.me.stop(Some("another session has its key".into()));
            }
            // Without a submission to reject, the session crashes; repeated crashes end its run.
            Err(refusal @ WriteRefusal::Unreadable { .. }) if has_submission(&inputs) => {
                self.reject(inputs, &SubmitError::Unreadable(refusal.to_string()));
            }
            Err(
                refusal @ (WriteRefusal::Fenced(_)
                | WriteRefusal::WrongSeq { .. }
                | WriteRefusal::Unreadable { .. }
                | WriteRefusal::Malformed(_)),
            ) => {
                return Err(Box::new(refusal));
            }
        }
        Ok(())
    }

    fn on_durable(&mut self, records: &[Durable<Arc<Record>>], inputs: Vec<QueuedInput>) {
        match std::mem::replace(&mut self.phase, StartPhase::Switching) {
            StartPhase::Replayed(replayed, _) => self.phase = StartPhase::Awake(replayed.into_turn(records)),
            StartPhase::Awake(mut turn) => {
                records.iter().for_each(|record| turn.apply(record));
                self.phase = StartPhase::Awake(turn);
            }
            StartPhase::Switching => return,
        }
        self.forget_ended(records);
        if let StartPhase::Awake(turn) = &self.phase
            && let Some(run) = turn.parked_run()
        {
            self.parts.hub.notify_run_end(run);
        }
        let at = records.first().map_or_else(Timestamp::default, |record| record.at);
        self.reply_to(inputs, at);
        self.reconcile();
    }

    /// Tells tools which calls have durable ends. They may delete what they kept to attach to those calls.
    fn forget_ended(&mut self, records: &[Durable<Arc<Record>>]) {
        for id in records.iter().filter_map(|record| record.body.ended_tool_attempt()) {
            match self.tools.release(id) {
                Some(tool) => tool.forget(id.call, id.attempt),
                None => self.parts.executor.tools().forget(id.call, id.attempt),
            }
        }
    }

    pub(super) fn reply_to(&self, inputs: Vec<QueuedInput>, at: Timestamp) {
        for QueuedInput { input, reply, grant: _ } in inputs {
            let is_dropped = match (input, reply) {
                (Input::Submitted { accepted, .. }, Some(InputReply::Submit(caller))) => {
                    caller.send(Ok(AcceptedRun { run: accepted.run, session: self.id, at }));
                    false
                }
                (_, Some(InputReply::Stop(reply) | InputReply::SetQueue(reply))) => reply.send(()).is_err(),
                (Input::Steer(message), Some(InputReply::Steer(reply))) => {
                    reply.send(self.is_message_recorded(message.followup_run)).is_err()
                }
                (_, Some(InputReply::Decide(reply, was_needed))) => reply.send(was_needed).is_err(),
                (_, Some(InputReply::Raise(reply, result))) => reply.send(result).is_err(),
                (_, Some(InputReply::Submit(_) | InputReply::Steer(_)) | None) => false,
            };
            if is_dropped {
                tracing::debug!(session = %self.id, "the reply to an input was dropped by its caller");
            }
        }
    }

    fn is_message_recorded(&self, next: RunId) -> bool {
        matches!(&self.phase, StartPhase::Awake(turn) if turn.is_message_recorded(next))
    }

    /// Rejects submissions that were refused. Other inputs of the same append are decided again without them.
    fn reject(&mut self, inputs: Vec<QueuedInput>, why: &SubmitError) {
        let mut rest = Vec::new();
        for queued in inputs {
            let rejects_all = matches!(why, SubmitError::KeyTaken(_) | SubmitError::Unreadable(_));
            let is_submission = matches!(queued.input, Input::Submitted { .. });
            let rejects = is_submission && rejects_all || queued.input.is_unique_submission();
            match queued.reply {
                Some(InputReply::Submit(caller)) if rejects => caller.send(Err(why.clone())),
                reply => rest.push(QueuedInput { reply, ..queued }),
            }
        }
        self.put_back(rest);
        if self.waiting.is_empty() {
            // The decision cancelled actions before its append was written (`append.rs`). The append was refused, so
            // they are due again and are restarted.
            self.reconcile();
        }
    }

    /// Puts inputs back in front, with the grants that came with them; other grants are returned.
    fn put_back(&mut self, inputs: Vec<QueuedInput>) {
        for mut queued in inputs.into_iter().rev() {
            if let Input::Leased { id, .. } | Input::SummaryLeased { id, .. } | Input::Permitted(id) =
                queued.input
            {
                queued.grant = self.granted.remove(&id);
            }
            self.waiting.push_front(queued);
        }
        self.granted.clear();
    }
}

/// Whether one of the inputs is a submission whose caller can receive a rejection.
fn has_submission(inputs: &[QueuedInput]) -> bool {
    inputs.iter().any(|queued| matches!(queued.reply, Some(InputReply::Submit(_))))
}
