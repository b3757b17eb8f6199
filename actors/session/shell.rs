//! What happens in a session's handler: inputs in, one append at a time, then what is due.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::Arc,
};

use ractor::{ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    model::{Body, CallId, Durable, Event, EventBody, Now, Record, RunId, SessionId, Timestamp},
    persistence::{PersistenceMsg, Stored},
    port::{Append, JournalError, Refusal, Write},
    provider::{Lease, NoLease},
    session::{
        Accepted, Arguments, Inner, NotAccepted, SessionMsg, Wiring,
        calls::{Begun, Tasks},
        view::EncodedView,
    },
    turn::{Decision, Dormant, Draft, Effect, Input, Turn, Want},
};

/// Its state.
pub(crate) struct State {
    id: SessionId,
    me: ActorRef<SessionMsg>,
    wiring: Arc<Wiring>,
    life: Life,
    /// When this incarnation began on the process's clock, and how long the session had been alive then.
    epoch: (u64, u64),
    waiting: VecDeque<Waiting>,
    in_flight: Option<InFlight>,
    /// Whether a `GoOn` is on its way.
    gathering: bool,
    appends: u64,
    /// Leases and permits of calls whose start is on its way to disk.
    granted: BTreeMap<(CallId, u32), Grant>,
    begun: BTreeMap<Effect, Begun>,
    tasks: Tasks,
    view: EncodedView,
    /// Who waits until nothing is on its way to disk; meanwhile nothing is started.
    suspending: Option<RpcReplyPort<()>>,
}

/// A session before and after its first decision is durable.
enum Life {
    Dormant(Dormant, Input),
    Awake(Turn),
    /// Only within a handler, while the one is made the other.
    Waking,
}

struct Waiting {
    input: Input,
    reply: Option<Reply>,
    /// What `Leased` and `Permitted` speak of.
    grant: Option<Grant>,
}

enum Reply {
    Submit(RpcReplyPort<Result<Accepted, NotAccepted>>),
    Stop(RpcReplyPort<()>),
    Steer(RpcReplyPort<bool>),
}

