//! Checks the guard against loops: a second implementation, which looks at all steps of a run again after each one.

use std::collections::BTreeMap;

use super::{State, Watch};
use crate::{
    model::{
        ApprovalAnswered, ApprovalDecision, ApprovalRequested, AssistantMessage, CallAdmitted, CallEnded,
        CallId, CallStatus, ChildEnded, DecisionSource, Hash, Outcome, Repetition, RepetitionPattern,
        RunEnded, RunId,
    },
    turn::tests::fuzz::hold,
};

/// The steps of the run under way since something that starts the counts again.
#[derive(Debug, Default)]
pub(super) struct Loops {
    open: Vec<Requested>,
    steps: Vec<Vec<Requested>>,
    /// The calls that a person has denied, by run, tool and arguments. Another leg of the run has them too.
    denied: Vec<(RunId, String, Hash)>,
    /// The repetition with which the run must end.
    last: Option<Repetition>,
}

/// A call, with its result once it has one.
#[derive(Debug, Clone)]
struct Requested {
    id: CallId,
    tool: String,
    arguments: Hash,
    polls: bool,
    /// Whether a person was asked before the start.
    was_asked: bool,
    /// The person's answer.
    decision: Option<ApprovalDecision>,
    result: Option<(CallStatus, String)>,
}

impl Requested {
    fn is_same(&self, other: &Self) -> bool {
        (&self.tool, self.arguments) == (&other.tool, other.arguments)
    }

    fn has(&self, status: CallStatus) -> bool {
        self.result.as_ref().is_some_and(|(of, _)| *of == status)
    }
}

impl Loops {
    pub(super) fn proposed(&mut self, model_call: CallId, message: &AssistantMessage) {
        let requested = message.calls.iter().zip(1..).map(|(call, n)| Requested {
            id: CallId { n, ..model_call },
            tool: call.name.clone(),
            arguments: Hash::of(call.arguments.as_bytes()),
            polls: false,
            was_asked: false,
            decision: None,
            result: None,
        });
        self.open = requested.collect();
    }

    pub(super) fn admitted(&mut self, admitted: &CallAdmitted) {
        if let Some(call) = self.open.iter_mut().find(|call| call.id == admitted.call) {
            (call.tool, call.polls) = (admitted.tool.to_string(), admitted.polls);
            call.arguments = admitted.arguments;
        }
    }

    pub(super) fn asked(&mut self, request: &ApprovalRequested) {
        if let Some(call) = self.open.iter_mut().find(|call| call.id == request.call && request.attempt == 0)
        {
            call.was_asked = true;
        }
    }

    pub(super) fn answered(&mut self, answered: &ApprovalAnswered) {
        let Some(call) = self.open.iter_mut().find(|call| call.id == answered.call) else { return };
        if !call.was_asked || call.decision.is_some() {
            return;
        }
        call.decision = Some(answered.decision);
        if (answered.decision, answered.by) == (ApprovalDecision::Deny, DecisionSource::Person) {
            self.denied.push((call.id.run, call.tool.clone(), call.arguments));
        }
    }

    /// The status that counts: a call that a person has denied has failed.
    fn counted_status(&self, call: &Requested, status: CallStatus) -> CallStatus {
        let is_denied = match call.was_asked {
            true => call.decision == Some(ApprovalDecision::Deny),
            false => self.denied.contains(&(call.id.run, call.tool.clone(), call.arguments)),
        };
        if status == CallStatus::NotStarted && is_denied { CallStatus::Error } else { status }
    }

    pub(super) fn reset(&mut self) {
        self.steps.clear();
    }

    /// Adds the end of a call. Returns the repetition that the record must have.
    fn ended(&mut self, ended: &CallEnded, is_guarded: bool) -> Option<Repetition> {
        let at = self.open.iter().position(|call| call.id == ended.call)?;
        let status = self.counted_status(&self.open[at], ended.end.status);
        let pictures = ended.end.images.iter().map(|image| &*image.artifact.handle);
        let result = pictures.fold(ended.end.content.to_string(), |all, picture| all + picture);
        self.open[at].result = Some((status, result));
        if self.open.iter().any(|call| call.result.is_none()) {
            return None;
        }
        let mut step = std::mem::take(&mut self.open);
        step.retain(|call| call.has(CallStatus::Ok) || call.has(CallStatus::Error));
        if step.is_empty() || !is_guarded {
            return None;
        }
        self.steps.push(step);
        let found = self.found();
        self.last = found.iter().find(|found| found.ends_run()).cloned();
        self.last.clone().or_else(|| found.into_iter().next())
    }

