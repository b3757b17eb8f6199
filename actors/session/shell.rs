//! What happens in a session's handler: inputs in, one append at a time, then what is due. `write.rs` is the way of
//! inputs to disk, `stored.rs` the way back.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
};

use ractor::{ActorRef, RpcReplyPort};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::{
    model::{CallId, Now, SessionId},
    persistence::PersistenceMsg,
    provider::Lease,
    session::{
        Arguments, Caller, Inner, Raising, SessionMsg, Wiring,
        calls::{Begun, Tasks},
        inbox::Listening,
        seek,
        view::EncodedView,
    },
    turn::{DueAction, Input, ReplayedSession, Turn},
};

/// Its state.
pub(crate) struct State {
    pub(super) id: SessionId,
    pub(super) me: ActorRef<SessionMsg>,
    pub(super) wiring: Arc<Wiring>,
    pub(super) life: Life,
    /// When this incarnation began on the process's clock, and how long the session had been alive then.
    pub(super) epoch: (u64, u64),
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) in_flight: Option<InFlight>,
    /// Whether a `GoOn` is on its way.
    pub(super) gathering: bool,
    pub(super) appends: u64,
    /// Leases and permits of calls whose start is on its way to disk.
    pub(super) granted: BTreeMap<(CallId, u32), Grant>,
    pub(super) begun: BTreeMap<DueAction, Begun>,
    pub(super) tasks: Tasks,
    pub(super) view: EncodedView,
    pub(super) listening: Listening,
    /// Who waits until nothing is on its way to disk; meanwhile nothing is started.
    pub(super) suspending: Option<RpcReplyPort<()>>,
}

/// A session before and after its first decision is durable.
pub(super) enum Life {
    Dormant(ReplayedSession, Input),
    Awake(Turn),
    /// Only within a handler, while the one is made the other.
    Waking,
}

pub(super) struct Waiting {
    pub(super) input: Input,
    pub(super) reply: Option<Reply>,
    /// What `Leased` and `Permitted` speak of.
    pub(super) grant: Option<Grant>,
}

pub(super) enum Reply {
    Submit(Caller),
    Stop(RpcReplyPort<()>),
    Steer(RpcReplyPort<bool>),
    /// With whether the question was open.
    Decide(RpcReplyPort<bool>, bool),
    /// With what the draft says of it.
    Raise(RpcReplyPort<Raising>, Raising),
}

pub(super) struct InFlight {
    pub(super) number: u64,
    pub(super) inputs: Vec<Waiting>,
}

/// What a call needs to start.
#[derive(Debug)]
pub(crate) enum Grant {
    Lease(Lease),
    Permit(OwnedSemaphorePermit),
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("id", &self.id).finish_non_exhaustive()
    }
}

impl State {
    /// A session at the beginning of an incarnation.
    pub(super) fn begin(me: ActorRef<SessionMsg>, arguments: Arguments) -> Self {
        let Arguments { id, wiring, dormant, first, tasks, is_rung, waiting } = arguments;
        let mut state = Self {
            id,
            epoch: (wiring.clock.monotonic_ms(), dormant.active_ms()),
            tasks: Tasks::new(tasks, me.clone(), Arc::clone(&wiring), id),
            me,
            wiring,
            life: Life::Dormant(dormant, first),
            waiting: VecDeque::new(),
            in_flight: None,
            gathering: false,
            appends: 0,
            granted: BTreeMap::new(),
            begun: BTreeMap::new(),
            view: EncodedView::default(),
            listening: Listening::default(),
            suspending: None,
        };
        waiting.into_iter().for_each(|message| state.take(message));
        if is_rung {
            state.rung();
        }
        state.go_on();
        state
    }

