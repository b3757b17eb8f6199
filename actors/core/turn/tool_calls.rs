//! State of the tool calls of the present answer: what records change in it, and which calls are due. `answer.rs`
//! admits, `decision.rs` starts and `ending.rs` ends the calls. When all have their results, `fold.rs` moves the step
//! to the history.

use std::sync::Arc;

use crate::{
    model::{
        Access, ApprovalDecision, ApprovalRequested, AssistantMessage, Attempt, Body, CallEnd, CallId,
        CallStarted, EffectClass, Hash, RetryReason, SessionTime, Timestamp,
    },
    policy::{delegation::DELEGATE_TASK, portable_name},
    turn::{history::CallResult, input::DueAction},
};

/// An answer, and the state of each of its tool calls in the answer's order.
#[derive(Debug, Clone)]
pub(super) struct ActiveStep {
    pub(super) answer: Arc<AssistantMessage>,
    pub(super) calls: Vec<ActiveToolCall>,
}

#[derive(Debug, Clone)]
pub(super) struct ActiveToolCall {
    pub(super) id: CallId,
    /// The registered name; until admission the name that the model wrote.
    pub(super) tool: Arc<str>,
    pub(super) effect: EffectClass,
    /// What the call touches, known from its admission on.
    pub(super) access: Access,
    /// Whether the tool can find out the fate of the call after a crash of the process.
    pub(super) detached: bool,
    /// Whether the call waits for something, so that its repetition is no loop.
    pub(super) polls: bool,
    /// The hash of the arguments; `None` without admission.
    pub(super) arguments: Option<Hash>,
    /// The arguments that a hook has put in place of the model's.
    pub(super) replaced_arguments: Option<Arc<str>>,
    /// What a person has said about the first start of the call.
    pub(super) approval: StartApproval,
    /// Whether a lost attempt may have had an effect.
    pub(super) may_have_run: bool,
    /// Number of attempts that were lost for a reason that may lie in the call itself.
    pub(super) lost_attempts: Attempt,
    pub(super) state: ToolCallState,
}

#[derive(Debug, Clone)]
pub(super) enum ToolCallState {
    /// Proposed by the model, not yet admitted.
    Proposed,
    /// Needs a permit for this attempt.
    Admitted(Attempt),
    /// Started with this record, at this time.
    Started(Arc<CallStarted>, Timestamp),
    /// A person is asked whether it may start, or be repeated.
    Parked(Arc<ParkedCall>),
    /// Equal to the call of this number, and gets its result.
    SameAs(u32),
    /// Has its result.
    Ended(Arc<CallEnd>),
}

/// What a person has said about the first start of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartApproval {
    /// No person was asked about this call.
    NotRequested,
    /// A person was asked, and has not denied it.
    Requested,
    /// A person has denied it, or has not answered in time.
    Denied,
}

/// A call about which a person is asked.
#[derive(Debug)]
pub(super) struct ParkedCall {
    pub(super) request: ApprovalRequested,
    /// Start of the attempt that is in doubt; `None` if the call has not started.
    pub(super) started_at: Option<Timestamp>,
    /// Time of the approval request.
    pub(super) requested_at: Timestamp,
}

impl ActiveToolCall {
    /// Whether the call must not be repeated silently.
    pub(super) fn is_once(&self) -> bool {
        self.effect == EffectClass::Once
    }

    /// The record of the attempt that is under way.
    pub(super) const fn started(&self) -> Option<&Arc<CallStarted>> {
        if let ToolCallState::Started(started, _) = &self.state { Some(started) } else { None }
    }

    /// Whether no attempt is under way, but one may start.
    pub(super) const fn may_start(&self) -> bool {
        matches!(self.state, ToolCallState::Proposed | ToolCallState::Admitted(_))
    }

    /// Whether the call is admitted and its next attempt has not started. It waits for earlier calls, for a permit, or
    /// for the start of its subagents.
    pub(super) const fn is_admitted(&self) -> bool {
        matches!(self.state, ToolCallState::Admitted(_))
    }

