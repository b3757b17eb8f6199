//! The states of a run. Each variant owns what is valid only then.

use std::sync::Arc;

use crate::{
    model::{
        Access, Amounts, ApprovalRequested, AssistantMessage, Attempt, CallEnd, CallId, CallStarted, Cause,
        Dimension, EffectClass, Ended, ModelRef, ModelStarted, NoAllowance, Now, Outcome, Parent, Place,
        RunAccepted, RunId, RunSpec, Seq, Timestamp, Usage,
    },
    turn::{
        asking::{Asked, Asking, Pause},
        compaction::Compacting,
        delegate::{FailedTask, Subagent},
        input::Effect,
        ladder::Ladder,
    },
};

/// A run that was accepted and has not begun.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(super) accepted: RunAccepted,
    pub(super) at: Timestamp,
    pub(super) seq: Seq,
}

/// What a session is at.
#[derive(Debug, Clone)]
pub(super) enum Phase {
    /// Nothing.
    Idle,
    /// A run.
    Running(Box<Run>),
}

/// The run under way.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) id: RunId,
    /// Which of its legs this is, from 1: each ends with an outcome.
    pub(super) leg: u32,
    /// Whose task it is.
    pub(super) parent: Option<Parent>,
    pub(super) spec: Arc<RunSpec>,
    pub(super) accepted: (Timestamp, Seq),
    pub(super) began: Now,
    /// Active time since then that does not count: waits for a known reset or for a person that are over.
    pub(super) uncounted_ms: u64,
    /// The active time that counts up to its last result of a call, in milliseconds.
    pub(super) progress_ms: u64,
    /// When it was parked, on the session's active clock.
    pub(super) parked_at: Option<u64>,
    /// Iterations begun.
    pub(super) iteration: u32,
    pub(super) usage: Usage,
    /// What its attempts are taken to have cost.
    pub(super) spent: Amounts,
    /// The output tokens that models were found not to give more of.
    pub(super) caps: Vec<(ModelRef, u64)>,
    /// What answers that are not plain have left behind.
    pub(super) ladder: Ladder,
    /// The subagents that its model has not been told the end of.
    pub(super) subagents: Vec<Subagent>,
    /// The tasks given away that have failed.
    pub(super) failed_tasks: Vec<FailedTask>,
    /// How many iteration numbers were taken by what is no iteration: grace calls of earlier legs, and a call that was given up
    /// where it started.
    pub(super) not_iterations: u32,
    /// What it had no allowance for: only the grace call is made any more.
    pub(super) exhausted: Option<NoAllowance>,
    /// How it is to end, once it is being stopped.
    pub(super) stopping: Option<Ended>,
    /// From here on no request has shown what an earlier leg was told, so it does not go.
    pub(super) unshown: Option<Place>,
    /// What is done about a view that becomes too long.
    pub(super) compacting: Compacting,
    /// Since when the model call of the present iteration is wanted, on the session's active clock.
    pub(super) asked_since: Option<u64>,
    pub(super) step: Step,
}

/// Where the loop of a run stands.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// The model is to be asked, or is being asked.
    Asking(Asking),
    /// The calls of an answer have to end.
    Acting(Acting),
    /// The model has said its last word; only the outcome is missing.
    Said(Arc<AssistantMessage>),
}

/// An answer and its calls, as many as the answer has.
#[derive(Debug, Clone)]
pub(super) struct Acting {
    pub(super) answer: Arc<AssistantMessage>,
    pub(super) calls: Vec<Call>,
}

/// A tool call.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) id: CallId,
    /// The registered name; the model's own until the call is admitted.
    pub(super) tool: Arc<str>,
    pub(super) effect: EffectClass,
    /// What it touches, once it is admitted.
    pub(super) access: Access,
    /// Whether its tool can tell what became of it when the process has died.
    pub(super) detached: bool,
    /// Whether an attempt may have done something.
    pub(super) begun: bool,
    /// Attempts that were lost for what may lie in the call itself.
    pub(super) lost: Attempt,
    pub(super) state: CallState,
}

/// The state of a tool call.
#[derive(Debug, Clone)]
pub(super) enum CallState {
    /// The model asks for it.
    Proposed,
    /// It needs a permit for this attempt.
    Admitted(Attempt),
    /// It is started, by the record, made at the time.
    Started(Arc<CallStarted>, Timestamp),
    /// What became of it is not known; a person is asked, since that time.
    Parked(Arc<Doubtful>),
    /// It is the same as the call of this number, and gets its result.
    Same(u32),
    /// It has its result.
    Ended(Arc<CallEnd>),
}

/// A call in doubt, about which a person is asked.
#[derive(Debug)]
pub(super) struct Doubtful {
    pub(super) request: ApprovalRequested,
    pub(super) attempt: Attempt,
    /// When it was started.
    pub(super) started_at: Timestamp,
    /// When the person was asked.
    pub(super) asked_at: Timestamp,
}

impl Call {
    /// Whether it must not be repeated silently.
    pub(super) fn is_once(&self) -> bool {
        self.effect == EffectClass::Once
    }

