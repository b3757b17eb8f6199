//! Raises the limits of a run that has not ended, and reopens a run that ended for want of budget. A reopened run keeps
//! its history, spend and counted time, and starts at its next iteration.

use std::sync::Arc;

use crate::{
    model::{
        Body, BudgetRaised, Dimension, Kind, LimitIncrease, Limits, Outcome, OutcomeDetail,
        RUNTIME_TEXT_PREFIX, RunEnded, RunId, RunReopened, RunSpec, SessionTime,
    },
    turn::{
        Turn,
        active_run::{ActiveRun, CurrentRun, LoopState, QueuedRun},
        answer_recovery::AnswerRecovery,
        decision::DecisionBuilder,
        model_call::ModelCallState,
        steer::delimited,
    },
};

/// Why the limits of a run are not raised.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RaiseError {
    /// The run is being stopped, or is exhausted and waits for its calls.
    #[error("it is about to end; add to its budget when it has")]
    Ending,
    /// The run ended for another reason than its budget.
    #[error("it has ended: {0}; only a run that ended as budget_exhausted goes on with more")]
    Ended(Box<OutcomeDetail>),
    /// The session has accepted another run since.
    #[error("its conversation has gone on since it ended; continue that with a new run")]
    Superseded,
    /// The run is a subagent's, and its parent has the result.
    #[error("its parent has its result already; add to the budget of the parent")]
    ResultDelivered,
    /// The run has none of the named limits. The text names those that it has.
    #[error("it has no limit in what was named; name one that it has: {0}")]
    NoLimit(String),
    /// The session crashed before its reply; the run's budget shows whether the limits were raised.
    #[error(
        "its session died before it could say whether that was written; look at its budget, then add again if need be"
    )]
    Unknown,
}

impl Turn {
    /// Keeps the state `stood` of a run that ended for want of budget, so that it can be reopened, if no run is queued.
    pub(super) fn retain_reopenable(
        &mut self,
        mut stood: Box<ActiveRun>,
        ended: &RunEnded,
        now: SessionTime,
    ) {
        self.reopenable = None;
        if ended.ended.outcome == Outcome::BudgetExhausted && self.queue.is_empty() {
            stood.end_pause(now);
            // As for a parked run, time does not count from here on.
            stood.clock.parked_at.get_or_insert(now.active_ms);
            self.reopenable = Some(stood);
        }
    }

    /// Raises the limits of the running or queued run.
    pub(super) fn fold_budget_raised(&mut self, raised: &BudgetRaised) {
        match &mut self.current {
            CurrentRun::Running(run) if run.id == raised.run => {
                run.spec = raise_limits(&run.spec, &raised.increase);
            }
            CurrentRun::Running(_) | CurrentRun::Idle => {
                let queued = self.queue.iter_mut().find(|queued| queued.accepted.run == raised.run);
                if let Some(queued) = queued {
                    let QueuedRun { accepted, at, seq } = &**queued;
                    let mut accepted = accepted.clone();
                    accepted.spec = raise_limits(&accepted.spec, &raised.increase);
                    *queued = Arc::new(QueuedRun { accepted, at: *at, seq: *seq });
                }
            }
        }
    }

    /// Starts the next leg of the last run.
    pub(super) fn fold_run_reopened(&mut self, reopened: &RunReopened) {
        let Some(mut run) = self.reopenable.take_if(|run| run.id == reopened.run) else { return };
        run.spec = raise_limits(&run.spec, &reopened.increase);
        run.leg = reopened.leg;
        let is_used = !matches!(&run.state, LoopState::CallingModel(ModelCallState { since: None, .. }));
        if !run.has_sent_view() {
            run.unseen_from = run.unseen_from.or_else(|| self.history.last_step_position());
        }
        run.budget.skipped_numbers += u32::from(is_used && run.is_in_grace());
        run.iteration += u32::from(is_used);
        run.answer_recovery = AnswerRecovery::default();
        run.planned_end = None;
        run.budget.exhausted = None;
        run.state = LoopState::CallingModel(run.next_call());
        self.current = CurrentRun::Running(run);
        self.history.start_round(resume_prompt(&reopened.increase));
        for message in self.messages_at_start() {
            self.history.add_note(&delimited(&message));
        }
        self.show_results();
        self.show_unsynced_note();
    }
}

