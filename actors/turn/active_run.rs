//! The states of a run. Each variant owns what is valid only then.

use std::sync::Arc;

use crate::{
    model::{
        Access, Amounts, ApprovalRequested, AssistantMessage, Attempt, BudgetRefusal, CallEnd, CallId,
        CallStarted, Dimension, EffectClass, HistoryPosition, ModelRef, ModelStarted, Outcome, OutcomeCause,
        OutcomeDetail, ParentRef, RunAccepted, RunId, RunSpec, Seq, SessionTime, Timestamp, Usage,
    },
    turn::{
        answer_recovery::AnswerRecovery,
        compaction::CompactionState,
        delegate::{FailedTask, Subagent},
        input::DueAction,
        model_call::{AttemptState, ModelCallState, RetryPause},
    },
};

/// A run that was accepted and has not begun.
#[derive(Debug)]
pub(crate) struct QueuedRun {
    pub(super) accepted: RunAccepted,
    pub(super) at: Timestamp,
    pub(super) seq: Seq,
}

/// What a session is at.
#[derive(Debug, Clone)]
pub(super) enum CurrentRun {
    /// Nothing.
    Idle,
    /// A run.
    Running(Box<ActiveRun>),
}

/// The run under way.
#[derive(Debug, Clone)]
pub(super) struct ActiveRun {
    pub(super) id: RunId,
    /// Which of its legs this is, from 1: each ends with an outcome.
    pub(super) leg: u32,
    /// Whose task it is.
    pub(super) parent: Option<ParentRef>,
    pub(super) spec: Arc<RunSpec>,
    pub(super) accepted: (Timestamp, Seq),
    pub(super) started: SessionTime,
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
    pub(super) output_caps: Vec<(ModelRef, u64)>,
    /// What answers that are not plain have left behind.
    pub(super) answer_recovery: AnswerRecovery,
    /// The subagents that its model has not been told the end of.
    pub(super) subagents: Vec<Subagent>,
    /// The tasks given away that have failed.
    pub(super) failed_tasks: Vec<FailedTask>,
    /// How many iteration numbers were taken by what is no iteration: grace calls of earlier legs, and a call that was given up
    /// where it started.
    pub(super) skipped_numbers: u32,
    /// What it had no allowance for: only the grace call is made any more.
    pub(super) exhausted: Option<BudgetRefusal>,
    /// How it is to end, once it is being stopped.
    pub(super) planned_end: Option<OutcomeDetail>,
    /// From here on no request has shown what an earlier leg was told, so it does not go.
    pub(super) unseen_from: Option<HistoryPosition>,
    /// What is done about a view that becomes too long.
    pub(super) compaction: CompactionState,
    /// Since when the model call of the present iteration is wanted, on the session's active clock.
    pub(super) model_wanted_since: Option<u64>,
    pub(super) state: LoopState,
}

/// Where the loop of a run stands.
#[derive(Debug, Clone)]
pub(super) enum LoopState {
    /// The model is to be asked, or is being asked.
    CallingModel(ModelCallState),
    /// The calls of an answer have to end.
    RunningTools(ActiveStep),
    /// The model has said its last word; only the outcome is missing.
    Answered(Arc<AssistantMessage>),
}

/// An answer and its calls, as many as the answer has.
#[derive(Debug, Clone)]
pub(super) struct ActiveStep {
    pub(super) answer: Arc<AssistantMessage>,
    pub(super) calls: Vec<ActiveToolCall>,
}

/// A tool call.
#[derive(Debug, Clone)]
pub(super) struct ActiveToolCall {
    pub(super) id: CallId,
    /// The registered name; the model's own until the call is admitted.
    pub(super) tool: Arc<str>,
    pub(super) effect: EffectClass,
    /// What it touches, once it is admitted.
    pub(super) access: Access,
    /// Whether its tool can tell what became of it when the process has died.
    pub(super) detached: bool,
    /// Whether an attempt may have done something.
    pub(super) may_have_run: bool,
    /// Attempts that were lost for what may lie in the call itself.
    pub(super) lost_attempts: Attempt,
    pub(super) state: ToolCallState,
}

/// The state of a tool call.
#[derive(Debug, Clone)]
pub(super) enum ToolCallState {
    /// The model asks for it.
    Proposed,
    /// It needs a permit for this attempt.
    Admitted(Attempt),
    /// It is started, by the record, made at the time.
    Started(Arc<CallStarted>, Timestamp),
    /// What became of it is not known; a person is asked, since that time.
    Parked(Arc<InDoubtCall>),
    /// It is the same as the call of this number, and gets its result.
    SameAs(u32),
    /// It has its result.
    Ended(Arc<CallEnd>),
}

/// A call in doubt, about which a person is asked.
#[derive(Debug)]
pub(super) struct InDoubtCall {
    pub(super) request: ApprovalRequested,
    pub(super) attempt: Attempt,
    /// When it was started.
    pub(super) started_at: Timestamp,
    /// When the person was asked.
    pub(super) requested_at: Timestamp,
}