    /// Puts what a message says behind what waits already.
    pub(super) fn take(&mut self, message: SessionMsg) {
        match message {
            SessionMsg::Submit(input, reply) => self.wait(input, Some(Reply::Submit(reply)), None),
            SessionMsg::Stop(run, reason, reply) => {
                self.hurry();
                self.wait(Input::Stop { run, reason }, Some(Reply::Stop(reply)), None);
            }
            SessionMsg::StopAtRest(run, reason, [stopped, rested]) => {
                self.suspending = Some(rested);
                self.wait(Input::Stop { run: Some(run), reason }, Some(Reply::Stop(stopped)), None);
            }
            SessionMsg::Steer(input, reply) => self.wait(input, Some(Reply::Steer(reply)), None),
            SessionMsg::Decide(input, reply) => self.wait(input, Some(Reply::Decide(reply, false)), None),
            SessionMsg::DecideAtRest(input, reply, rested) => {
                self.suspending = Some(rested);
                self.wait(input, Some(Reply::Decide(reply, false)), None);
            }
            SessionMsg::Raise(input, reply) => self.wait(input, Some(Reply::Raise(reply, Ok(()))), None),
            SessionMsg::RaiseAtRest(input, reply, rested) => {
                self.suspending = Some(rested);
                self.wait(input, Some(Reply::Raise(reply, Ok(()))), None);
            }
            SessionMsg::Inner(Inner::Input(input)) => {
                if matches!(input, Input::TimerFired) {
                    Tasks::forget_timers(&mut self.begun);
                }
                self.wait(input, None, None);
            }
            SessionMsg::Inner(Inner::Leased(input, lease)) => {
                self.wait(input, None, Some(Grant::Lease(lease)));
            }
            SessionMsg::Inner(Inner::Permitted(input, permit)) => {
                self.wait(input, None, Some(Grant::Permit(permit)));
            }
            SessionMsg::Rung => self.rung(),
            SessionMsg::Inner(Inner::Heard(heard)) => self.heard(heard),
            SessionMsg::Suspend(reply) => self.suspending = Some(reply),
            #[cfg(feature = "testkit")]
            SessionMsg::Look(_) => {}
            SessionMsg::Rest(_)
            | SessionMsg::Inner(Inner::Stored(..) | Inner::GoOn | Inner::Rest(_) | Inner::Broken) => {}
        }
    }

    pub(super) fn wait(&mut self, input: Input, reply: Option<Reply>, grant: Option<Grant>) {
        self.waiting.push_back(Waiting { input, reply, grant });
    }

    /// What is on its way to disk goes next: a stop has to wait for it.
    pub(super) fn hurry(&self) {
        if self.in_flight.is_some() && self.wiring.persistence.cast(PersistenceMsg::Hurry(self.id)).is_err() {
            tracing::debug!(session = %self.id, "persistence is gone");
        }
    }

    pub(super) fn now(&self) -> Now {
        let clock = &self.wiring.clock;
        let alive = clock.monotonic_ms().saturating_sub(self.epoch.0);
        Now { at: clock.at(), active_ms: self.epoch.1 + alive }
    }

    /// Goes on; but if only results wait and more may follow, not before the tasks that can run now have run: results
    /// that come together go to disk together.
    pub(super) fn gather(&mut self) {
        let is_end = |waiting: &&Waiting| matches!(waiting.input, Input::ToolEnded { .. });
        let is_call = |effect: &&DueAction| matches!(effect, DueAction::RunTool { .. });
        let ended = self.waiting.iter().filter(is_end).count();
        let more =
            ended > 0 && ended == self.waiting.len() && ended < self.begun.keys().filter(is_call).count();
        if !more {
            self.go_on();
        } else if self.in_flight.is_none() && !self.gathering {
            self.gathering = true;
            self.tasks.gather();
        }
    }

    /// The tasks that could run have run.
    pub(super) fn gathered(&mut self) {
        self.gathering = false;
        self.go_on();
    }

    /// Decides all that waits as one append, unless one is in flight.
    pub(super) fn go_on(&mut self) {
        self.decide();
        if self.in_flight.is_none()
            && self.waiting.is_empty()
            && !self.begun.keys().any(DueAction::is_end)
            && let Some(reply) = self.suspending.take()
        {
            if reply.send(()).is_err() {
                tracing::debug!(session = %self.id, "nobody waits for the end any more");
            }
            self.me.stop(None);
        }
    }

    /// What the share of a subagent's result in its parent's view depends on.
    pub(super) fn shares(&self) -> (Option<u64>, Vec<(CallId, usize)>) {
        match &self.life {
            Life::Awake(turn) => (turn.window_bytes(), turn.subagent_counts()),
            Life::Dormant(..) | Life::Waking => (None, Vec::new()),
        }
    }

    /// Whether all its runs have ended, and nothing is waited for.
    fn is_idle(&self) -> bool {
        let has_work = match &self.life {
            Life::Awake(turn) => turn.has_work(),
            // Whoever opened it wanted nothing of it after all.
            Life::Dormant(dormant, _) => !dormant.is_new(),
            Life::Waking => true,
        };
        !has_work
            && self.waiting.is_empty()
            && self.in_flight.is_none()
            && self.begun.is_empty()
            && self.listening.is_quiet()
    }

