//! From an append to what it means: it is durable, and its inputs are answered; or it was refused.

use std::sync::Arc;

use ractor::ActorProcessingErr;

use crate::{
    model::{Body, Durable, Record, RunId, Timestamp},
    persistence::Stored,
    port::{JournalError, Refusal},
    session::{
        Accepted, NotAccepted,
        shell::{InFlight, Life, Reply, State, Waiting},
    },
    turn::Input,
};

impl State {
    /// The append came to something. An error ends this actor; its supervisor knows what to do.
    pub(super) fn stored(
        &mut self,
        number: u64,
        stored: Result<Stored, JournalError>,
    ) -> Result<(), ActorProcessingErr> {
        let Some(InFlight { inputs, .. }) = self.in_flight.take_if(|flight| flight.number == number) else {
            return Ok(());
        };
        match stored? {
            Stored::Appended(records) => self.durable(&records, inputs),
            Stored::Refused(Refusal::NoAllowance(refusal)) => {
                self.put_back(inputs);
                let input = Input::BudgetRefused(refusal);
                self.waiting.push_front(Waiting { input, reply: None, grant: None });
            }
            Stored::Refused(Refusal::Duplicate(run)) => self.reject(inputs, &NotAccepted::Duplicate(run)),
            Stored::Refused(Refusal::KeyTaken(other)) => {
                self.reject(inputs, &NotAccepted::KeyTaken(other));
                self.me.stop(Some("another session has its key".into()));
            }
            // Without a submission to refuse, the session dies of it, and its run is ended when that repeats.
            Stored::Refused(refusal @ Refusal::Unreadable { .. }) if has_submission(&inputs) => {
                self.reject(inputs, &NotAccepted::Unreadable(refusal.to_string()));
            }
            Stored::Refused(
                refusal @ (Refusal::Fenced(_)
                | Refusal::WrongSeq { .. }
                | Refusal::Unreadable { .. }
                | Refusal::Malformed(_)),
            ) => {
                return Err(Box::new(refusal));
            }
            Stored::Opened(_) | Stored::Closed(_) | Stored::Delivered => {}
        }
        Ok(())
    }

    fn durable(&mut self, records: &[Durable<Arc<Record>>], inputs: Vec<Waiting>) {
        match std::mem::replace(&mut self.life, Life::Waking) {
            Life::Dormant(dormant, _) => self.life = Life::Awake(dormant.into_turn(records)),
            Life::Awake(mut turn) => {
                records.iter().for_each(|record| turn.apply(record));
                self.life = Life::Awake(turn);
            }
            Life::Waking => return,
        }
        self.forget_ended(records);
        if let Life::Awake(turn) = &self.life
            && let Some(run) = turn.parked_run()
        {
            self.wiring.hub.settled(run);
        }
        let at = records.first().map_or_else(Timestamp::default, |record| record.at);
        self.answer(inputs, at);
        self.begin_due();
    }

    /// What tools have kept to find calls again is not needed when their ends are on disk.
    fn forget_ended(&self, records: &[Durable<Arc<Record>>]) {
        for record in records {
            match &record.body {
                Body::CallEnded(ended) if ended.attempt > 0 => {
                    self.wiring.tools.forget(ended.call, ended.attempt);
                }
                Body::CallLost(lost) => self.wiring.tools.forget(lost.call, lost.attempt),
                Body::CallEnded(_)
                | Body::SessionOpened(_)
                | Body::SessionRevived(_)
                | Body::RunAccepted(_)
                | Body::RunStopping(_)
                | Body::RunEnded(_)
                | Body::ModelStarted(_)
                | Body::ModelAnswered(_)
                | Body::ModelFailed(_)
                | Body::ModelWaiting(_)
                | Body::LateSettled(_)
                | Body::CallAdmitted(_)
                | Body::CallStarted(_)
                | Body::MessageSteered(_)
                | Body::ApprovalRequested(_)
                | Body::RunExhausted(_)
                | Body::RunReopened(_)
                | Body::BudgetRaised(_)
                | Body::ChildEnded(_)
                | Body::ContextCompacted(_)
                | Body::SummaryStarted(_)
                | Body::SummaryAnswered(_)
                | Body::SummaryFailed(_)
                | Body::TodoChanged(_)
                | Body::ApprovalAnswered(_) => {}
            }
        }
    }

    pub(super) fn answer(&self, inputs: Vec<Waiting>, at: Timestamp) {
        for Waiting { input, reply, grant: _ } in inputs {
            let gone = match (input, reply) {
                (Input::Submitted { run, .. }, Some(Reply::Submit(caller))) => {
                    caller.answer(Ok(Accepted { run, session: self.id, at }));
                    false
                }
                (_, Some(Reply::Stop(reply))) => reply.send(()).is_err(),
                (Input::Steer { next, .. }, Some(Reply::Steer(reply))) => {
                    reply.send(self.has_heard(next)).is_err()
                }
                (_, Some(Reply::Decide(reply, open))) => reply.send(open).is_err(),
                (_, Some(Reply::Raise(reply, can))) => reply.send(can).is_err(),
                (_, Some(Reply::Submit(_) | Reply::Steer(_)) | None) => false,
            };
            if gone {
                tracing::debug!(session = %self.id, "nobody waits for the answer any more");
            }
        }
    }

    fn has_heard(&self, next: RunId) -> bool {
        match &self.life {
            Life::Awake(turn) => turn.is_message_recorded(next),
            Life::Dormant(..) | Life::Waking => false,
        }
    }

    /// Answers submissions that were refused; whatever else was decided with them is decided again without them.
    fn reject(&mut self, inputs: Vec<Waiting>, why: &NotAccepted) {
        let mut rest = Vec::new();
        for waiting in inputs {
            let all = matches!(why, NotAccepted::KeyTaken(_) | NotAccepted::Unreadable(_));
            let refused = matches!(&waiting.input, Input::Submitted { key, .. } if all || key.is_some());
            match waiting.reply {
                Some(Reply::Submit(caller)) if refused => caller.answer(Err(why.clone())),
                reply => rest.push(Waiting { reply, ..waiting }),
            }
        }
        self.put_back(rest);
        if self.waiting.is_empty() {
            // What the refused append would have made undue was cancelled, and is due again.
            self.begin_due();
        }
    }

    /// Puts inputs back in front, with the grants that came with them; the others are given back.
    fn put_back(&mut self, inputs: Vec<Waiting>) {
        for mut waiting in inputs.into_iter().rev() {
            if let Input::Leased { call, attempt, .. } | Input::Permitted { call, attempt } = waiting.input {
                waiting.grant = self.granted.remove(&(call, attempt));
            }
            self.waiting.push_front(waiting);
        }
        self.granted.clear();
    }
}

/// Whether one of the inputs is a submission whose caller can be told of a refusal.
fn has_submission(inputs: &[Waiting]) -> bool {
    inputs.iter().any(|waiting| matches!(waiting.reply, Some(Reply::Submit(_))))
}
