//! Checks the tool calls of the present answer, as their records describe them.

use super::hold;
use crate::{
    model::{
        Access, ApprovalDecision, AssistantMessage, Attempt, AttemptId, CallAdmitted, CallEnded, CallId,
        CallLost, CallStarted, EffectClass, InDoubtAction, RetryReason, RunSpec, Seq,
    },
    turn::DueAction,
};

#[derive(Debug)]
struct Call {
    id: CallId,
    /// `None` until it is admitted.
    effect: Option<EffectClass>,
    access: Access,
    /// Whether an attempt may have had an effect.
    begun: bool,
    /// How often it was repeated in doubt.
    retried: Attempt,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Proposed,
    Admitted(Attempt),
    Same,
    Started(Attempt, Seq),
    Asked(Attempt, Option<ApprovalDecision>),
    Ended,
}

#[derive(Debug, Default)]
pub(super) struct Calls(Vec<Call>);

impl Calls {
    /// The calls of an accepted answer.
    pub(super) fn proposed(&mut self, model_call: CallId, message: &AssistantMessage) {
        let call = |n| Call {
            id: CallId { n, ..model_call },
            effect: None,
            access: Access::default(),
            begun: false,
            retried: 0,
            state: State::Proposed,
        };
        self.0 = message.calls.iter().zip(1..).map(|(_, n)| call(n)).collect();
    }

    fn get(&mut self, id: CallId) -> Result<&mut Call, String> {
        self.0.iter_mut().find(|call| call.id == id).ok_or_else(|| format!("nobody asked for call {id}"))
    }

    pub(super) fn admitted(&mut self, admitted: &CallAdmitted) -> Result<(), String> {
        let first = admitted.same_as.and_then(|n| self.0.iter().find(|call| call.id.n == n));
        hold!(
            admitted.same_as.is_none() || first.is_some_and(|call| call.effect == Some(EffectClass::Once)),
            "{admitted:?} is the same as {first:?}"
        );
        let call = self.get(admitted.call)?;
        hold!(call.state == State::Proposed, "{call:?} is admitted");
        call.effect = Some(admitted.effect);
        call.access = admitted.access.clone();
        call.state = if admitted.same_as.is_some() { State::Same } else { State::Admitted(1) };
        Ok(())
    }

    /// `waits`: whether a message to the call's run is unread.
    pub(super) fn started(&mut self, started: &CallStarted, seq: Seq, waits: bool) -> Result<(), String> {
        let at = self.0.iter().position(|call| call.id == started.call).unwrap_or(self.0.len());
        let (before, rest) = self.0.split_at_mut(at);
        let Some(call) = rest.first_mut() else { return Err(format!("{started:?} out of nowhere")) };
        hold!(call.state == State::Admitted(started.attempt), "{call:?} is started: {started:?}");
        hold!(call.begun || !waits, "{call:?} overtakes a message");
        let is_open = |call: &&Call| !matches!(call.state, State::Ended | State::Same);
        let blocked = before.iter().filter(is_open).find(|earlier| earlier.access.conflicts(&call.access));
        // A delegating call waits for no other call.
        hold!(blocked.is_none() || !started.children.is_empty(), "{call:?} overtakes {blocked:?}");
        call.state = State::Started(started.attempt, seq);
        Ok(())
    }

    /// Checks that a call that changes the to-do list was never started.
    pub(super) fn changes(&mut self, id: CallId) -> Result<(), String> {
        let call = self.get(id)?;
        hold!(call.state == State::Admitted(1), "{call:?} changes the list");
        Ok(())
    }

    /// Checks the end of a call, and returns whether a started attempt ends with it.
    pub(super) fn ended(&mut self, ended: &CallEnded) -> Result<bool, String> {
        let call = self.get(ended.call)?;
        let attempt = match call.state {
            State::Started(attempt, _) | State::Asked(attempt, None | Some(ApprovalDecision::Deny)) => {
                attempt
            }
            State::Proposed | State::Admitted(_) | State::Same => 0,
            State::Asked(_, Some(ApprovalDecision::Allow)) | State::Ended => {
                return Err(format!("{call:?} ends: {ended:?}"));
            }
        };
        hold!(ended.attempt == attempt, "{call:?} ends as {ended:?}");
        call.state = State::Ended;
        Ok(attempt > 0)
    }

