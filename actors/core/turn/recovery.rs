//! Recovery of a session from its journal: its replay, and the decision that revives it. A [`ReplayedSession`] has no
//! `due`: no action starts before `Revived` is decided and durable. From then on the same `due` applies as in normal
//! operation. Also the step at which crashes of a session are counted together ([`CrashPoint`]).

use std::sync::Arc;

use crate::{
    model::{
        BeginRules, Body, CallEnd, CallId, Durable, Failure, FailureClass, Record, RunId, SessionId,
        SessionRevived, SessionTime, StoreLimits,
    },
    turn::{
        FailoverOptions, Input, Turn,
        decision::DecisionBuilder,
        tool_calls::{ActiveToolCall, ToolCallState},
    },
};

/// The position of a run in its loop. Crashes of the session at the same position are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashPoint {
    /// The run under way.
    pub run: RunId,
    iteration: u32,
    is_running_tools: bool,
}

/// A session replayed from its journal, not yet revived.
#[derive(Debug)]
pub struct ReplayedSession(Turn);

impl ReplayedSession {
    /// A session of which no record was read.
    pub fn empty(session: SessionId) -> Self {
        Self(Turn::empty(session))
    }

    /// Adds the next record of the journal.
    pub fn fold(&mut self, record: &Durable<Arc<Record>>) {
        self.0.apply(record);
    }

    /// Whether the session has no record.
    pub const fn is_new(&self) -> bool {
        self.0.last == 0
    }

    /// Sequence number of the last record.
    pub const fn last_seq(&self) -> u64 {
        self.0.last
    }

    /// Active time of the session, in milliseconds.
    pub const fn active_ms(&self) -> u64 {
        self.0.active_ms
    }

    /// The position of the run under way, if any.
    pub fn crash_point(&self) -> Option<CrashPoint> {
        let run = self.0.run()?;
        let is_running_tools = run.model_call_state().is_none();
        Some(CrashPoint { run: run.id, iteration: run.iteration, is_running_tools })
    }

    /// See [`Turn::set_store_limits`].
    pub const fn set_store_limits(&mut self, limits: StoreLimits) {
        self.0.set_store_limits(limits);
    }

    /// See [`Turn::set_begin_rules`].
    pub const fn set_begin_rules(&mut self, rules: BeginRules) {
        self.0.set_begin_rules(rules);
    }

    /// Starts the first decision with `first`, which is `Opened` or `Revived`. Further inputs may follow.
    pub fn start_decision(&self, now: SessionTime, first: &Input) -> DecisionBuilder {
        debug_assert!(matches!(first, Input::Opened(_) | Input::Revived(_)));
        let mut draft = self.0.start_decision(now);
        draft.apply_input(first);
        draft
    }

    /// Applies the durable records of the first decision and returns the live state.
    pub fn into_turn(mut self, records: &[Durable<Arc<Record>>]) -> Turn {
        records.iter().for_each(|record| self.0.apply(record));
        self.0
    }
}

impl DecisionBuilder {
    /// Revives the session. An open model call or aside fails as interrupted. Each open tool call that may be
    /// repeated gets its next attempt; a started `once` call stays started until its tool reports the outcome. Expired
    /// approval requests are answered here, so that the run does not appear parked any more.
    pub(super) fn revive(&mut self, revived: &SessionRevived) {
        self.record(Body::SessionRevived(revived.clone()));
        let failure =
            Failure::new(FailureClass::Interrupted, "the process ended while the call was under way");
        if let Some(started) = self.run().and_then(|run| run.compaction.call.started()) {
            self.on_summary_failure(started.id(), &failure);
        }
        if let Some(started) = self.run().and_then(|run| run.compaction.flush.call.started()) {
            self.on_flush_failure(started.id(), &failure);
        }
        if let Some(started) = self.run().and_then(|run| run.vision.started()) {
            self.on_vision_failure(started.id(), &failure);
        }
        if let Some((started, _)) = self.turn.title.started() {
            self.on_title_failure(started.id(), &failure);
        }
        let Some(run) = self.run() else { return };
        if let Some(started) = run.model_started() {
            return self.on_model_failure(started.id(), &failure, &FailoverOptions::default());
        }
        let calls: Vec<(CallId, ToolCallState)> =
            run.tool_calls().iter().map(|call| (call.id, call.state.clone())).collect();
        for (call, state) in calls {
            match state {
                ToolCallState::Started(..) if self.call(call).is_some_and(ActiveToolCall::is_once) => {}
                ToolCallState::Started(started, _) => self.on_interrupted(call.attempt(started.attempt)),
                ToolCallState::Proposed => {
                    self.end_call(call.attempt(0), CallEnd::not_started("ask again if it is needed"));
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
