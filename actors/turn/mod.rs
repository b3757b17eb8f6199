//! The pure core: what an input means (`decide`), what a record changes (`apply`), what ought to be in flight (`due`).
//!
//! Architecture invariant: no clock, no I/O, no randomness, no order out of a hash map. A session's state is the fold
//! of its records, so recovery is no separate path: after a crash the same records give the same `due`.

mod active_run;
mod answer;
mod answer_recovery;
mod compaction;
mod decision;
mod delegate;
mod ending;
mod estimates;
mod fold;
mod grace_call;
mod history;
mod history_repair;
mod in_doubt;
mod input;
mod ledger_and_index;
mod model_call;
mod model_failure;
mod model_observations;
mod recovery;
mod reopen;
mod steer;
mod subagents;
mod summary;
mod todo;
mod unsynced_writes;
mod wait_report;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub(crate) use answer_recovery::TransientPrompt;
pub(crate) use decision::{Decision, DecisionBuilder};
pub(crate) use delegate::{DelegationMode, ONE_CHILD};
pub(crate) use history::RenderCursor;
pub(crate) use history_repair::repair;
pub(crate) use input::{CallAdmission, CallRejection, DueAction, FailoverOptions, GrantRequest, Input};
pub(crate) use recovery::{CrashPoint, ReplayedSession};
pub use reopen::RaiseError;
pub(crate) use summary::{PROMPT as SUMMARY_PROMPT, SummaryRequest};
pub(crate) use wait_report::TaskDeadlines;
pub use wait_report::WaitTracker;

use crate::{
    model::{
        ApprovalRequested, CallId, Durable, Incarnation, Kind, Message, ModelRef, ModelStarted, PrefixChange,
        Record, RunId, RunSpec, Seq, SessionId, SessionTime, Timestamp, TodoList,
    },
    policy::Candidate,
    port::ArtifactHashes,
    turn::{
        active_run::{CurrentRun, LoopState},
        history::History,
    },
};

/// The state of a session. Cheap to clone: its history is shared.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    session: SessionId,
    header: Arc<SessionHeader>,
    incarnation: Incarnation,
    boot: Arc<str>,
    last: Seq,
    active_ms: u64,
    history: History,
    /// What stands for the part of it that is gone.
    summary: Option<Arc<str>>,
    /// What the last run has summarised and its view has not shown: the next run goes on with it.
    unused_summary: Option<compaction::PrefixSummary>,
    /// What was found out about the models that were asked.
    observations: imbl::Vector<model_observations::ModelObservation>,
    /// What its model means to do.
    todo: Arc<TodoList>,
    /// What is recorded of the artifacts of this session.
    artifacts: ArtifactHashes,
    /// All runs that were ever accepted here.
    accepted: imbl::OrdSet<RunId>,
    queue: imbl::Vector<Arc<active_run::QueuedRun>>,
    steering: steer::Steering,
    unsynced_writes: unsynced_writes::UnsyncedWrites,
    /// What the last request began with.
    prefix: Option<RequestPrefix>,
    current: CurrentRun,
    /// The last run, as it stood at its end for want of budget, until another is accepted.
    reopenable: Option<Box<active_run::ActiveRun>>,
}

/// What decides how a request begins.
#[derive(Debug, Clone)]
struct RequestPrefix {
    model: ModelRef,
    spec: Arc<RunSpec>,
    offers_tools: bool,
}

/// What does not change in a session's life.
#[derive(Debug)]
struct SessionHeader {
    prompt: Arc<str>,
}

impl Turn {
    /// The recorded hashes of this session's artifacts.
    pub(crate) fn artifact_hashes(&self) -> ArtifactHashes {
        self.artifacts.clone()
    }

    /// A session without a record.
    fn empty(session: SessionId) -> Self {
        let nothing: Arc<str> = "".into();
        Self {
            session,
            header: Arc::new(SessionHeader { prompt: Arc::clone(&nothing) }),
            incarnation: Incarnation::default(),
            boot: nothing,
            last: 0,
            active_ms: 0,
            history: History::default(),
            summary: None,
            unused_summary: None,
            observations: imbl::Vector::new(),
            todo: Arc::default(),
            artifacts: ArtifactHashes::default(),
            accepted: imbl::OrdSet::new(),
            queue: imbl::Vector::new(),
            steering: steer::Steering::default(),
            unsynced_writes: unsynced_writes::UnsyncedWrites::default(),
            prefix: None,
            current: CurrentRun::Idle,
            reopenable: None,
        }
    }

    /// What happened, as records; the inputs are folded one after the other into a private draft.
    #[cfg(test)]
    pub(crate) fn decide(&self, now: SessionTime, inputs: &[Input]) -> Vec<Arc<Record>> {
        let mut draft = self.start_decision(now);
        inputs.iter().for_each(|input| draft.apply_input(input));
        draft.finish().records
    }

    /// Begins a decision.
    pub(crate) fn start_decision(&self, now: SessionTime) -> DecisionBuilder {
        DecisionBuilder::new(self.clone(), now)
    }

    /// The only way to change a session's state. Cannot fail and does not decide.
    pub(crate) fn apply(&mut self, record: &Durable<Arc<Record>>) {
        self.fold(record);
    }

    /// The last record's sequence.
    pub(crate) const fn last_seq(&self) -> Seq {
        self.last
    }