    /// Whether a call before it in the same answer has not ended and conflicts with it.
    fn waits_for_any(&self, earlier: &[Self]) -> bool {
        earlier.iter().any(|call| match call.state {
            CallState::Ended(_) | CallState::Same(_) => false,
            CallState::Proposed | CallState::Admitted(_) | CallState::Started(..) | CallState::Parked(_) => {
                call.access.conflicts(&self.access)
            }
        })
    }
}

impl Run {
    /// The id of the model's call of the present iteration.
    pub(super) const fn model_call(&self) -> CallId {
        CallId { run: self.id, iteration: self.iteration, n: 0 }
    }

    /// How many iterations have begun: the present one counts once its model call was started. The grace call is none.
    pub(super) const fn made(&self) -> u32 {
        let begun = match &self.step {
            Step::Asking(_) | Step::Said(_) if self.exhausted.is_some() => self.iteration - 1,
            Step::Asking(Asking { since: None, .. }) => self.iteration - 1,
            Step::Asking(_) | Step::Acting(_) | Step::Said(_) => self.iteration,
        };
        begun.saturating_sub(self.not_iterations)
    }

    /// Whether a request may have shown a model what stands in the view.
    pub(super) fn has_shown(&self) -> bool {
        match &self.step {
            Step::Asking(asking) => asking.has_shown || asking.started().is_some(),
            Step::Acting(_) | Step::Said(_) => true,
        }
    }

    /// The started model call.
    pub(super) const fn asking(&self) -> Option<&Arc<ModelStarted>> {
        match &self.step {
            Step::Asking(asking) => asking.started(),
            Step::Acting(_) | Step::Said(_) => None,
        }
    }

    /// The attempt of this call that is started: of the model call or of one for a summary.
    pub(super) fn started_of(&self, call: CallId) -> Option<&Arc<ModelStarted>> {
        let started = if call.is_summary() { self.compacting.asking.started() } else { self.asking() };
        started.filter(|started| started.call == call)
    }

    /// The calls of the present answer.
    pub(super) fn calls(&self) -> &[Call] {
        match &self.step {
            Step::Acting(acting) => &acting.calls,
            Step::Asking(_) | Step::Said(_) => &[],
        }
    }

    /// How many tool calls are started and have no end.
    pub(super) fn open_calls(&self) -> usize {
        self.calls().iter().filter(|call| matches!(call.state, CallState::Started(..))).count()
    }

    /// The calls in doubt about which a person is asked.
    pub(super) fn doubtful(&self) -> Vec<Arc<Doubtful>> {
        let calls = self.calls().iter();
        calls
            .filter_map(|call| match &call.state {
                CallState::Parked(doubtful) => Some(Arc::clone(doubtful)),
                CallState::Proposed
                | CallState::Admitted(_)
                | CallState::Started(..)
                | CallState::Same(_)
                | CallState::Ended(_) => None,
            })
            .collect()
    }

    /// Whether it waits for a person, and nothing else of it is under way.
    pub(super) fn is_parked(&self) -> bool {
        let calls = self.calls();
        let is_busy = |(n, call): (usize, &Call)| match call.state {
            CallState::Started(..) => true,
            CallState::Proposed | CallState::Admitted(_) => !call.waits_for_any(&calls[..n]),
            CallState::Parked(_) | CallState::Same(_) | CallState::Ended(_) => false,
        };
        let asks = calls.iter().any(|call| matches!(call.state, CallState::Parked(_)));
        asks && self.stopping.is_none() && !calls.iter().enumerate().any(is_busy)
    }