impl DecisionBuilder {
    /// Raises the limits of a run, or reopens it.
    pub(super) fn raise(&mut self, run: RunId, by: &LimitIncrease) {
        let Ok((leg, by)) = self.check_raise(run, by) else { return };
        self.record(match leg {
            Some(leg) => Body::RunReopened(RunReopened { run, leg, increase: by }),
            None => Body::BudgetRaised(BudgetRaised { run, increase: by }),
        });
    }

    /// Whether the limits of a run could be raised now.
    pub fn can_raise(&self, run: RunId, by: &LimitIncrease) -> Result<(), RaiseError> {
        self.check_raise(run, by).map(drop)
    }

    /// Whether this decision raises limits. A refused reservation is requested again once that is durable.
    pub(super) fn has_raised(&self) -> bool {
        let mut kinds = self.decision.records.iter().map(|record| record.body.kind());
        kinds.any(|kind| matches!(kind, Kind::RunReopened | Kind::BudgetRaised))
    }

    /// The next leg if the run has ended, and the part of the increase that applies to existing limits.
    fn check_raise(&self, id: RunId, by: &LimitIncrease) -> Result<(Option<u32>, LimitIncrease), RaiseError> {
        let Turn { queue, reopenable, .. } = &self.turn;
        let of = |run: &&ActiveRun| run.id == id;
        let (limits, leg) = if let Some(run) = self.run().filter(of) {
            if run.planned_end.is_some() || run.budget.exhausted.is_some() {
                return Err(RaiseError::Ending);
            }
            (&run.spec.limits, None)
        } else if let Some(queued) = queue.iter().find(|queued| queued.accepted.run == id) {
            (&queued.accepted.spec.limits, None)
        } else {
            let run = reopenable.as_deref().filter(of).ok_or(RaiseError::Superseded)?;
            if run.parent.is_some() {
                return Err(RaiseError::ResultDelivered);
            }
            (&run.spec.limits, Some(run.leg + 1))
        };
        Ok((leg, restrict_to_limits(by, limits)?))
    }
}

/// The part of the increase that applies to existing limits.
fn restrict_to_limits(by: &LimitIncrease, limits: &Limits) -> Result<LimitIncrease, RaiseError> {
    let mut limited = LimitIncrease::default();
    for dimension in Dimension::ALL {
        let more = by.budget.get(dimension).filter(|more| *more > 0);
        if let Some(more) = more.filter(|_| limits.budget.get(dimension).is_some()) {
            limited.budget.set(dimension, more);
        }
    }
    limited.wall_ms = by.wall_ms.filter(|more| *more > 0 && limits.wall_ms.is_some());
    if limited == LimitIncrease::default() {
        let has = Dimension::ALL.into_iter().filter(|dimension| limits.budget.get(*dimension).is_some());
        let wall = limits.wall_ms.map(|_| "wall");
        let has: Vec<&str> = has.map(Dimension::name).chain(wall).collect();
        let has = if has.is_empty() { "it has none at all".to_owned() } else { has.join(", ") };
        return Err(RaiseError::NoLimit(has));
    }
    Ok(limited)
}

/// The spec with these limits raised.
fn raise_limits(spec: &Arc<RunSpec>, by: &LimitIncrease) -> Arc<RunSpec> {
    let mut raised = RunSpec::clone(spec);
    let limits = &mut raised.limits;
    for dimension in Dimension::ALL {
        if let Some((limit, more)) = limits.budget.get(dimension).zip(by.budget.get(dimension)) {
            limits.budget.set(dimension, limit.saturating_add(more));
        }
    }
    limits.wall_ms = limits.wall_ms.map(|limit| limit.saturating_add(by.wall_ms.unwrap_or(0)));
    Arc::new(raised)
}

/// The user message with which a reopened run starts.
fn resume_prompt(by: &LimitIncrease) -> Arc<str> {
    format!(
        "{RUNTIME_TEXT_PREFIX}the budget of this task was raised by {by}. Go on with the task from where you were; repeat nothing \
         that is done.]"
    )
    .into()
}