    /// The run under way.
    pub(crate) fn current(&self) -> Option<(RunId, &Arc<RunSpec>)> {
        match &self.current {
            CurrentRun::Idle => None,
            CurrentRun::Running(run) => Some((run.id, &run.spec)),
        }
    }

    /// Whether a run has not ended.
    pub(crate) fn has_work(&self) -> bool {
        !matches!(self.current, CurrentRun::Idle) || !self.queue.is_empty()
    }

    /// Whether the run under way only waits for its calls to end.
    pub(crate) fn is_stopping(&self) -> bool {
        matches!(&self.current, CurrentRun::Running(run) if run.planned_end.is_some())
    }

    /// The models that this call, which is wanted, may still ask.
    pub(crate) fn candidates_of(&self, call: CallId) -> Option<Vec<Candidate>> {
        if call.is_summary() { self.summary_candidates() } else { self.candidates() }
    }

    /// The models that the call under way may still ask, in the chain's order; `None` if there is none under way. Where
    /// money is limited, none is asked that nobody can price.
    pub(crate) fn candidates(&self) -> Option<Vec<Candidate>> {
        let CurrentRun::Running(run) = &self.current else { return None };
        match &run.state {
            LoopState::CallingModel(asking) => {
                let tokens =
                    |model: &ModelRef| estimates::tokens_to_reserve(run, self, (asking.attempt, model));
                let mut candidates = asking.candidates(&run.spec.chain, tokens);
                candidates.retain(|link| estimates::unpriced_above(run, self, &link.model).is_none());
                Some(candidates)
            }
            LoopState::RunningTools(_) | LoopState::Answered(_) => None,
        }
    }

    /// The system prompt of the run under way, with the run's own system message as its last layer.
    pub(crate) fn system_prompt(&self) -> String {
        let own = self.current().and_then(|(_, spec)| spec.system.as_deref());
        match own {
            Some(own) => format!("{}\n\n{own}", self.header.prompt),
            None => self.header.prompt.to_string(),
        }
    }

    /// Renders the messages of the view from `from` on. Their roles alternate as every provider demands.
    pub(crate) fn render(&self, from: RenderCursor) -> (Vec<Message>, RenderCursor) {
        self.history.render(from)
    }

    /// How often what `render` gives from the beginning has changed.
    pub(crate) const fn generation(&self) -> u32 {
        self.history.generation()
    }

    /// The bytes of the system prompt of a run.
    fn system_bytes(&self, run: &active_run::ActiveRun) -> usize {
        self.header.prompt.len() + run.spec.system.as_deref().map_or(0, str::len)
    }

    /// Why a request to `model` would not begin as the last one did; `None` if it would.
    pub(crate) fn prefix_change(&self, model: &ModelRef) -> Option<PrefixChange> {
        let Some(last) = &self.prefix else { return Some(PrefixChange::First) };
        let (_, spec) = self.current()?;
        if last.model != *model {
            Some(PrefixChange::Model)
        } else if last.offers_tools != self.offers_tools() {
            Some(PrefixChange::Tools)
        } else if Arc::ptr_eq(&last.spec, spec) {
            None
        } else if last.spec.system != spec.system {
            Some(PrefixChange::System)
        } else if last.spec.tools != spec.tools {
            Some(PrefixChange::Tools)
        } else {
            (last.spec.thinking_request_of(model) != spec.thinking_request_of(model))
                .then_some(PrefixChange::Thinking)
        }
    }

    /// The model call under way, if its start is durable.
    pub(crate) fn model_started(&self) -> Option<&Arc<ModelStarted>> {
        match &self.current {
            CurrentRun::Idle => None,
            CurrentRun::Running(run) => run.model_started(),
        }
    }

    /// The attempt of this call that is started: of the model call or of one for a summary.
    #[cfg(test)]
    pub(crate) fn started_of(&self, call: CallId) -> Option<&Arc<ModelStarted>> {
        match &self.current {
            CurrentRun::Idle => None,
            CurrentRun::Running(run) => run.started_of(call),
        }
    }

    /// The tool, the arguments and the spec of a call under way.
    pub(crate) fn tool_call(&self, id: CallId) -> Option<(Arc<str>, &str, &Arc<RunSpec>)> {
        let CurrentRun::Running(run) = &self.current else { return None };
        let LoopState::RunningTools(acting) = &run.state else { return None };
        let mut calls = acting.calls.iter().zip(&acting.answer.calls);
        let (call, asked) = calls.find(|(call, _)| call.id == id)?;
        Some((Arc::clone(&call.tool), &asked.arguments, &run.spec))
    }
}

/// The questions that wait for a person after these records of a session, and since when.
pub(crate) fn open_approvals<'a>(
    session: SessionId,
    records: impl Iterator<Item = &'a Record>,
) -> Vec<(ApprovalRequested, Timestamp)> {
    let mut turn = Turn::empty(session);
    records.for_each(|record| turn.fold(record));
    turn.open_approvals()
}

/// The messages that the records of one run render to: for telling, never for doing.
pub(crate) fn render_run<'a>(session: SessionId, records: impl Iterator<Item = &'a Record>) -> Vec<Message> {
    let mut turn = Turn::empty(session);
    // All that was said is told, and not what a model was still shown of it.
    let records = records.filter(|record| record.body.kind() != Kind::ContextCompacted);
    records.for_each(|record| turn.fold(record));
    turn.render(RenderCursor::default()).0
}