impl ActiveToolCall {
    /// Whether it must not be repeated silently.
    pub(super) fn is_once(&self) -> bool {
        self.effect == EffectClass::Once
    }

    /// Whether a call before it in the same answer has not ended and conflicts with it.
    fn is_blocked_by(&self, earlier: &[Self]) -> bool {
        earlier.iter().any(|call| match call.state {
            ToolCallState::Ended(_) | ToolCallState::SameAs(_) => false,
            ToolCallState::Proposed
            | ToolCallState::Admitted(_)
            | ToolCallState::Started(..)
            | ToolCallState::Parked(_) => call.access.conflicts(&self.access),
        })
    }
}

impl ActiveRun {
    /// The id of the model's call of the present iteration.
    pub(super) const fn model_call(&self) -> CallId {
        CallId { run: self.id, iteration: self.iteration, n: 0 }
    }

    /// How many iterations have begun: the present one counts once its model call was started. The grace call is none.
    pub(super) const fn iterations(&self) -> u32 {
        let begun = match &self.state {
            LoopState::CallingModel(_) | LoopState::Answered(_) if self.exhausted.is_some() => {
                self.iteration - 1
            }
            LoopState::CallingModel(ModelCallState { since: None, .. }) => self.iteration - 1,
            LoopState::CallingModel(_) | LoopState::RunningTools(_) | LoopState::Answered(_) => {
                self.iteration
            }
        };
        begun.saturating_sub(self.skipped_numbers)
    }

    /// Whether a request may have shown a model what stands in the view.
    pub(super) fn has_sent_view(&self) -> bool {
        match &self.state {
            LoopState::CallingModel(asking) => asking.may_be_read || asking.started().is_some(),
            LoopState::RunningTools(_) | LoopState::Answered(_) => true,
        }
    }

    /// The started model call.
    pub(super) const fn model_started(&self) -> Option<&Arc<ModelStarted>> {
        match &self.state {
            LoopState::CallingModel(asking) => asking.started(),
            LoopState::RunningTools(_) | LoopState::Answered(_) => None,
        }
    }

    /// The attempt of this call that is started: of the model call or of one for a summary.
    pub(super) fn started_of(&self, call: CallId) -> Option<&Arc<ModelStarted>> {
        let started = if call.is_summary() { self.compaction.call.started() } else { self.model_started() };
        started.filter(|started| started.call == call)
    }

    /// The calls of the present answer.
    pub(super) fn calls(&self) -> &[ActiveToolCall] {
        match &self.state {
            LoopState::RunningTools(acting) => &acting.calls,
            LoopState::CallingModel(_) | LoopState::Answered(_) => &[],
        }
    }

    /// How many tool calls are started and have no end.
    pub(super) fn open_calls(&self) -> usize {
        self.calls().iter().filter(|call| matches!(call.state, ToolCallState::Started(..))).count()
    }

    /// The calls in doubt about which a person is asked.
    pub(super) fn in_doubt_calls(&self) -> Vec<Arc<InDoubtCall>> {
        let calls = self.calls().iter();
        calls
            .filter_map(|call| match &call.state {
                ToolCallState::Parked(doubtful) => Some(Arc::clone(doubtful)),
                ToolCallState::Proposed
                | ToolCallState::Admitted(_)
                | ToolCallState::Started(..)
                | ToolCallState::SameAs(_)
                | ToolCallState::Ended(_) => None,
            })
            .collect()
    }

    /// Whether it waits for a person, and nothing else of it is under way.
    pub(super) fn is_parked(&self) -> bool {
        let calls = self.calls();
        let is_busy = |(n, call): (usize, &ActiveToolCall)| match call.state {
            ToolCallState::Started(..) => true,
            ToolCallState::Proposed | ToolCallState::Admitted(_) => !call.is_blocked_by(&calls[..n]),
            ToolCallState::Parked(_) | ToolCallState::SameAs(_) | ToolCallState::Ended(_) => false,
        };
        let asks = calls.iter().any(|call| matches!(call.state, ToolCallState::Parked(_)));
        asks && self.planned_end.is_none() && !calls.iter().enumerate().any(is_busy)
    }

