//! The state of the Session actor, and what happens after each message. Inputs are enqueued and decided, then running
//! tasks are reconciled with the actions that are due. Also suspension and passivation. `append.rs` is the way of
//! inputs to disk, `append_result.rs` the way back.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use ractor::{ActorRef, RpcReplyPort};
use tokio_util::sync::CancellationToken;

use crate::{
    model::{AttemptId, BeginRules, CallId, SessionId, SessionTime, StoreLimits},
    persistence::PersistenceMsg,
    provider::Lease,
    session::{
        RaiseResult, SessionArguments, SessionInternalMsg, SessionMsg, SubmitReply,
        aside_admission::AsideLease,
        inbox::InboxReader,
        lease_wait,
        tasks::{InFlightTask, TaskSpawner},
        tools::CallTools,
        view::EncodedView,
    },
    supervisor::{LanePlace, RuntimeParts},
    tool_executor::{AdmittedCall, ToolPermit},
    turn::{DueAction, Input, ReplayedSession, Turn},
};

/// The state of a session's actor.
pub(crate) struct SessionActorState {
    pub(super) id: SessionId,
    pub(super) me: ActorRef<SessionMsg>,
    pub(super) parts: Arc<RuntimeParts>,
    pub(super) phase: StartPhase,
    /// The process's monotonic time at the start of this incarnation, and the session's active time then, in
    /// milliseconds.
    pub(super) clock_origin: (u64, u64),
    pub(super) waiting: VecDeque<QueuedInput>,
    pub(super) in_flight: Option<InFlightAppend>,
    /// Whether a `BatchReady` is on its way.
    pub(super) is_batching: bool,
    pub(super) appends: u64,
    /// The place of the run under way in its lane, or of the one whose begin is being written.
    pub(super) place: Option<LanePlace>,
    /// Leases and permits of calls whose start is being written.
    pub(super) granted: BTreeMap<AttemptId, Grant>,
    pub(super) running: BTreeMap<DueAction, InFlightTask>,
    pub(super) tools: CallTools,
    pub(super) tasks: TaskSpawner,
    pub(super) view: EncodedView,
    pub(super) inbox: InboxReader,
    /// The reply port of a suspension, answered when nothing is being written or ended any more. While it is set, only
    /// end actions are started.
    pub(super) suspending: Option<RpcReplyPort<()>>,
}

/// A session before and after its first decision is durable.
pub(super) enum StartPhase {
    Replayed(ReplayedSession, Input),
    Awake(Turn),
    /// Only within a handler, during the change from `Replayed` to `Awake`.
    Switching,
}

impl StartPhase {
    /// Sets the limits of the store, and what runs wait for that are accepted, for the next decision.
    pub(super) const fn set_present(&mut self, limits: StoreLimits, rules: BeginRules) {
        match self {
            Self::Replayed(replayed, _) => {
                replayed.set_store_limits(limits);
                replayed.set_begin_rules(rules);
            }
            Self::Awake(turn) => {
                turn.set_store_limits(limits);
                turn.set_begin_rules(rules);
            }
            Self::Switching => {}
        }
    }
}

pub(super) struct QueuedInput {
    pub(super) input: Input,
    pub(super) reply: Option<InputReply>,
    /// The grant of a `Leased`, `Permitted` or `MayBegin` input.
    pub(super) grant: Option<Grant>,
}

/// The reply port of an input from outside.
#[derive(Debug)]
pub(crate) enum InputReply {
    Submit(SubmitReply),
    Stop(RpcReplyPort<()>),
    SetQueue(RpcReplyPort<()>),
    /// The reply: whether the message was recorded.
    Steer(RpcReplyPort<bool>),
    /// The flag: whether an open request took the answer.
    Decide(RpcReplyPort<bool>, bool),
    /// The result that the draft decided.
    Raise(RpcReplyPort<RaiseResult>, RaiseResult),
}