    pub(super) fn lost(&mut self, lost: &CallLost, spec: &RunSpec) -> Result<(), String> {
        let call = self.get(lost.call)?;
        let allowed = call.state == State::Asked(lost.attempt, Some(ApprovalDecision::Allow));
        hold!(
            allowed || matches!(call.state, State::Started(n, _) if n == lost.attempt),
            "{call:?}: {lost:?}"
        );
        let is_once = call.effect == Some(EffectClass::Once);
        let policy = spec.in_doubt.action;
        let has_leave = match lost.reason {
            RetryReason::Lost | RetryReason::Interrupted => !is_once,
            RetryReason::NeverStarted => true,
            RetryReason::InDoubt => {
                is_once && (allowed || (policy == InDoubtAction::Retry && call.retried < 2))
            }
        };
        hold!(has_leave, "{call:?} is repeated without leave: {lost:?}");
        call.retried += Attempt::from(lost.reason == RetryReason::InDoubt);
        call.begun |= lost.reason != RetryReason::NeverStarted;
        call.state = State::Admitted(lost.attempt + 1);
        Ok(())
    }

    pub(super) fn asked(&mut self, id: CallId, attempt: Attempt, spec: &RunSpec) -> Result<(), String> {
        let call = self.get(id)?;
        let is_started = matches!(call.state, State::Started(n, _) if n == attempt);
        let is_in_doubt = is_started && spec.in_doubt.action == InDoubtAction::Ask;
        let is_before_start = call.state == State::Admitted(1) && attempt == 0;
        hold!(is_in_doubt || is_before_start, "a person is asked about {call:?}");
        call.state = State::Asked(attempt, None);
        Ok(())
    }

    pub(super) fn answered(&mut self, id: CallId, verdict: ApprovalDecision) -> Result<(), String> {
        let call = self.get(id)?;
        let State::Asked(attempt, None) = call.state else {
            return Err(format!("nobody was asked about {call:?}"));
        };
        let starts = attempt == 0 && verdict == ApprovalDecision::Allow;
        call.state = if starts { State::Admitted(1) } else { State::Asked(attempt, Some(verdict)) };
        Ok(())
    }

    /// How often a call was repeated in doubt: each repetition allows one more start.
    pub(super) fn leaves(&mut self, id: CallId) -> Attempt {
        self.get(id).map_or(0, |call| call.retried)
    }

    /// Whether an attempt of the call was started by the record with this sequence number or a later one.
    pub(super) fn started_since(&self, id: CallId, since: Seq) -> bool {
        self.0
            .iter()
            .any(|call| call.id == id && matches!(call.state, State::Started(_, seq) if seq >= since))
    }

    /// Checks that every admitted call has its end, and forgets the calls.
    pub(super) fn close(&mut self) -> Result<(), String> {
        let open = self.0.iter().find(|call| call.effect.is_some() && call.state != State::Ended);
        hold!(open.is_none(), "{open:?} has no end");
        self.0.clear();
        Ok(())
    }

    /// Checks that a due action of a tool call has its record in the journal.
    pub(super) fn check(&self, effect: &DueAction) -> Result<(), String> {
        let state = |id: CallId| self.0.iter().find(|call| call.id == id).map(|call| call.state);
        let fits = match *effect {
            DueAction::RunTool(AttemptId { call, attempt })
            | DueAction::EndTool(AttemptId { call, attempt }) => {
                matches!(state(call), Some(State::Started(n, _)) if n == attempt)
            }
            DueAction::Acquire(AttemptId { call, attempt }) => {
                call.is_model_call() || state(call) == Some(State::Admitted(attempt))
            }
            DueAction::CallModel { .. }
            | DueAction::AwaitSubagent { .. }
            | DueAction::Begin(_)
            | DueAction::Verify(_)
            | DueAction::SaveMemory(_)
            | DueAction::WakeAt(_)
            | DueAction::WakeAtActive(_) => true,
        };
        hold!(fits, "{effect:?} is due without its record");
        Ok(())
    }
}
