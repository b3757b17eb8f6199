//! A decision in the making: inputs go in, records come out, and each is folded into a private copy of the state, so
//! that the next input meets what the one before has decided.

use std::sync::Arc;

use crate::{
    model::{
        Body, CallId, CallStarted, Dimension, Incarnation, Ledger, NoAllowance, Now, Record, RunAccepted,
        RunId, RunRow, SessionId, SessionOpened,
    },
    mutation::{Mutation, planted},
    policy::Candidate,
    port::{Founded, InboxItem, Index},
    turn::{
        Effect, Input, Turn, Want,
        grace::Refused,
        run::{Call, CallState, Phase, Run, Step},
    },
};

/// What was decided: everything that belongs into one append.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    /// Who writes them.
    pub(crate) fence: Incarnation,
    /// The records.
    pub(crate) records: Vec<Arc<Record>>,
    /// What they do to accounts.
    pub(crate) ledger: Ledger,
    /// The index rows they write.
    pub(crate) index: Vec<Index>,
    /// The idempotency key they bring.
    pub(crate) key: Option<(Arc<str>, RunId)>,
    /// The rows of the inbox that they take in.
    pub(crate) take: Vec<u64>,
    /// What others find in their inboxes.
    pub(crate) send: Vec<(SessionId, InboxItem)>,
    /// The sessions that begin with them.
    pub(crate) found: Vec<Founded>,
}

impl Decision {
    /// Whether there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.take.is_empty()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(super) turn: Turn,
    pub(super) now: Now,
    pub(super) decision: Decision,
    /// What did not fit when this was decided before.
    pub(super) refused: Option<Refused>,
    /// The row of the run whose terminal record is being written, as it was before.
    pub(super) before_end: Option<RunRow>,
}

impl Draft {
    pub(super) fn new(turn: Turn, now: Now) -> Self {
        Self { turn, now, decision: Decision::default(), refused: None, before_end: None }
    }

    /// Decides what one more input means.
    pub(crate) fn feed(&mut self, input: &Input) {
        if self.heard_of_summary(input) {
            return self.compress();
        }
        match input {
            Input::Opened { key, prompt, incarnation, boot } => {
                self.push(Body::SessionOpened(SessionOpened {
                    key: Arc::clone(key),
                    prompt: Arc::clone(prompt),
                    incarnation: *incarnation,
                    boot: boot.clone(),
                }));
            }
            Input::Revived { incarnation, boot } => self.revive(*incarnation, boot),
            // Said again, because the session died before it could answer.
            Input::Submitted { run, .. } if self.turn.accepted.contains(run) => {}
            Input::Submitted { run, input, images, history, spec, key } => {
                if let Some(key) = key {
                    self.decision.key = Some((Arc::clone(key), *run));
                }
                self.push(Body::RunAccepted(Box::new(RunAccepted {
                    run: *run,
                    input: Arc::clone(input),
                    images: Arc::clone(images),
                    history: Arc::clone(history),
                    spec: Arc::clone(spec),
                    parent: None,
                })));
            }
            Input::Leased { call, attempt, model } => self.ask(*call, *attempt, model),
            Input::NoLease { call, attempt, skipped } => self.no_lease((*call, *attempt), skipped),
            Input::Permitted { call, attempt } => self.start(*call, *attempt),
            Input::Answered { started, answer, plans } => self.answered(started, answer, plans),
            Input::ModelFailed { call, attempt, failure, outlook } => {
                self.model_failed((*call, *attempt), failure, outlook);
            }
            Input::ToolEnded { call, attempt, end } => {
                if self.is_started(*call, *attempt) {
                    self.end_call(*call, *attempt, end.clone());
                }
            }
            Input::Lost { call, attempt } if call.asks_model() => self.asking_lost((*call, *attempt)),
            Input::Lost { call, attempt } => self.tool_lost(*call, *attempt),
            Input::NeverBegun { call, attempt } if call.asks_model() => self.never_asked((*call, *attempt)),
            Input::NeverBegun { call, attempt } => self.never_begun(*call, *attempt),
            Input::Decided { call, verdict } => self.decided(*call, *verdict),
            Input::Stop { run, reason } => self.stop(*run, *reason),
            Input::Steer { run, text, next } => self.steer(*run, text, *next),
            Input::Raise { run, by } => self.raise(*run, by),
            Input::ChildEnded(ended) => self.hear_end(ended),
            Input::FromInbox { row, says } => {
                self.decision.take.push(*row);
                self.feed(says);
            }
            Input::Nothing => {}
            Input::Woke => self.check_time(),
            Input::Refused(refusal) => self.refuse(refusal),
        }
        self.keep_todo();
        self.delegate(input);
        self.compress();
    }