pub(super) struct InFlightAppend {
    pub(super) number: u64,
    pub(super) inputs: Vec<QueuedInput>,
}

/// The resource that a call needs to start.
#[derive(Debug)]
pub(crate) enum Grant {
    Lease(Lease),
    Aside(Box<AsideLease>),
    Permit(ToolPermit),
    Place(LanePlace),
}

impl SessionActorState {
    /// A session at the beginning of an incarnation.
    pub(super) fn start(me: ActorRef<SessionMsg>, arguments: SessionArguments) -> Self {
        let SessionArguments { id, parts, replayed, first, tasks, has_inbox, waiting } = arguments;
        let mut state = Self {
            id,
            clock_origin: (parts.clock.monotonic_ms(), replayed.active_ms()),
            tasks: TaskSpawner::new(tasks, me.clone(), Arc::clone(&parts), id),
            me,
            parts,
            phase: StartPhase::Replayed(replayed, first),
            waiting: VecDeque::new(),
            in_flight: None,
            is_batching: false,
            appends: 0,
            place: None,
            granted: BTreeMap::new(),
            running: BTreeMap::new(),
            tools: CallTools::default(),
            view: EncodedView::default(),
            inbox: InboxReader::default(),
            suspending: None,
        };
        waiting.into_iter().for_each(|message| state.enqueue_message(message));
        if has_inbox {
            state.on_inbox_ready();
        }
        state.advance();
        state
    }

    /// Enqueues the message's input behind the waiting ones, or handles a message without an input.
    pub(super) fn enqueue_message(&mut self, message: SessionMsg) {
        match message {
            SessionMsg::Command { input, reply, suspended } => {
                if suspended.is_some() {
                    self.suspending = suspended;
                } else if matches!(input, Input::Stop { .. }) {
                    self.expedite();
                }
                self.enqueue(input, Some(reply), None);
            }
            SessionMsg::Inner(SessionInternalMsg::Input(input)) => {
                if matches!(input, Input::TimerFired) {
                    TaskSpawner::forget_timers(&mut self.running);
                }
                self.enqueue(input, None, None);
            }
            SessionMsg::Inner(SessionInternalMsg::Answered(input, admitted)) => {
                self.keep_prepared(&input, admitted);
                self.enqueue(input, None, None);
            }
            SessionMsg::Inner(SessionInternalMsg::Granted(input, grant)) => {
                self.enqueue(input, None, Some(grant));
            }
            SessionMsg::InboxReady => self.on_inbox_ready(),
            SessionMsg::Inner(SessionInternalMsg::InboxRead(inputs)) => self.on_inbox_read(inputs),
            SessionMsg::Suspend(reply) => self.suspending = Some(reply),
            #[cfg(feature = "testkit")]
            SessionMsg::Inspect(_) => {}
            SessionMsg::Passivate(_)
            | SessionMsg::Inner(
                SessionInternalMsg::AppendDone(..)
                | SessionInternalMsg::BatchReady
                | SessionInternalMsg::Passivate(_)
                | SessionInternalMsg::TaskFailed,
            ) => {}
        }
    }

    pub(super) fn enqueue(&mut self, input: Input, reply: Option<InputReply>, grant: Option<Grant>) {
        self.waiting.push_back(QueuedInput { input, reply, grant });
    }

    /// Keeps the prepared calls of the current answer until they start. Those of a late answer are dropped, because its
    /// attempt was given up.
    fn keep_prepared(&mut self, input: &Input, admitted: BTreeMap<CallId, AdmittedCall>) {
        if let (StartPhase::Awake(turn), Input::Answered { started, .. }) = (&self.phase, input)
            && turn.model_started().is_some_and(|current| current.id() == started.id())
        {
            self.tools.prepared = admitted;
        }
    }

    /// Asks Persistence to commit the append in flight next: a stop has to wait for it.
    pub(super) fn expedite(&self) {
        if self.in_flight.is_some() && self.parts.persistence.cast(PersistenceMsg::Expedite(self.id)).is_err()
        {
            tracing::debug!(session = %self.id, "persistence is gone");
        }
    }

