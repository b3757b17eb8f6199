//! The state of a session ([`Turn`]) and its state machine: `decide` turns inputs into records, `apply` records into
//! state, `due` state into actions. Also what the shell asks about the state (more in `queries.rs`). Two read-only
//! projections of records are here: open approvals, and the messages of a run.
//!
//! Architecture invariant: no clock, no I/O, no randomness, no order out of a hash map. A session's state is the fold
//! of its records; only the limits of the store are given, like the time. Recovery has no path of its own: after a crash the same records give the same `due`.

mod active_run;
mod active_time;
mod answer;
mod answer_recovery;
mod approval;
mod aside;
mod aside_call;
mod begin;
mod compaction;
mod compaction_state;
mod conversation;
mod decision;
mod delegate;
mod ending;
mod estimates;
mod flush;
mod flush_state;
mod fold;
mod force_fail;
mod grace_call;
mod history;
mod history_repair;
mod in_doubt;
mod input;
mod last_text;
mod ledger_and_index;
mod loop_guard;
mod message_rows;
mod messages;
mod model_call;
mod model_failure;
mod model_observations;
mod outbox;
mod person_decisions;
mod queries;
mod recovery;
mod reopen;
mod request;
mod run_budget;
mod run_clock;
mod run_queue;
mod sent_messages;
mod steer;
mod store_limits;
mod subagents;
mod summary;
mod title;
mod todo;
mod tool_calls;
mod unsynced_writes;
mod verification;
mod vision;
mod vision_state;
mod wait_report;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use answer_recovery::TransientPrompt;
pub use aside::AsideRequest;
pub use conversation::{ConversationMark, ConversationReader};
pub use decision::DecisionBuilder;
pub use flush_state::PendingMemory;
pub use force_fail::{ForcedEnds, OpenRun, own_reservation};
pub use history::RenderCursor;
pub use history_repair::repair;
pub use input::{CallAdmission, CallRejection, DueAction, FailoverOptions, GrantRequest, Input};
pub use queries::DelegationMode;
pub use recovery::{CrashPoint, ReplayedSession};
pub use reopen::RaiseError;
pub use run_queue::BeginningRun;
pub use summary::summary_defect;
pub use verification::UnverifiedRun;
pub use wait_report::{TaskDeadlines, WaitTracker};

use crate::{
    journal::Append,
    model::{
        ArtifactHashes, BeginRules, CallId, Durable, Incarnation, Kind, Message, ModelRef, ModelStarted,
        PendingApproval, Record, RunId, RunSpec, Seq, SessionId, SessionRow, SessionTime, StoreLimits,
        Timestamp, TodoList,
    },
    policy::{self, Candidate},
    turn::history::History,
};

/// The state of a session. Cheap to clone: its history is shared.
#[derive(Debug, Clone)]
pub struct Turn {
    session: SessionId,
    /// Its index row.
    row: Arc<SessionRow>,
    /// The system prompt, without the run's own system message.
    prompt: Arc<str>,
    incarnation: Incarnation,
    boot: Arc<str>,
    last: Seq,
    active_ms: u64,
    history: History,
    /// Summary in place of the removed oldest part of `history`.
    summary: Option<Arc<str>>,
    /// Summary that the last run made and that is in no view yet. The next run uses it.
    unused_summary: Option<compaction_state::PrefixSummary>,
    /// What is known about the models that were called.
    observations: model_observations::ModelObservations,
    /// The current to-do list of the session's model.
    todo: Arc<TodoList>,
    /// Recorded hashes of this session's artifacts.
    artifacts: ArtifactHashes,
    /// Every run that this session has ever accepted.
    accepted: imbl::OrdSet<RunId>,
    queue: imbl::Vector<Arc<run_queue::QueuedRun>>,
    steering: steer::Steering,
    unsynced_writes: unsynced_writes::UnsyncedWrites,
    /// What the prefix of the last request was made from.
    prefix: Option<request::RequestPrefix>,
    current: Option<Box<active_run::ActiveRun>>,
    /// The last run in its final state, if it ended because its budget was used up; cleared when another run is
    /// accepted.
    reopenable: Option<Box<active_run::ActiveRun>>,
    /// The title of the session, and the call for one.
    title: title::TitleState,
    /// What memory flushes have found.
    memory: flush_state::FlushedMemory,
    /// Not folded: the limits of the store at present, as the shell knows them.
    store_limits: StoreLimits,
    /// Not folded: what runs wait for that are accepted at present, as the shell knows it.
    begin_rules: BeginRules,
}

