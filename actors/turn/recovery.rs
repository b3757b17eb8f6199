//! From a journal back to a turn. A replayed session is a [`ReplayedSession`], which has no `due`: nothing is done before
//! `Revived` is decided and durable. Then the same `due` speaks as ever.

use std::sync::Arc;

use crate::{
    model::{
        Body, BootId, CallEnd, CallId, CallStatus, Durable, Failure, FailureClass, Incarnation, Record,
        RunId, SessionId, SessionRevived, SessionTime,
    },
    turn::{
        FailoverOptions, Input, Turn,
        active_run::{ActiveToolCall, CurrentRun, LoopState, ToolCallState},
        decision::DecisionBuilder,
        model_call::{AttemptState, ModelCallState},
    },
};

/// The step of a run at which a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CrashPoint {
    /// The run under way.
    pub(crate) run: RunId,
    iteration: u32,
    is_running_tools: bool,
}

/// A replayed session.
#[derive(Debug)]
pub(crate) struct ReplayedSession(Turn);

impl ReplayedSession {
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
    pub(crate) const fn last_seq(&self) -> u64 {
        self.0.last
    }

    /// How long it has been alive.
    pub(crate) const fn active_ms(&self) -> u64 {
        self.0.active_ms
    }

    /// Where it stands; `None` if no run is under way.
    pub(crate) fn crash_point(&self) -> Option<CrashPoint> {
        let CurrentRun::Running(run) = &self.0.current else { return None };
        let acting = match &run.state {
            LoopState::CallingModel(_) => false,
            LoopState::RunningTools(_) | LoopState::Answered(_) => true,
        };
        Some(CrashPoint { run: run.id, iteration: run.iteration, is_running_tools: acting })
    }

    /// Decides its first input, `Opened` or `Revived`, and whatever came in meanwhile.
    pub(crate) fn start_decision(&self, now: SessionTime, first: &Input) -> DecisionBuilder {
        debug_assert!(matches!(first, Input::Opened { .. } | Input::Revived { .. }));
        let mut draft = self.0.start_decision(now);
        draft.apply_input(first);
        draft
    }

    /// Wakes it with the records of its first decision, which are durable now.
    pub(crate) fn into_turn(mut self, records: &[Durable<Arc<Record>>]) -> Turn {
        records.iter().for_each(|record| self.0.apply(record));
        self.0
    }
}

impl DecisionBuilder {
    /// Takes the session up again: each open call gets its next attempt; but of one that must not be repeated silently it
    /// has to be found out what became of it. A question that has expired meanwhile is answered with this, so that nobody
    /// finds the run still parked.
    pub(super) fn revive(&mut self, incarnation: Incarnation, boot: &BootId) {
        self.record(Body::SessionRevived(SessionRevived { incarnation, boot: boot.clone() }));
        if let Some(started) = self.run().and_then(|run| run.compaction.call.started()) {
            let (call, attempt) = (started.call, started.attempt);
            let failure =
                Failure::new(FailureClass::Interrupted, "the process ended while the call was under way");
            self.on_summary_failure((call, attempt), &failure);
        }
        let Some(run) = self.run() else { return };
        if let LoopState::CallingModel(ModelCallState { state: AttemptState::Started(started), .. }) =
            &run.state
        {
            let (call, attempt) = (started.call, started.attempt);
            let failure =
                Failure::new(FailureClass::Interrupted, "the process ended while the call was under way");
            return self.on_model_failure((call, attempt), &failure, &FailoverOptions::default());
        }
        let open: Vec<(CallId, ToolCallState)> =
            run.calls().iter().map(|call| (call.id, call.state.clone())).collect();
        for (call, state) in open {
            match state {
                ToolCallState::Started(..) if self.call(call).is_some_and(ActiveToolCall::is_once) => {}
                ToolCallState::Started(started, _) => self.on_interrupted(call, started.attempt),
                ToolCallState::Proposed => {
                    let end = CallEnd::error(
                        CallStatus::NotStarted,
                        "not started",
                        None,
                        "ask again if it is needed",
                    );
                    self.end_call(call, 0, end);
                }
                ToolCallState::Admitted(_)
                | ToolCallState::Parked(_)
                | ToolCallState::SameAs(_)
                | ToolCallState::Ended(_) => {}
            }
        }
        self.expire_approvals();
        self.end_if_stopped();
    }
}