    pub(super) fn now(&self) -> SessionTime {
        let clock = &self.parts.clock;
        let alive_ms = clock.monotonic_ms().saturating_sub(self.clock_origin.0);
        SessionTime { at: clock.at(), active_ms: self.clock_origin.1 + alive_ms }
    }

    /// Decides the waiting inputs. If only tool results wait and more may follow, it first yields to the tasks that are
    /// ready: results that arrive together are written together.
    pub(super) fn defer_for_group_commit(&mut self) {
        let is_end = |queued: &&QueuedInput| matches!(queued.input, Input::ToolEnded { .. });
        let is_call = |action: &&DueAction| matches!(action, DueAction::RunTool { .. });
        let ended = self.waiting.iter().filter(is_end).count();
        let has_more =
            ended > 0 && ended == self.waiting.len() && ended < self.running.keys().filter(is_call).count();
        if !has_more {
            self.advance();
        } else if self.in_flight.is_none() && !self.is_batching {
            self.is_batching = true;
            self.tasks.notify_after_yield();
        }
    }

    /// The tasks that were ready have run.
    pub(super) fn on_batch_ready(&mut self) {
        self.is_batching = false;
        self.advance();
    }

    /// Decides the waiting inputs. A session that is being suspended answers and stops once nothing is left to write or
    /// to end.
    pub(super) fn advance(&mut self) {
        self.decide();
        if self.in_flight.is_none()
            && self.waiting.is_empty()
            && !self.running.keys().any(DueAction::is_end)
            && let Some(reply) = self.suspending.take()
        {
            if reply.send(()).is_err() {
                tracing::debug!(session = %self.id, "the reply to a suspension was dropped by its caller");
            }
            self.me.stop(None);
        }
    }

    /// What limits a subagent's answer in its parent's view: the window in bytes, and the number of subagents of each
    /// call.
    pub(super) fn result_share_basis(&self) -> (Option<u64>, Vec<(CallId, usize)>) {
        let StartPhase::Awake(turn) = &self.phase else { return (None, Vec::new()) };
        (turn.window_bytes(), turn.subagent_counts())
    }

    /// Whether all runs have ended and nothing is pending.
    fn is_idle(&self) -> bool {
        let has_work = match &self.phase {
            StartPhase::Awake(turn) => turn.has_work(),
            // Opened by a message that led to no record.
            StartPhase::Replayed(replayed, _) => !replayed.is_new(),
            StartPhase::Switching => true,
        };
        !has_work
            && self.waiting.is_empty()
            && self.in_flight.is_none()
            && self.running.is_empty()
            && self.inbox.is_idle()
    }

    /// Publishes for the supervisor since when the session is idle.
    pub(super) fn update_idle_since(&self) {
        let since = self.is_idle().then(|| self.parts.clock.monotonic_ms());
        self.tasks.tasks.set_idle_since(since);
    }

    /// Queues the passivation behind all messages that the session's tasks have sent. Declines while a task runs: it
    /// may still report, such as the cost of a call of a stopped run.
    pub(super) fn prepare_passivation(&self, declined: RpcReplyPort<()>) {
        if !self.may_passivate() {
            self.decline_passivation(declined);
        } else if self.me.cast(SessionMsg::Inner(SessionInternalMsg::Passivate(declined))).is_err() {
            tracing::debug!(session = %self.id, "it ends already");
        }
    }

    /// Stops if the session is idle, because all of its state is on disk; otherwise declines.
    pub(super) fn passivate(&self, declined: RpcReplyPort<()>) {
        if self.may_passivate() { self.me.stop(None) } else { self.decline_passivation(declined) }
    }

    fn may_passivate(&self) -> bool {
        self.is_idle() && self.tasks.tasks.is_empty()
    }