    /// Whether the call has its result, or gets that of an equal call.
    pub(super) const fn is_settled(&self) -> bool {
        matches!(self.state, ToolCallState::Ended(_) | ToolCallState::SameAs(_))
    }

    /// Whether the call delegates tasks to subagents.
    pub(super) fn delegates(&self) -> bool {
        *self.tool == *DELEGATE_TASK
    }

    /// The action that should be in flight for this call; `earlier` are the calls before it in the answer.
    fn due(&self, earlier: &[Self], lets_calls_end: bool) -> Option<DueAction> {
        match &self.state {
            ToolCallState::Admitted(attempt) if lets_calls_end && !self.is_blocked_by(earlier) => {
                Some(DueAction::Acquire(self.id.attempt(*attempt)))
            }
            ToolCallState::Started(started, _) if lets_calls_end => Some(DueAction::RunTool(started.id())),
            ToolCallState::Started(started, _) => Some(DueAction::EndTool(started.id())),
            ToolCallState::Parked(parked) => Some(DueAction::WakeAt(parked.request.expires_at)),
            ToolCallState::Admitted(_)
            | ToolCallState::Proposed
            | ToolCallState::SameAs(_)
            | ToolCallState::Ended(_) => None,
        }
    }

    /// Whether an open earlier call of the same answer conflicts with this one.
    fn is_blocked_by(&self, earlier: &[Self]) -> bool {
        earlier.iter().any(|call| !call.is_settled() && call.access.conflicts(&self.access))
    }
}

impl ActiveStep {
    /// The step of an answer to this model call; none of its tool calls is admitted.
    pub(super) fn new(model_call: CallId, answer: Arc<AssistantMessage>) -> Self {
        let calls = answer.calls.iter().zip(1..).map(|(call, n)| ActiveToolCall {
            id: CallId { n, ..model_call },
            tool: call.name.as_str().into(),
            effect: EffectClass::Once,
            access: Access::default(),
            detached: false,
            polls: false,
            arguments: None,
            replaced_arguments: None,
            approval: StartApproval::NotRequested,
            may_have_run: false,
            lost_attempts: 0,
            state: ToolCallState::Proposed,
        });
        let calls = calls.collect();
        Self { answer, calls }
    }

    /// Folds a record about one of the calls. A call that has ended does not change any more.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds are about no tool call")]
    pub(super) fn apply(&mut self, body: &Body, now: SessionTime) {
        match body {
            Body::CallAdmitted(admitted) => {
                let Some(call) = self.open_call(admitted.call) else { return };
                call.tool = Arc::clone(&admitted.tool);
                call.effect = admitted.effect;
                call.access = admitted.access.clone();
                call.detached = admitted.detached;
                (call.polls, call.arguments) = (admitted.polls, Some(admitted.arguments));
                call.replaced_arguments = admitted.hooks.as_ref().and_then(|hooks| hooks.arguments.clone());
                call.state = admitted.same_as.map_or(ToolCallState::Admitted(1), ToolCallState::SameAs);
            }
            Body::CallStarted(started) => {
                let Some(call) = self.open_call(started.call) else { return };
                call.state = ToolCallState::Started(Arc::new(started.clone()), now.at);
            }
            Body::CallEnded(ended) => {
                let Some(call) = self.open_call(ended.call) else { return };
                call.state = ToolCallState::Ended(Arc::new(ended.end.clone()));
            }
            Body::CallLost(lost) => {
                let Some(call) = self.open_call(lost.call) else { return };
                call.state = ToolCallState::Admitted(lost.attempt + 1);
                call.may_have_run |= lost.reason != RetryReason::NeverStarted;
                call.lost_attempts +=
                    Attempt::from(matches!(lost.reason, RetryReason::Lost | RetryReason::InDoubt));
            }
            Body::ApprovalRequested(request) => {
                let Some(call) = self.open_call(request.call) else { return };
                let started_at = match call.state {
                    ToolCallState::Started(_, at) => Some(at),
                    ToolCallState::Admitted(_) => None,
                    ToolCallState::Proposed
                    | ToolCallState::Parked(_)
                    | ToolCallState::SameAs(_)
                    | ToolCallState::Ended(_) => return,
                };
                if started_at.is_none() {
                    call.approval = StartApproval::Requested;
                }
                call.state = ToolCallState::Parked(Arc::new(ParkedCall {
                    request: request.clone(),
                    started_at,
                    requested_at: now.at,
                }));
            }
            Body::ApprovalAnswered(answered) => {
                let Some(call) = self.open_call(answered.call) else { return };
                // A call in doubt stays parked until the record of its lost attempt.
                if !matches!(&call.state, ToolCallState::Parked(parked) if parked.started_at.is_none()) {
                    return;
                }
                match answered.decision {
                    ApprovalDecision::Allow => call.state = ToolCallState::Admitted(1),
                    ApprovalDecision::Deny => call.approval = StartApproval::Denied,
                }
            }
            _ => {}
        }
    }