    /// Lets the supervisor see whether it is idle.
    pub(super) fn note_idle(&self) {
        let since = self.is_idle().then(|| self.wiring.clock.monotonic_ms());
        self.tasks.tasks.note_idle(since);
    }

    /// Ends behind all that its tasks have said; but not as long as one of them may still say something, such as what a
    /// call of a run that was stopped has cost.
    pub(super) fn prepare_to_rest(&self, stays: RpcReplyPort<()>) {
        if !self.may_rest() {
            self.stay(stays);
        } else if self.me.cast(SessionMsg::Inner(Inner::Rest(stays))).is_err() {
            tracing::debug!(session = %self.id, "it ends already");
        }
    }

    /// Ends if there is nothing to do: all that it knows is on disk.
    pub(super) fn rest(&self, stays: RpcReplyPort<()>) {
        if self.may_rest() { self.me.stop(None) } else { self.stay(stays) }
    }

    fn may_rest(&self) -> bool {
        self.is_idle() && self.tasks.tasks.are_gone()
    }

    fn stay(&self, stays: RpcReplyPort<()>) {
        if stays.send(()).is_err() {
            tracing::debug!(session = %self.id, "nobody waits for it to rest any more");
        }
    }

    /// Starts what is due and not begun, and cancels what is begun and not due.
    pub(super) fn begin_due(&mut self) {
        let now = self.now();
        let Life::Awake(turn) = &self.life else { return };
        let (due, rests) = (turn.due(now), self.suspending.is_some());
        let mut never_begun = Vec::new();
        if rests {
            // What runs goes on in the next incarnation; only what stopped runs have left behind is still ended.
            self.begun.retain(|effect, _| !effect.is_end() || due.contains(effect));
        } else {
            Tasks::cancel_all_but(&mut self.begun, &due);
        }
        for effect in due {
            // A permit that comes for what is begun is one too many, and says nothing of it.
            if self.begun.contains_key(&effect) {
                continue;
            }
            if rests && !effect.is_end() {
                // Its start came to disk too late to be followed.
                if let DueAction::CallModel { call, attempt } | DueAction::RunTool { call, attempt } = effect
                    && self.granted.remove(&(call, attempt)).is_some()
                {
                    never_begun.push(Input::NeverBegun { call, attempt });
                }
                continue;
            }
            let begun = match effect {
                DueAction::CallModel { call, attempt } => match self.granted.remove(&(call, attempt)) {
                    Some(Grant::Lease(lease)) if call.is_summary() => self.tasks.summarise(turn, lease),
                    Some(Grant::Lease(lease)) => self.tasks.ask(turn, &mut self.view, lease),
                    Some(Grant::Permit(_)) | None => {
                        self.tasks.not_made((call, attempt), "there was no lease for it")
                    }
                },
                DueAction::RunTool { call, attempt } | DueAction::EndTool { call, attempt }
                    if let Some(ground) = turn.delegation_mode(call) =>
                {
                    self.tasks.delegated((call, attempt), ground)
                }
                DueAction::AwaitSubagent { call, n, .. } => {
                    let child = turn.subagent(call, n);
                    child.into_iter().for_each(|child| self.wiring.ring(child.session));
                    Begun::Call(CancellationToken::new())
                }
                DueAction::RunTool { call, attempt } => match self.granted.remove(&(call, attempt)) {
                    Some(Grant::Permit(permit)) => self.tasks.run(turn, (call, attempt), permit),
                    None if turn.is_of_earlier_incarnation(call) => {
                        self.tasks.attach(turn, (call, attempt), CancellationToken::new())
                    }
                    Some(Grant::Lease(_)) | None => self.tasks.lost(call, attempt),
                },
                DueAction::EndTool { call, attempt } => {
                    let cancel = CancellationToken::new();
                    cancel.cancel();
                    self.tasks.attach(turn, (call, attempt), cancel)
                }
                DueAction::Acquire { call, attempt } => self.tasks.seek(turn, call, attempt),
                DueAction::WakeAt(time) => self.tasks.wake_in(seek::look_in(time, now.at)),
                DueAction::WakeAtActive(ms) => self.tasks.wake_in(ms.saturating_sub(now.active_ms)),
            };
            self.begun.insert(effect, begun);
        }
        self.granted.clear();
        never_begun.into_iter().for_each(|input| self.wait(input, None, None));
    }
}