    fn decline_passivation(&self, declined: RpcReplyPort<()>) {
        if declined.send(()).is_err() {
            tracing::debug!(session = %self.id, "the reply to a passivation was dropped by its caller");
        }
    }

    /// Gives the place in a lane back while the run under way waits, and takes it back when the run goes on.
    fn sync_place(&mut self, now: SessionTime) {
        let StartPhase::Awake(turn) = &self.phase else { return };
        match (turn.current(), turn.occupied_lane(now)) {
            (Some((run, _)), Some(lane)) => {
                self.place.get_or_insert_with(|| self.parts.lanes.occupy(run, lane));
            }
            (current, _) => {
                self.place = None;
                current.into_iter().for_each(|(run, _)| self.parts.lanes.forget_kept(run));
            }
        }
    }

    /// Starts actions that are due and not running, and cancels those that are running and not due.
    pub(super) fn reconcile(&mut self) {
        let now = self.now();
        self.sync_place(now);
        let StartPhase::Awake(turn) = &self.phase else { return };
        let (due, is_suspending) = (turn.due(now), self.suspending.is_some());
        let mut never_started = Vec::new();
        if is_suspending {
            // A suspension cancels no running action, because the next incarnation continues it. Only end actions that
            // are no longer due are dropped.
            self.running.retain(|action, _| !action.is_end() || due.contains(action));
        } else {
            TaskSpawner::cancel_undue(&mut self.running, &due);
        }
        for action in due {
            // It runs already; only the urgency of an aside may have changed. A surplus grant is returned below.
            if let Some(running) = self.running.get(&action) {
                running.update_urgency(|| Some(turn.aside_urgency(action.acquired_attempt()?.call, now)));
                continue;
            }
            if is_suspending && !action.is_end() {
                // Its start became durable too late to be carried out.
                if let DueAction::CallModel(id) | DueAction::RunTool(id) = action
                    && self.granted.remove(&id).is_some()
                {
                    never_started.push(Input::NeverStarted(id));
                }
                continue;
            }
            let task = match action {
                DueAction::CallModel(id) => {
                    let grant = self.granted.remove(&id);
                    self.tasks.start_model_call(turn, &mut self.view, id, grant)
                }
                DueAction::RunTool(id) | DueAction::EndTool(id)
                    if let Some(mode) = turn.delegation_mode(id.call) =>
                {
                    self.tasks.delegate(id, mode)
                }
                DueAction::AwaitSubagent { call, n, .. } => {
                    let child = turn.subagent(call, n);
                    child.into_iter().for_each(|child| self.parts.notify_inbox(child.session));
                    InFlightTask::Call(CancellationToken::new())
                }
                DueAction::RunTool(id) => match self.granted.remove(&id) {
                    Some(Grant::Permit(permit)) => self.tasks.run_tool(turn, &mut self.tools, id, permit),
                    None if turn.is_of_earlier_incarnation(id.call) => {
                        let cancel = CancellationToken::new();
                        self.tasks.attach_tool(turn, &mut self.tools, id, cancel)
                    }
                    Some(Grant::Lease(_) | Grant::Aside(_) | Grant::Place(_)) | None => {
                        self.tasks.report_lost(id)
                    }
                },
                DueAction::EndTool(id) => self.tasks.end_tool(turn, &mut self.tools, id),
                DueAction::Begin(run) => self.tasks.begin(turn, run),
                DueAction::Verify(call) => self.tasks.verify(turn, call),
                DueAction::SaveMemory(call) => self.tasks.save_memory(turn, call),
                DueAction::Acquire(id) => self.tasks.acquire(turn, id, now),
                DueAction::WakeAt(time) => self.tasks.wake_in(lease_wait::next_poll_ms(time, now.at)),
                DueAction::WakeAtActive(ms) => self.tasks.wake_in(ms.saturating_sub(now.active_ms)),
            };
            self.running.insert(action, task);
        }
        self.granted.clear();
        never_started.into_iter().for_each(|input| self.enqueue(input, None, None));
    }
}