impl Turn {
    /// The recorded hashes of this session's artifacts.
    pub fn artifact_hashes(&self) -> ArtifactHashes {
        self.artifacts.clone()
    }

    /// A session without a record.
    fn empty(session: SessionId) -> Self {
        let nothing: Arc<str> = "".into();
        Self {
            session,
            row: Arc::new(SessionRow::new(session, "", Timestamp::default())),
            prompt: Arc::clone(&nothing),
            incarnation: Incarnation::default(),
            boot: nothing,
            last: 0,
            active_ms: 0,
            history: History::default(),
            summary: None,
            unused_summary: None,
            observations: model_observations::ModelObservations::default(),
            todo: Arc::default(),
            artifacts: ArtifactHashes::default(),
            accepted: imbl::OrdSet::new(),
            queue: imbl::Vector::new(),
            steering: steer::Steering::default(),
            unsynced_writes: unsynced_writes::UnsyncedWrites::default(),
            prefix: None,
            current: None,
            reopenable: None,
            title: title::TitleState::default(),
            memory: flush_state::FlushedMemory::default(),
            store_limits: StoreLimits::default(),
            begin_rules: BeginRules::default(),
        }
    }

    /// Decides inputs that arrived together, as one append. `grant` answers a request for a lease or a permit with an
    /// input, if one is free.
    pub fn decide(
        &self,
        now: SessionTime,
        inputs: &[Input],
        grant: impl FnMut(GrantRequest) -> Option<Input>,
    ) -> Append {
        let mut draft = self.start_decision(now);
        inputs.iter().for_each(|input| draft.apply_input(input));
        draft.grant_requests().into_iter().filter_map(grant).for_each(|input| draft.apply_input(&input));
        draft.finish()
    }

    /// Starts a decision on a copy of the state.
    pub fn start_decision(&self, now: SessionTime) -> DecisionBuilder {
        DecisionBuilder::new(self.clone(), now)
    }

    /// The actions that should be in flight, with those for asides. The value of an action is its identity; the
    /// shell cancels an action that is no longer due.
    pub fn due(&self, now: SessionTime) -> Vec<DueAction> {
        let mut due =
            self.run().map_or_else(|| self.due_for_held(now.at), |run| self.due_with_asides(run, now));
        due.extend(self.due_for_title(now));
        due.extend(self.due_for_memory());
        due
    }

    /// Folds a durable record: the only way to change the state of a live session. Cannot fail and decides nothing.
    pub fn apply(&mut self, record: &Durable<Arc<Record>>) {
        self.fold(record);
    }

    /// Sequence number of the last record.
    pub const fn last_seq(&self) -> Seq {
        self.last
    }

    /// The run under way.
    pub fn current(&self) -> Option<(RunId, &Arc<RunSpec>)> {
        self.run().map(|run| (run.id, &run.spec))
    }

    /// The state of the run under way.
    fn run(&self) -> Option<&active_run::ActiveRun> {
        self.current.as_deref()
    }

    /// Whether a run is under way or queued.
    pub fn has_work(&self) -> bool {
        self.current.is_some() || !self.queue.is_empty()
    }

    /// Whether the steering message with this id is recorded.
    pub fn is_message_recorded(&self, next: RunId) -> bool {
        self.steering.is_recorded(next)
    }

