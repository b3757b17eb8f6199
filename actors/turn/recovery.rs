//! From a journal back to a turn. A replayed session is a [`Dormant`], which has no `due`: nothing is done before
//! `Revived` is decided and durable. Then the same `due` speaks as ever.

use std::sync::Arc;

use crate::{
    model::{
        Body, BootId, CallEnd, CallId, CallStatus, Durable, Failure, FailureClass, Incarnation, Now, Record,
        RunId, SessionId, SessionRevived,
    },
    turn::{
        Input, Outlook, Turn,
        asking::{Asked, Asking},
        draft::Draft,
        run::{Call, CallState, Phase, Step},
    },
};

/// The step of a run at which a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The run under way.
    pub(crate) run: RunId,
    iteration: u32,
    acting: bool,
}

/// A replayed session.
#[derive(Debug)]
pub(crate) struct Dormant(Turn);

impl Dormant {
    /// A session of which nothing has been read yet.
    pub(crate) fn empty(session: SessionId) -> Self {
        Self(Turn::empty(session))
    }

    /// Folds the next record in.
    pub(crate) fn fold(&mut self, record: &Durable<Arc<Record>>) {
        self.0.apply(record);
    }

    /// Whether it has no record at all.
    pub(crate) const fn is_new(&self) -> bool {
        self.0.last == 0
    }

    /// The last record's sequence.
    pub(crate) const fn last(&self) -> u64 {
        self.0.last
    }

    /// How long it has been alive.
    pub(crate) const fn active_ms(&self) -> u64 {
        self.0.active_ms
    }

    /// Where it stands; `None` if no run is under way.
    pub(crate) fn standing(&self) -> Option<Standing> {
        let Phase::Running(run) = &self.0.phase else { return None };
        let acting = match &run.step {
            Step::Asking(_) => false,
            Step::Acting(_) | Step::Said(_) => true,
        };
        Some(Standing { run: run.id, iteration: run.iteration, acting })
    }

    /// Decides its first input, `Opened` or `Revived`, and whatever came in meanwhile.
    pub(crate) fn draft(&self, now: Now, first: &Input) -> Draft {
        debug_assert!(matches!(first, Input::Opened { .. } | Input::Revived { .. }));
        let mut draft = self.0.draft(now);
        draft.feed(first);
        draft
    }

    /// Wakes it with the records of its first decision, which are durable now.
    pub(crate) fn awake(mut self, records: &[Durable<Arc<Record>>]) -> Turn {
        records.iter().for_each(|record| self.0.apply(record));
        self.0
    }
}

impl Draft {
    /// Takes the session up again: each open call gets its next attempt; but of one that must not be repeated silently it
    /// has to be found out what became of it. A question that has expired meanwhile is answered with this, so that nobody
    /// finds the run still parked.
    pub(super) fn revive(&mut self, incarnation: Incarnation, boot: &BootId) {
        self.push(Body::SessionRevived(SessionRevived { incarnation, boot: boot.clone() }));
        if let Some(started) = self.run().and_then(|run| run.compacting.asking.started()) {
            let (call, attempt) = (started.call, started.attempt);
            let failure =
                Failure::new(FailureClass::Interrupted, "the process ended while the call was under way");
            self.summary_failed((call, attempt), &failure);
        }
        let Some(run) = self.run() else { return };
        if let Step::Asking(Asking { state: Asked::Started(started), .. }) = &run.step {
            let (call, attempt) = (started.call, started.attempt);
            let failure =
                Failure::new(FailureClass::Interrupted, "the process ended while the call was under way");
            return self.model_failed((call, attempt), &failure, &Outlook::default());
        }
        let open: Vec<(CallId, CallState)> =
            run.calls().iter().map(|call| (call.id, call.state.clone())).collect();
        for (call, state) in open {
            match state {
                CallState::Started(..) if self.call(call).is_some_and(Call::is_once) => {}
                CallState::Started(started, _) => self.interrupted(call, started.attempt),
                CallState::Proposed => {
                    let end = CallEnd::error(
                        CallStatus::NotStarted,
                        "not started",
                        None,
                        "ask again if it is needed",
                    );
                    self.end_call(call, 0, end);
                }
                CallState::Admitted(_) | CallState::Parked(_) | CallState::Same(_) | CallState::Ended(_) => {}
            }
        }
        self.give_up_waiting();
        self.end_if_stopped();
    }
}
