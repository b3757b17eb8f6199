//! Raises the limits of a run that has not ended, and reopens a run that ended because its budget was used up. A
//! reopened run keeps its history, spend and counted time, and starts its next leg at its next iteration. Also the
//! reasons why limits are not raised.

use std::sync::Arc;

use crate::{
    model::{
        Body, BudgetRaised, Dimension, HistoryPosition, Kind, LimitIncrease, Limits, OutcomeDetail,
        RUNTIME_TEXT_PREFIX, RunId, RunReopened, RunSpec,
    },
    turn::{
        Turn,
        active_run::{ActiveRun, LoopState},
        answer_recovery::AnswerRecovery,
        decision::DecisionBuilder,
        model_call::ModelCallState,
        run_queue::QueuedRun,
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

impl QueuedRun {
    /// Returns the same run with raised limits.
    pub(super) fn raised(&self, by: &LimitIncrease) -> Self {
        let mut raised = self.clone();
        let accepted = Arc::make_mut(&mut raised.accepted);
        accepted.spec = raise_limits(&accepted.spec, by);
        raised
    }
}

impl ActiveRun {
    pub(super) fn on_raised(&mut self, by: &LimitIncrease) {
        self.spec = raise_limits(&self.spec, by);
    }

    /// Starts the next leg, and returns the user message with which it starts. `last_step` is the position of the last
    /// step in the history.
    pub(super) fn reopen(&mut self, reopened: &RunReopened, last_step: Option<HistoryPosition>) -> Arc<str> {
        self.on_raised(&reopened.increase);
        self.leg = reopened.leg;
        let is_used = !matches!(&self.state, LoopState::CallingModel(ModelCallState { since: None, .. }));
        if !self.has_sent_view() {
            self.unseen_from = self.unseen_from.or(last_step);
        }
        self.budget.skipped_numbers += u32::from(is_used && self.is_in_grace());
        self.iteration += u32::from(is_used);
        self.answer_recovery = AnswerRecovery::default();
        self.loop_guard.reset();
        self.planned_end = None;
        self.budget.exhausted = None;
        self.state = LoopState::CallingModel(self.next_call());
        resume_prompt(&reopened.increase)
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
        let mut kinds = self.append.records.iter().map(|record| record.body.kind());
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
        let names = Dimension::ALL.into_iter().filter(|dimension| limits.budget.get(*dimension).is_some());
        let wall = limits.wall_ms.map(|_| "wall");
        let names: Vec<&str> = names.map(Dimension::name).chain(wall).collect();
        let names = if names.is_empty() { "it has none at all".to_owned() } else { names.join(", ") };
        return Err(RaiseError::NoLimit(names));
    }
    Ok(limited)
}

/// The spec with these limits raised.
fn raise_limits(spec: &Arc<RunSpec>, by: &LimitIncrease) -> Arc<RunSpec> {
    let mut raised = RunSpec::clone(spec);
    let limits = &mut raised.limits;
    limits.budget.raise(&by.budget);
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