    /// Whether the next request, or the one under way, has the run's tools.
    pub fn offers_tools(&self) -> bool {
        self.run().is_none_or(active_run::ActiveRun::offers_tools)
    }

    /// Whether the next request, or the one under way, forbids calls.
    pub fn forbids_calls(&self) -> bool {
        self.run().is_some_and(active_run::ActiveRun::forbids_calls)
    }

    /// Whether the run under way is exhausted. Steering messages that arrive then are for the next run.
    pub fn is_exhausted(&self) -> bool {
        self.run().is_some_and(|run| run.budget.exhausted.is_some())
    }

    /// Whether the run under way is being stopped: its outcome is decided, and it only waits for its calls and
    /// subagents to end.
    pub fn is_stopping(&self) -> bool {
        self.run().is_some_and(|run| run.planned_end.is_some())
    }

    /// Bytes of text that fit into the context window of the first model of the run under way; `None` if unknown.
    pub fn window_bytes(&self) -> Option<u64> {
        let spec = &self.run()?.spec;
        let model = spec.chain.first()?;
        Some(self.observations.density(spec, model).bytes(self.observations.window(spec, model)?))
    }

    /// The models that may still be called for this model call or aside.
    pub fn candidates_of(&self, call: CallId) -> Option<Vec<Candidate>> {
        if call.is_aside() { self.aside_candidates(call) } else { self.candidates() }
    }

    /// The models that may still be called for the model call that is wanted or under way; `None` without such a call.
    /// They are in the chain's order, but those that were left after a failure come last. With a limit on money, models
    /// without a known price are left out.
    pub fn candidates(&self) -> Option<Vec<Candidate>> {
        let run = self.run()?;
        let call = run.model_call_state()?;
        let tokens = |model: &ModelRef| {
            estimates::estimate(run, self, call.attempt, model).reserved.tokens.unwrap_or(0)
        };
        let mut candidates = call.candidates(&run.spec.chain, tokens);
        candidates.retain(|link| estimates::unpriced_above(run, self, &link.model).is_none());
        Some(candidates)
    }

    /// The to-do list as text, one item a line; `None` if it is empty.
    fn todo(&self) -> Option<String> {
        policy::todo::format_list(&self.todo)
    }

    /// Renders the messages of the view from `from` on. Their roles alternate as every provider demands.
    pub fn render(&self, from: RenderCursor) -> (Vec<Message>, RenderCursor) {
        self.history.render(from)
    }

    /// Counts changes of content that was rendered before: each makes earlier renderings invalid.
    pub const fn generation(&self) -> u32 {
        self.history.generation
    }

    /// The record that started the model call under way.
    pub fn model_started(&self) -> Option<&Arc<ModelStarted>> {
        self.run()?.model_started()
    }

    /// The started attempt of this model call or aside.
    #[cfg(test)]
    pub(crate) fn started_of(&self, call: CallId) -> Option<&Arc<ModelStarted>> {
        let title = self.title.started().map(|(started, _)| started).filter(|started| started.call == call);
        title.or_else(|| self.run()?.started_of(call))
    }
}

/// The open approval requests after these records of a session, beginning with the first.
pub fn open_approvals<'a>(
    session: SessionId,
    records: impl Iterator<Item = &'a Record>,
) -> Vec<PendingApproval> {
    let mut turn = Turn::empty(session);
    records.for_each(|record| turn.fold(record));
    turn.open_approvals()
}

/// The messages that the records of one run render to. A read-only projection; never drives actions.
pub fn render_run<'a>(session: SessionId, records: impl Iterator<Item = &'a Record>) -> Vec<Message> {
    let mut turn = Turn::empty(session);
    // Compactions are skipped, so the result has all messages, not only those that were left in the model's view.
    let records = records.filter(|record| record.body.kind() != Kind::ContextCompacted);
    records.for_each(|record| turn.fold(record));
    turn.render(RenderCursor::default()).0
}