    fn refuse(&mut self, refusal: &NoAllowance) {
        let run = self.run().map(|run| run.id);
        self.refused = Some(Refused { refusal: refusal.clone(), run });
    }

    /// Whether this is a submission with a history for a session that has one of its own.
    pub(crate) fn refuses(&self, input: &Input) -> bool {
        let Input::Submitted { run, history, .. } = input else { return false };
        !history.is_empty() && !self.turn.accepted.is_empty() && !self.turn.accepted.contains(run)
    }

    /// What would let it go on at once.
    pub(crate) fn wants(&self) -> Vec<Want> {
        if self.refused.is_some() {
            return Vec::new();
        }
        let due = self.turn.due(self.now);
        let wants = due.iter().filter_map(Effect::sought).filter_map(|(call, attempt)| {
            if call.asks_model() {
                Some(Want::Lease { call, attempt })
            } else if self.call(call).is_some_and(Call::delegates) {
                None
            } else {
                Some(Want::Permit { call, attempt })
            }
        });
        wants.collect()
    }

    /// Which attempts would be in flight if this became durable.
    pub(crate) fn due(&self) -> Vec<Effect> {
        self.turn.due(self.now)
    }

    /// All that was decided.
    pub(crate) fn finish(mut self) -> Decision {
        let ends = self.refused_dimension().is_some() && !self.has_raised();
        if let Some(refused) = self.refused.take() {
            // What was heard meanwhile may have let the view change.
            self.compress();
            if ends {
                self.end_for_want_of(&refused);
            }
        }
        self.decision.fence = self.turn.incarnation;
        self.decision
    }

    /// Writes a record into the draft.
    pub(super) fn push(&mut self, body: Body) {
        self.push_measured(body, |_, _| {});
    }

    /// Writes a record that says how large the state is behind it: no fold looks at what `measure` changes.
    pub(super) fn push_measured(&mut self, body: Body, measure: impl FnOnce(&Turn, &mut Body)) {
        if let Body::RunEnded(ended) = &body {
            self.before_end = self.row_of(ended.run);
            self.list_news(ended.run);
        }
        let mut record = Record { at: self.now.at, active_ms: self.now.active_ms, body };
        self.account(&record.body);
        let was_parked = self.run().is_some_and(Run::is_parked);
        self.turn.fold(&record);
        measure(&self.turn, &mut record.body);
        self.list(&record.body);
        if was_parked != self.run().is_some_and(Run::is_parked) {
            self.list_running();
        }
        if !(planted(Mutation::NoEnd) && matches!(record.body, Body::RunEnded(_))) {
            self.decision.records.push(Arc::new(record));
        }
    }

    pub(super) const fn run(&self) -> Option<&Run> {
        match &self.turn.phase {
            Phase::Running(run) => Some(run),
            Phase::Idle => None,
        }
    }

    pub(super) fn call(&self, id: CallId) -> Option<&Call> {
        self.run()?.calls().iter().find(|call| call.id == id)
    }

    /// The arguments of a call as the model wrote them.
    pub(super) fn arguments(&self, id: CallId) -> &str {
        let Some(Step::Acting(acting)) = self.run().map(|run| &run.step) else { return "" };
        let asked = usize::try_from(id.n).ok().and_then(|n| acting.answer.calls.get(n.checked_sub(1)?));
        asked.map_or("", |call| call.arguments.as_str())
    }

    fn is_started(&self, call: CallId, attempt: u32) -> bool {
        self.call(call).is_some_and(
            |call| matches!(&call.state, CallState::Started(started, _) if started.attempt == attempt),
        )
    }

    /// The models that this call may still ask.
    pub(crate) fn candidates_of(&self, call: CallId) -> Option<Vec<Candidate>> {
        self.turn.candidates_of(call)
    }

    /// Whether the run under way may start anything.
    pub(super) fn may_start(&self) -> bool {
        self.refused.is_none() && self.run().is_some_and(|run| run.stopping.is_none())
    }

    /// In which dimension a reservation was refused that the run cannot go on without. Of `children` its model is told.
    pub(super) fn refused_dimension(&self) -> Option<Dimension> {
        let refused = self.refused.as_ref().map(|refused| refused.refusal.dimension);
        refused.filter(|dimension| *dimension != Dimension::Children)
    }

    fn start(&mut self, call: CallId, attempt: u32) {
        let waits =
            |call: &Call| matches!(call.state, CallState::Admitted(n) if n == attempt) && !call.delegates();
        let admitted = self.may_start() && self.call(call).is_some_and(waits);
        if admitted {
            let (incarnation, boot) = (self.turn.incarnation, Arc::clone(&self.turn.boot));
            self.push(Body::CallStarted(CallStarted {
                call,
                attempt,
                incarnation,
                boot,
                children: Arc::default(),
            }));
        }
    }
}