    /// The actions that should be in flight for the calls. If the run is stopped for another reason than its budget,
    /// started calls are told to end, and no other starts.
    pub(super) fn due(&self, lets_calls_end: bool) -> impl Iterator<Item = DueAction> {
        let calls = self.calls.iter().enumerate();
        calls.filter_map(move |(n, call)| call.due(&self.calls[..n], lets_calls_end))
    }

    /// Whether a person is asked about a call and none of the others can make progress.
    pub(super) fn waits_for_person(&self) -> bool {
        let is_busy = |(n, call): (usize, &ActiveToolCall)| {
            call.started().is_some() || (call.may_start() && !call.is_blocked_by(&self.calls[..n]))
        };
        let has_parked = self.calls.iter().any(|call| matches!(call.state, ToolCallState::Parked(_)));
        has_parked && !self.calls.iter().enumerate().any(is_busy)
    }

    /// The results of all calls in order; `None` while one has none.
    pub(super) fn results(&self) -> Option<Vec<CallResult>> {
        let result = |(requested, call): (&crate::model::ToolCall, &ActiveToolCall)| {
            let ToolCallState::Ended(end) = &call.state else { return None };
            let (id, tool) = (requested.id.as_str().into(), portable_name(&call.tool));
            Some(CallResult { id, tool, end: Arc::clone(end) })
        };
        self.answer.calls.iter().zip(&self.calls).map(result).collect()
    }

    /// The arguments of a call as the model wrote them, or as a hook has replaced them.
    pub(super) fn arguments(&self, id: CallId) -> Option<&str> {
        let mut calls = self.calls.iter().zip(&self.answer.calls);
        let (call, requested) = calls.find(|(call, _)| call.id == id)?;
        Some(call.replaced_arguments.as_deref().unwrap_or(&requested.arguments))
    }

    fn open_call(&mut self, id: CallId) -> Option<&mut ActiveToolCall> {
        let is_open = |call: &&mut ActiveToolCall| !matches!(call.state, ToolCallState::Ended(_));
        self.calls.iter_mut().filter(is_open).find(|call| call.id == id)
    }
}

/// The answer with the registered tool names in its calls, as the view shows them.
pub(super) fn with_tool_names(
    answer: &Arc<AssistantMessage>,
    results: &[CallResult],
) -> Arc<AssistantMessage> {
    let mut calls = answer.calls.iter().zip(results);
    if calls.all(|(call, result)| call.name == *result.tool) {
        return Arc::clone(answer);
    }
    let mut named = AssistantMessage::clone(answer);
    for (call, result) in named.calls.iter_mut().zip(results) {
        call.name = result.tool.to_string();
    }
    Arc::new(named)
}