    /// Follows with the limits' clock whether it is parked.
    pub(super) fn track_parked(&mut self, active_ms: u64) {
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
        match &self.planned_end {
            None => true,
            Some(ended) => matches!(ended.cause, Some(OutcomeCause::Limit { .. })),
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
    pub(super) fn counted_from(&self, now: SessionTime) -> u64 {
        let parked = self.parked_at.map_or(0, |since| now.active_ms.saturating_sub(since));
        let waiting = parked + self.pause().map_or(0, |pause| pause.uncounted_ms(now));
        self.started.active_ms + self.uncounted_ms + waiting
    }

    /// When the run's active time is over, on the session's active clock, and how it ends then.
    pub(super) fn time_limits(&self, now: SessionTime) -> impl Iterator<Item = (u64, u64, Outcome)> + use<> {
        let limits = &self.spec.limits;
        let timeout = limits.timeout_ms.map(|ms| (ms, Outcome::TimedOut));
        let wall = limits.wall_ms.map(|ms| (ms, Outcome::BudgetExhausted));
        let began = self.counted_from(now);
        timeout.into_iter().chain(wall).map(move |(ms, outcome)| (began.saturating_add(ms), ms, outcome))
    }

    /// When a subagent that has come to no result for long is to end, on the session's active clock, and after how long.
    pub(super) fn stall(&self, now: SessionTime) -> Option<(u64, u64)> {
        let limit_ms = self
            .spec
            .delegation?
            .progress_ms
            .filter(|_| self.parent.is_some() && !self.has_live_subagents())?;
        Some((self.counted_from(now).saturating_add(self.progress_ms).saturating_add(limit_ms), limit_ms))
    }

    /// A call has come to a result.
    pub(super) fn track_progress(&mut self, now: SessionTime) {
        self.progress_ms = now.active_ms.saturating_sub(self.counted_from(now));
    }

    /// The pause before the next attempt of the model call.
    const fn pause(&self) -> Option<RetryPause> {
        match &self.state {
            LoopState::CallingModel(asking) => asking.pause(),
            LoopState::RunningTools(_) | LoopState::Answered(_) => None,
        }
    }

    /// Ends the pause: an attempt starts, or another pause.
    pub(super) fn end_pause(&mut self, now: SessionTime) {
        self.uncounted_ms += match &mut self.state {
            LoopState::CallingModel(asking) => asking.end_pause(now),
            LoopState::RunningTools(_) | LoopState::Answered(_) => 0,
        };
    }

    /// Whether time stands still for the limits.
    fn is_uncounted(&self, now: SessionTime) -> bool {
        let pauses =
            self.pause().is_some_and(|pause| pause.uncounted_since.is_some() && !pause.is_over(now.at));
        pauses || self.parked_at.is_some()
    }

    /// What ought to be in flight.
    pub(super) fn due(&self, now: SessionTime) -> Vec<DueAction> {
        let mut due = Vec::new();
        match &self.state {
            LoopState::CallingModel(ModelCallState { attempt, state, .. }) if self.planned_end.is_none() => {
                let (call, attempt) = (self.model_call(), *attempt);
                due.push(match state {
                    AttemptState::Started(_) => DueAction::CallModel { call, attempt },
                    AttemptState::Wanted(Some(pause)) if !pause.is_over(now.at) => {
                        DueAction::WakeAt(pause.until)
                    }
                    AttemptState::Wanted(_) => DueAction::Acquire { call, attempt },
                });
            }
            LoopState::RunningTools(acting) => {
                let calls = acting.calls.iter().enumerate();
                due.extend(calls.filter_map(|(n, call)| self.due_of(call, &acting.calls[..n])));
            }
            LoopState::CallingModel(_) | LoopState::Answered(_) => {}
        }
        let ends = !self.lets_calls_end();
        due.extend(self.live_subagents().map(|subagent| DueAction::AwaitSubagent {
            call: subagent.call,
            n: subagent.n,
            ends,
        }));
        if self.planned_end.is_none() && !self.is_uncounted(now) {
            due.extend(self.time_limits(now).map(|(end, ..)| DueAction::WakeAtActive(end)));
            due.extend(self.stall(now).map(|(end, _)| DueAction::WakeAtActive(end)));
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

impl ActiveRun {
    /// What ought to be in flight of a call that has these before it in its answer.
    fn due_of(&self, of: &ActiveToolCall, earlier: &[ActiveToolCall]) -> Option<DueAction> {
        let (call, goes_on) = (of.id, self.lets_calls_end());
        match &of.state {
            ToolCallState::Admitted(attempt) if goes_on && !of.is_blocked_by(earlier) => {
                Some(DueAction::Acquire { call, attempt: *attempt })
            }
            ToolCallState::Started(started, _) if goes_on => {
                Some(DueAction::RunTool { call, attempt: started.attempt })
            }
            ToolCallState::Started(started, _) => Some(DueAction::EndTool { call, attempt: started.attempt }),
            ToolCallState::Parked(doubtful) => Some(DueAction::WakeAt(doubtful.request.expires_at)),
            ToolCallState::Admitted(_)
            | ToolCallState::Proposed
            | ToolCallState::SameAs(_)
            | ToolCallState::Ended(_) => None,
        }
    }
}

impl super::Turn {
    /// What ought to be in flight. Each effect has a stable identity; what was due and is not any more is to be
    /// cancelled.
    pub(crate) fn due(&self, now: SessionTime) -> Vec<DueAction> {
        match &self.current {
            CurrentRun::Idle => Vec::new(),
            CurrentRun::Running(run) => self.due_with_summary(run, now),
        }
    }
}
