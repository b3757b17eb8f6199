//! Checks attempts of model calls and tool calls: each starts once, ends once, and is paid for once.

use std::sync::Arc;

use super::{ONE_CALL, State, Watch};
use crate::{
    model::{
        Amounts, Attempt, AttemptId, CallAdmitted, CallEnded, CallId, CallLost, CallStarted, Dimension,
        ModelAnswered, ModelFailed, ModelLate, ModelStarted, RetryReason,
    },
    policy::{Billing, billing},
    turn::{Input, Turn, tests::fuzz::hold},
};

impl Watch {
    pub(super) fn call_admitted(&mut self, admitted: &CallAdmitted) -> Result<(), String> {
        self.loops.admitted(admitted);
        self.calls.admitted(admitted)
    }

    pub(super) fn call_ended(&mut self, ended: &CallEnded) -> Result<(), String> {
        self.repeated(ended)?;
        if self.calls.ended(ended)? {
            let is_unmade = self.fresh.contains(&AttemptId { call: ended.call, attempt: ended.attempt });
            let run = self.running(ended.call.run)?;
            run.held.give_back(&ONE_CALL);
            run.unmade += u64::from(is_unmade);
        }
        self.family.call_ended(ended)
    }

    pub(super) fn started(&mut self, started: &ModelStarted, turn: &Turn) -> Result<(), String> {
        hold!(self.asked.is_none(), "{started:?} while {:?}", self.asked);
        hold!(started.view_seq + 1 == self.seq, "{started:?} is record {}", self.seq);
        hold!(started.incarnation == self.incarnation, "{started:?} in {}", self.incarnation);
        let run = self.running(started.call.run)?;
        hold!(run.state == State::Running, "{started:?} while its run is being stopped");
        self.is_no_loop()?;
        let run = self.running(started.call.run)?;
        hold!(run.spec.chain.contains(&started.model), "{started:?} asks nobody of {:?}", run.spec.chain);
        run.held.reserve(&started.reserved);
        let is_grace = run.exhausted.is_some();
        run.made.0 += u32::from(started.attempt == 1 && !is_grace);
        hold!(started.reserved.iterations.is_none() || !is_grace, "{started:?} costs an iteration");
        hold!(started.reserved.tokens > Some(started.max_tokens), "{started:?} reserves too little");
        self.fresh.push(started.id());
        let failed = self.failed.take().filter(|(call, ..)| *call == started.call);
        if let Some((_, attempt, request)) = failed {
            hold!(started.attempt == attempt + 1, "{started:?} after attempt {attempt}");
            let changed = self.summaries.changed;
            hold!(changed || started.request_hash == request, "a retry has another request");
        } else {
            hold!(started.attempt == 1, "{started:?} is the first attempt");
        }
        let changed = std::mem::take(&mut self.summaries.changed);
        let is_repeated = failed.is_some() || self.again;
        if is_repeated && !changed {
            self.shown.asked_again(turn, started)?;
        } else {
            let later = |id| {
                is_repeated
                    || self.runs.iter().any(|run| {
                        run.id == id
                            && (run.state == State::Queued || is_grace && run.state == State::Running)
                    })
            };
            self.shown.asked(turn, later)?;
        }
        if failed.is_none() || changed {
            self.shown.note_postscript(turn);
        }
        self.asked = Some(started.clone());
        Ok(())
    }

    pub(super) fn call_started(&mut self, started: &CallStarted) -> Result<(), String> {
        hold!(started.incarnation == self.incarnation, "{started:?} in {}", self.incarnation);
        let waits = self.shown.waits(started.call.run);
        self.calls.started(started, self.seq, waits)?;
        let run = self.running(started.call.run)?;
        hold!(run.state == State::Running, "{started:?} while its run is being stopped");
        hold!(run.exhausted.is_none(), "{started:?} while its run is exhausted");
        let children = u64::try_from(started.children.len()).ok();
        run.held.reserve(&Amounts { children, ..ONE_CALL });
        run.made.1 += 1;
        let spec = Arc::clone(&run.spec);
        self.fresh.push(started.id());
        self.family.started(started, &spec)
    }