    /// What a step says of a call: its first result there.
    fn of<'a>(step: &'a [Requested], call: &Requested) -> Option<&'a Requested> {
        step.iter().find(|other| other.is_same(call))
    }

    /// Whether this call of the `n`th step brings something new.
    fn is_new(&self, n: usize, call: &Requested) -> bool {
        let before = self.steps[..n].iter().rev().find_map(|step| Self::of(step, call));
        before.is_none_or(|before| before.result != call.result) || (call.polls && call.has(CallStatus::Ok))
    }

    /// The repetitions of the last step.
    fn found(&self) -> Vec<Repetition> {
        let now = self.steps.len() - 1;
        let is_progress = |n: &usize| self.steps[*n].iter().any(|call| self.is_new(*n, call));
        let since = (0..=now).rev().find(is_progress).unwrap_or(0);
        let set = |n: usize| {
            let calls = self.steps[n].iter();
            let firsts =
                calls.filter(|call| Self::of(&self.steps[n], call).is_some_and(|first| first.id == call.id));
            let firsts = firsts
                .map(|call| ((call.tool.clone(), call.arguments.to_string()), format!("{:?}", call.result)));
            firsts.collect::<BTreeMap<_, _>>()
        };
        let takes_turns = now >= since + 3 && set(now) == set(now - 2) && set(now) != set(now - 1);
        let mut found = Vec::new();
        for call in &self.steps[now] {
            if Self::of(&self.steps[now], call).is_some_and(|first| first.id != call.id) {
                continue;
            }
            let times = self.steps[since..].iter().filter(|step| Self::of(step, call).is_some()).count();
            let pattern = match call.has(CallStatus::Error) {
                true => RepetitionPattern::SameFailure,
                false if takes_turns => RepetitionPattern::AlternatingCalls,
                false => RepetitionPattern::SameResult,
            };
            found.extend(repetition(pattern, &call.tool, times));
        }
        let mut tools: Vec<&String> = Vec::new();
        for call in &self.steps[now] {
            if !tools.contains(&&call.tool) {
                tools.push(&call.tool);
                found.extend(repetition(
                    RepetitionPattern::FailingTool,
                    &call.tool,
                    self.failures(&call.tool),
                ));
            }
        }
        found
    }

    /// The steps in a row, up to the last, in which this tool has failed and none has helped.
    fn failures(&self, tool: &str) -> usize {
        let mut count = 0;
        for (n, step) in self.steps.iter().enumerate().rev() {
            let of_tool = |status| step.iter().any(|call| call.tool == tool && call.has(status));
            if of_tool(CallStatus::Ok) {
                break;
            }
            count += usize::from(of_tool(CallStatus::Error));
            if step.iter().any(|call| call.has(CallStatus::Ok) && self.is_new(n, call)) {
                break;
            }
        }
        count
    }
}

fn repetition(pattern: RepetitionPattern, tool: &str, times: usize) -> Option<Repetition> {
    Repetition::new(pattern, &tool.into(), u32::try_from(times).unwrap_or(u32::MAX))
}

impl Watch {
    /// Checks the repetition in the record of a call's end.
    pub(super) fn repeated(&mut self, ended: &CallEnded) -> Result<(), String> {
        let run = self.running(ended.call.run)?;
        let is_guarded = run.spec.loop_guard && run.state == State::Running && run.exhausted.is_none();
        let expected = self.loops.ended(ended, is_guarded);
        hold!(ended.repetition == expected, "a repetition is {:?} and not {expected:?}", ended.repetition);
        Ok(())
    }

    pub(super) fn helped(&mut self, ended: &ChildEnded) {
        if self.loops.open.iter().all(|call| call.id != ended.call) {
            self.loops.reset();
        }
    }

    /// Checks that a loop has ended its run, and nothing else as a loop.
    pub(super) fn looped(&mut self, ended: &RunEnded) -> Result<(), String> {
        let Loops { last, denied, .. } = std::mem::take(&mut self.loops);
        self.loops.denied = denied;
        let is_loop = ended.ended.outcome == Outcome::LoopDetected;
        hold!(is_loop == last.is_some(), "a loop is {last:?}, and its run ends as {ended:?}");
        Ok(())
    }

    /// Checks that no model is asked after a loop.
    pub(super) fn is_no_loop(&self) -> Result<(), String> {
        hold!(self.loops.last.is_none(), "a loop goes on: {:?}", self.loops.last);
        Ok(())
    }
}