struct InFlight {
    number: u64,
    inputs: Vec<Waiting>,
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
        let Arguments { id, wiring, dormant, first, tasks, waiting } = arguments;
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
            suspending: None,
        };
        waiting.into_iter().for_each(|message| state.take(message));
        state.go_on();
        state
    }

    /// Puts what a message says behind what waits already.
    pub(super) fn take(&mut self, message: SessionMsg) {
        match message {
            SessionMsg::Submit(input, reply) => self.wait(input, Some(Reply::Submit(reply)), None),
            SessionMsg::Stop(run, reason, reply) => {
                self.wait(Input::Stop { run, reason }, Some(Reply::Stop(reply)), None);
            }
            SessionMsg::Steer(input, reply) => self.wait(input, Some(Reply::Steer(reply)), None),
            SessionMsg::Inner(Inner::Input(input)) => {
                if matches!(input, Input::Woke) {
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
            SessionMsg::Suspend(reply) => self.suspending = Some(reply),
            SessionMsg::Inner(Inner::Stored(..) | Inner::GoOn) => {}
        }
    }

    fn wait(&mut self, input: Input, reply: Option<Reply>, grant: Option<Grant>) {
        self.waiting.push_back(Waiting { input, reply, grant });
    }

    fn now(&self) -> Now {
        let clock = &self.wiring.clock;
        let alive = clock.monotonic_ms().saturating_sub(self.epoch.0);
        Now { at: clock.at(), active_ms: self.epoch.1 + alive }
    }

    /// Goes on; but if only results wait and more may follow, not before the tasks that can run now have run: results
    /// that come together go to disk together.
    pub(super) fn gather(&mut self) {
        let is_end = |waiting: &&Waiting| matches!(waiting.input, Input::ToolEnded { .. });
        let is_call = |effect: &&Effect| matches!(effect, Effect::Run { .. });
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
            && let Some(reply) = self.suspending.take()
        {
            if reply.send(()).is_err() {
                tracing::debug!(session = %self.id, "nobody waits for the end any more");
            }
            self.me.stop(None);
        }
    }

    fn decide(&mut self) {
        if self.in_flight.is_some() {
            return;
        }
        let now = self.now();
        let mut draft = match &self.life {
            // A session that nobody wants anything of leaves no trace.
            Life::Dormant(dormant, _) if dormant.is_new() && self.waiting.is_empty() => return,
            Life::Dormant(dormant, first) => dormant.draft(now, first),
            Life::Awake(_) if self.waiting.is_empty() => return,
            Life::Awake(turn) => turn.draft(now),
            Life::Waking => return,
        };
        let inputs = self.take_waiting();
        inputs.iter().for_each(|waiting| draft.feed(&waiting.input));
        if self.suspending.is_none() {
            self.grant(&mut draft);
        }
        // What would not be due any more is cancelled at once: cancelling does not need to be durable.
        Tasks::cancel_all_but(&mut self.begun, &draft.due());
        let decision = draft.finish();
        if decision.records.is_empty() {
            self.answer(inputs, now.at);
            self.begin_due();
            return;
        }
        self.append(decision, inputs);
    }

    /// What is to be decided together: all that waits, up to a second idempotency key (an append carries one).
    fn take_waiting(&mut self) -> Vec<Waiting> {
        let keyed = |waiting: &Waiting| matches!(waiting.input, Input::Submitted { key: Some(_), .. });
        let second = self.waiting.iter().enumerate().filter(|(_, waiting)| keyed(waiting)).nth(1);
        let count = second.map_or(self.waiting.len(), |(index, _)| index);
        let mut inputs: Vec<Waiting> = self.waiting.drain(..count).collect();
        for waiting in &mut inputs {
            if let Input::Leased { call, attempt, .. } | Input::Permitted { call, attempt } = waiting.input {
                self.granted.extend(waiting.grant.take().map(|grant| ((call, attempt), grant)));
            }
        }
        inputs
    }

    /// Takes what is free of what the draft wants, so that starts go to disk together with what made them due.
    fn grant(&mut self, draft: &mut Draft) {
        for want in draft.wants() {
            match want {
                Want::Lease { call, attempt } => {
                    let Some(chain) = draft.chain().map(<[_]>::to_vec) else { continue };
                    match self.wiring.leases.try_lease(&chain) {
                        Ok(lease) => {
                            draft.feed(&Input::Leased { call, attempt, model: lease.model.clone() });
                            self.granted.insert((call, attempt), Grant::Lease(lease));
                        }
                        Err(NoLease::Never(failure)) => {
                            draft.feed(&Input::NoLease { call, attempt, failure });
                        }
                        Err(NoLease::Busy(_)) => {}
                    }
                }
                Want::Permit { call, attempt } => {
                    if let Ok(permit) = Arc::clone(&self.wiring.tools.permits).try_acquire_owned() {
                        draft.feed(&Input::Permitted { call, attempt });
                        self.granted.insert((call, attempt), Grant::Permit(permit));
                    }
                }
            }
        }
    }

    fn append(&mut self, decision: Decision, inputs: Vec<Waiting>) {
        let last = match &self.life {
            Life::Awake(turn) => turn.last(),
            Life::Dormant(dormant, _) => dormant.last(),
            Life::Waking => return,
        };
        let fence = decision.fence;
        let mut append = Append::new(self.id, fence, last + 1, decision.records);
        (append.ledger, append.index, append.key) = (decision.ledger, decision.index, decision.key);
        self.appends += 1;
        let (number, me) = (self.appends, self.me.clone());
        self.in_flight = Some(InFlight { number, inputs });
        let reply = Box::new(move |stored| {
            if me.cast(SessionMsg::Inner(Inner::Stored(number, stored))).is_err() {
                tracing::debug!("an append was stored after its session had gone");
            }
        });
        let write = PersistenceMsg::Write(Write::Append(Box::new(append)), reply);
        if self.wiring.persistence.cast(write).is_err() {
            tracing::warn!(session = %self.id, "persistence is gone");
        }
    }

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
                let input = Input::Refused(refusal);
                self.waiting.push_front(Waiting { input, reply: None, grant: None });
            }
            Stored::Refused(Refusal::Duplicate(run)) => self.reject(inputs, &NotAccepted::Duplicate(run)),
            Stored::Refused(Refusal::KeyTaken(other)) => {
                self.reject(inputs, &NotAccepted::KeyTaken(other));
                self.me.stop(Some("another session has its key".into()));
            }
            Stored::Refused(
                refusal @ (Refusal::Fenced(_) | Refusal::WrongSeq { .. } | Refusal::Malformed(_)),
            ) => {
                return Err(Box::new(refusal));
            }
            Stored::Opened(_) | Stored::Delivered => {}
        }
        Ok(())
    }

    fn durable(&mut self, records: &[Durable<Arc<Record>>], inputs: Vec<Waiting>) {
        let first = match std::mem::replace(&mut self.life, Life::Waking) {
            Life::Dormant(dormant, _) => {
                let first = dormant.last() + 1;
                self.life = Life::Awake(dormant.awake(records));
                first
            }
            Life::Awake(mut turn) => {
                let first = turn.last() + 1;
                records.iter().for_each(|record| turn.apply(record));
                self.life = Life::Awake(turn);
                first
            }
            Life::Waking => return,
        };
        self.publish(first, records);
        let at = records.first().map_or_else(Timestamp::default, |record| record.at);
        self.answer(inputs, at);
        self.begin_due();
    }

    fn publish(&self, first: u64, records: &[Durable<Arc<Record>>]) {
        let hub = &self.wiring.hub;
        for (record, seq) in records.iter().zip(first..) {
            if hub.is_watched() {
                let body = EventBody::Recorded { seq, record: record.clone() };
                hub.publish(&Event { session: self.id, body });
            }
            if let Body::RunEnded(ended) = &record.body {
                hub.ended(ended.run);
            }
        }
    }

    fn answer(&self, inputs: Vec<Waiting>, at: Timestamp) {
        for Waiting { input, reply, grant: _ } in inputs {
            let gone = match (input, reply) {
                (Input::Submitted { run, .. }, Some(Reply::Submit(reply))) => {
                    reply.send(Ok(Accepted { run, session: self.id, at })).is_err()
                }
                (_, Some(Reply::Stop(reply))) => reply.send(()).is_err(),
                (Input::Steer { next, .. }, Some(Reply::Steer(reply))) => {
                    reply.send(self.has_heard(next)).is_err()
                }
                (_, Some(Reply::Submit(_) | Reply::Steer(_)) | None) => false,
            };
            if gone {
                tracing::debug!(session = %self.id, "nobody waits for the answer any more");
            }
        }
    }

    fn has_heard(&self, next: RunId) -> bool {
        match &self.life {
            Life::Awake(turn) => turn.has_heard(next),
            Life::Dormant(..) | Life::Waking => false,
        }
    }

    /// Answers submissions that were refused; whatever else was decided with them is decided again without them.
    fn reject(&mut self, inputs: Vec<Waiting>, why: &NotAccepted) {
        let mut rest = Vec::new();
        for waiting in inputs {
            let taken = matches!(why, NotAccepted::KeyTaken(_));
            let refused = matches!(&waiting.input, Input::Submitted { key, .. } if taken || key.is_some());
            match waiting.reply {
                Some(Reply::Submit(reply)) if refused => {
                    if reply.send(Err(why.clone())).is_err() {
                        tracing::debug!(session = %self.id, "nobody waits for the answer any more");
                    }
                }
                reply => rest.push(Waiting { reply, ..waiting }),
            }
        }
        self.put_back(rest);
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

    /// Starts what is due and not begun, and cancels what is begun and not due.
    fn begin_due(&mut self) {
        let now = self.now();
        let Life::Awake(turn) = &self.life else { return };
        if self.suspending.is_some() {
            return;
        }
        let due = turn.due(now);
        Tasks::cancel_all_but(&mut self.begun, &due);
        for effect in due {
            if self.begun.contains_key(&effect) {
                continue;
            }
            let begun = match effect {
                Effect::Ask { call, attempt } => match self.granted.remove(&(call, attempt)) {
                    Some(Grant::Lease(lease)) => self.tasks.ask(turn, &mut self.view, lease),
                    Some(Grant::Permit(_)) | None => self.tasks.lost(call, attempt),
                },
                Effect::Run { call, attempt } => match self.granted.remove(&(call, attempt)) {
                    Some(Grant::Permit(permit)) => self.tasks.run(turn, (call, attempt), permit),
                    Some(Grant::Lease(_)) | None => self.tasks.lost(call, attempt),
                },
                Effect::Seek { call, attempt } => self.tasks.seek(turn, call, attempt),
                Effect::WakeAt(time) => self.tasks.wake_in(time.ms_since(now.at)),
                Effect::WakeAtActive(ms) => self.tasks.wake_in(ms.saturating_sub(now.active_ms)),
            };
            self.begun.insert(effect, begun);
        }
        self.granted.clear();
    }
}