    /// Ends the attempt under way, which must be this one.
    fn take(&mut self, call: CallId, attempt: Attempt) -> Result<ModelStarted, String> {
        let asked = self.asked.take_if(|asked| (asked.call, asked.attempt) == (call, attempt));
        let asked =
            asked.ok_or_else(|| format!("{call} attempt {attempt} is not under way: {:?}", self.asked))?;
        self.running(call.run)?.held.give_back(&asked.reserved);
        Ok(asked)
    }

    pub(super) fn answered(&mut self, answered: &ModelAnswered) -> Result<(), String> {
        self.holds = None;
        let asked = self.take(answered.call, answered.attempt)?;
        (self.again, self.finish, self.failed) = (answered.is_asked_again(), Some(answered.finish), None);
        self.running(answered.call.run)?;
        if let Some(usage) = &answered.usage {
            self.used(answered.call.run, usage, &asked)?;
        }
        if !self.again {
            self.calls.proposed(answered.call, &answered.message);
            self.loops.proposed(answered.call, &answered.message);
            self.family.asked(answered.call, &answered.message);
        }
        Ok(())
    }

    pub(super) fn failed(&mut self, failed: &ModelFailed) -> Result<(), String> {
        let asked = self.take(failed.call, failed.attempt)?;
        if self.fresh.contains(&AttemptId { call: failed.call, attempt: failed.attempt }) {
            let iterations = asked.reserved.iterations.and_then(|one| u32::try_from(one).ok());
            self.running(failed.call.run)?.made.0 -= iterations.unwrap_or(0);
        }
        self.failed = Some((failed.call, failed.attempt, asked.request_hash));
        if let Some(usage) = failed.failure.usage.as_deref() {
            self.used(failed.call.run, usage, &asked)?;
        }
        if billing(&failed.failure) == Billing::Everything {
            self.may_be_late(failed.call, failed.attempt, asked.reserved.tokens);
        }
        Ok(())
    }

    pub(super) fn late(&mut self, late: &ModelLate) -> Result<(), String> {
        let at = self.cancelled.iter().position(|(call, attempt, tokens)| {
            let is_its_booking = *tokens == late.booked.get(Dimension::Tokens);
            (*call, *attempt) == (late.call, late.attempt) && (is_its_booking || late.anomaly.is_some())
        });
        let Some(at) = at else { return Err(format!("{late:?} out of nowhere, or again")) };
        self.cancelled.remove(at);
        let run = self.run(late.call.run)?;
        run.held.excess += late.usage.total().saturating_sub(late.booked.tokens.unwrap_or(0));
        // The usage of an ended run counts only if the run is reopened.
        run.usage.add(&late.usage);
        Ok(())
    }

    /// Checks that the cost of late answers is booked.
    pub(in crate::turn::tests::fuzz) fn is_settled(&self, inputs: &[Input]) -> Result<(), String> {
        for input in inputs {
            let Input::Answered { started, answer, .. } = input else { continue };
            let own = |(call, attempt, _): &(CallId, Attempt, _)| {
                (*call, *attempt) == (started.call, started.attempt)
            };
            hold!(
                answer.usage.is_none() || !self.cancelled.iter().any(own),
                "nobody books the late {answer:?}"
            );
        }
        Ok(())
    }

    pub(super) fn lost(&mut self, lost: &CallLost) -> Result<(), String> {
        let run = self.running(lost.call.run)?;
        run.held.give_back(&ONE_CALL);
        run.made.1 -= u64::from(lost.reason == RetryReason::NeverStarted);
        let spec = Arc::clone(&run.spec);
        self.calls.lost(lost, &spec)
    }
}