    /// Follows with the limits' clock whether it is parked.
    pub(super) fn note_parked(&mut self, active_ms: u64) {
        match (self.is_parked(), self.parked_at) {
            (true, None) => self.parked_at = Some(active_ms),
            (false, Some(since)) => {
                self.uncounted_ms += active_ms.saturating_sub(since);
                self.parked_at = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Whether calls that are started go on to their end: always, but for a run that is being stopped. One that only
    /// has no allowance for more keeps every result that there is.
    pub(super) fn lets_calls_end(&self) -> bool {
        match &self.stopping {
            None => true,
            Some(ended) => matches!(ended.cause, Some(Cause::Limit { .. })),
        }
    }

    /// The limit of the run's own account.
    pub(super) fn limit(&self, dimension: Dimension) -> Option<u64> {
        self.spec.limits.budget.get(dimension)
    }

    /// What the run's own account has left; `None` without a limit. Of tokens and money exact, because the run's records
    /// are all that spends from it.
    pub(super) fn left(&self, dimension: Dimension) -> Option<u64> {
        let limit = self.limit(dimension)?;
        Some(limit.saturating_sub(self.spent.get(dimension).unwrap_or(0)))
    }

    /// From when on its active time counts, on the session's active clock, as if it had never stood still.
    pub(super) fn counted_from(&self, now: Now) -> u64 {
        let parked = self.parked_at.map_or(0, |since| now.active_ms.saturating_sub(since));
        let waiting = parked + self.pause().map_or(0, |pause| pause.uncounted_ms(now));
        self.began.active_ms + self.uncounted_ms + waiting
    }

    /// When the run's active time is over, on the session's active clock, and how it ends then.
    pub(super) fn time_limits(&self, now: Now) -> impl Iterator<Item = (u64, u64, Outcome)> + use<> {
        let limits = &self.spec.limits;
        let timeout = limits.timeout_ms.map(|ms| (ms, Outcome::TimedOut));
        let wall = limits.wall_ms.map(|ms| (ms, Outcome::BudgetExhausted));
        let began = self.counted_from(now);
        timeout.into_iter().chain(wall).map(move |(ms, outcome)| (began.saturating_add(ms), ms, outcome))
    }

    /// When a subagent that has come to no result for long is to end, on the session's active clock, and after how long.
    pub(super) fn stall(&self, now: Now) -> Option<(u64, u64)> {
        let limit_ms =
            self.spec.delegation?.progress_ms.filter(|_| self.parent.is_some() && !self.has_live())?;
        Some((self.counted_from(now).saturating_add(self.progress_ms).saturating_add(limit_ms), limit_ms))
    }

    /// A call has come to a result.
    pub(super) fn note_progress(&mut self, now: Now) {
        self.progress_ms = now.active_ms.saturating_sub(self.counted_from(now));
    }

    /// The pause before the next attempt of the model call.
    const fn pause(&self) -> Option<Pause> {
        match &self.step {
            Step::Asking(asking) => asking.pause(),
            Step::Acting(_) | Step::Said(_) => None,
        }
    }

    /// Ends the pause: an attempt starts, or another pause.
    pub(super) fn end_pause(&mut self, now: Now) {
        self.uncounted_ms += match &mut self.step {
            Step::Asking(asking) => asking.end_pause(now),
            Step::Acting(_) | Step::Said(_) => 0,
        };
    }

    /// Whether time stands still for the limits.
    fn is_uncounted(&self, now: Now) -> bool {
        let pauses = self.pause().is_some_and(|pause| pause.uncounted.is_some() && !pause.is_over(now.at));
        pauses || self.parked_at.is_some()
    }

    /// What ought to be in flight.
    pub(super) fn due(&self, now: Now) -> Vec<Effect> {
        let mut due = Vec::new();
        match &self.step {
            Step::Asking(Asking { attempt, state, .. }) if self.stopping.is_none() => {
                let (call, attempt) = (self.model_call(), *attempt);
                due.push(match state {
                    Asked::Started(_) => Effect::Ask { call, attempt },
                    Asked::Wanted(Some(pause)) if !pause.is_over(now.at) => Effect::WakeAt(pause.until),
                    Asked::Wanted(_) => Effect::Seek { call, attempt },
                });
            }
            Step::Acting(acting) => {
                let calls = acting.calls.iter().enumerate();
                due.extend(calls.filter_map(|(n, call)| self.due_of(call, &acting.calls[..n])));
            }
            Step::Asking(_) | Step::Said(_) => {}
        }
        let ends = !self.lets_calls_end();
        due.extend(self.live().map(|subagent| Effect::Await { call: subagent.call, n: subagent.n, ends }));
        if self.stopping.is_none() && !self.is_uncounted(now) {
            due.extend(self.time_limits(now).map(|(end, ..)| Effect::WakeAtActive(end)));
            due.extend(self.stall(now).map(|(end, _)| Effect::WakeAtActive(end)));
        }
        // Two questions, or two limits, may expire at the same time.
        let mut once = Vec::with_capacity(due.len());
        due.into_iter().for_each(|effect| {
            if !once.contains(&effect) {
                once.push(effect);
            }
        });
        once
    }
}

impl Run {
    /// What ought to be in flight of a call that has these before it in its answer.
    fn due_of(&self, of: &Call, earlier: &[Call]) -> Option<Effect> {
        let (call, goes_on) = (of.id, self.lets_calls_end());
        match &of.state {
            CallState::Admitted(attempt) if goes_on && !of.waits_for_any(earlier) => {
                Some(Effect::Seek { call, attempt: *attempt })
            }
            CallState::Started(started, _) if goes_on => Some(Effect::Run { call, attempt: started.attempt }),
            CallState::Started(started, _) => Some(Effect::End { call, attempt: started.attempt }),
            CallState::Parked(doubtful) => Some(Effect::WakeAt(doubtful.request.expires_at)),
            CallState::Admitted(_) | CallState::Proposed | CallState::Same(_) | CallState::Ended(_) => None,
        }
    }
}

impl super::Turn {
    /// What ought to be in flight. Each effect has a stable identity; what was due and is not any more is to be
    /// cancelled.
    pub(crate) fn due(&self, now: Now) -> Vec<Effect> {
        match &self.phase {
            Phase::Idle => Vec::new(),
            Phase::Running(run) => self.due_with_summary(run, now),
        }
    }
}
