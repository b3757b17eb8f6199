//! The guard against loops: finds tool calls that a run repeats without progress. Folds the steps of a run and decides
//! nothing; `ending.rs` records what it finds, and ends the run.
//!
//! A step counts once it is complete, so the order in which its calls end has no influence. Equal calls of one step
//! count once: the model has read no result between them. Results are compared by hash.
//!
//! | how a call ended | it counts as |
//! | --- | --- |
//! | it succeeded (`ok`) | a success |
//! | it failed, or was rejected: bad arguments, no such tool, denied by the policy (`error`) | a failure |
//! | not started (`not_started`), because a person denied it, now or before in the run, or did not answer in time | a failure |
//! | not started for another reason: a stop, a message of the user, a used-up budget, a crash | left out |
//! | stopped (`stopped`), in doubt (`in_doubt`) | left out |
//!
//! | what is counted, in steps | pattern | warns at | ends at | starts again after |
//! | --- | --- | --- | --- | --- |
//! | the same call succeeds with the same result | `same_result` | 3 | 5 | progress |
//! | the same call fails in the same way | `same_failure` | 2 | 5 | progress |
//! | two steps take turns, each with the same calls and results | `alternating_calls` | 3 | 5 | progress |
//! | a tool fails, with any arguments | `failing_tool` | 3 | 8 | a success of the tool, or progress by a success |
//!
//! - A call is equal to another one of the same tool if the hashes of their arguments are equal.
//! - A step is progress if one of its calls was not among the last [`MAX_CALLS`] different ones, or had another result
//!   the last time. So other calls between do not hide a repetition if they repeat too.
//! - A successful call that polls is always progress. Its failures count like others.
//! - A message of the user, the end of a subagent in the background, and a new leg of the run start all counts again.
//!   Compaction, crashes and larger limits change nothing.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use crate::{
    model::{CallEnd, CallStatus, Hash, Hasher, Repetition, RepetitionPattern},
    policy::portable_name,
    turn::{
        person_decisions::PersonDecisions,
        tool_calls::{ActiveStep, ActiveToolCall, StartApproval},
    },
};

/// Different calls that are remembered.
const MAX_CALLS: usize = 64;
/// Failing tools that are remembered.
const MAX_TOOLS: usize = 16;

/// What a run has repeated. A clone shares its data until one of the two changes.
#[derive(Debug, Clone, Default)]
pub(super) struct LoopGuard(Arc<Repetitions>);

#[derive(Debug, Clone, Default)]
struct Repetitions {
    /// The last different calls; the most recent is the last.
    calls: VecDeque<KnownCall>,
    /// The tools that have failed since their last success; the most recent is the last.
    failing: VecDeque<FailingTool>,
    /// The hashes of the last two steps without progress; the later is the last.
    steps: [Option<Hash>; 2],
    /// The repetition with which the run ends.
    final_repetition: Option<Repetition>,
}

#[derive(Debug, Clone)]
struct KnownCall {
    call: Hash,
    result: Hash,
    /// Number of steps with this call and result since the last progress, that step included.
    times: u32,
}

#[derive(Debug, Clone)]
struct FailingTool {
    tool: Arc<str>,
    times: u32,
}

/// A call of a complete step that counts as a success or a failure.
#[derive(Debug, Clone)]
pub(super) struct SettledCall {
    pub(super) tool: Arc<str>,
    /// Hash of the tool and the arguments.
    pub(super) call: Hash,
    pub(super) result: Hash,
    pub(super) has_failed: bool,
    pub(super) polls: bool,
}

impl LoopGuard {
    /// Folds a complete step, and returns the repetition of which the model is to be warned, or with which the run ends.
    pub(super) fn on_step(&mut self, step: &[SettledCall]) -> Option<Repetition> {
        if step.is_empty() {
            return None;
        }
        Arc::make_mut(&mut self.0).on_step(step)
    }

    /// Starts all counts again.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Notes a repetition that was recorded.
    pub(super) fn on_recorded(&mut self, repetition: &Repetition) {
        if repetition.ends_run() {
            Arc::make_mut(&mut self.0).final_repetition = Some(repetition.clone());
        }
    }

    /// The recorded repetition with which the run ends.
    pub(super) fn final_repetition(&self) -> Option<&Repetition> {
        self.0.final_repetition.as_ref()
    }
}

impl Repetitions {
    fn on_step(&mut self, step: &[SettledCall]) -> Option<Repetition> {
        let progress: Vec<&SettledCall> = step.iter().filter(|call| self.is_progress(call)).collect();
        let is_progress_by_success = progress.iter().any(|call| !call.has_failed);
        let has_progress = !progress.is_empty();
        if has_progress {
            self.calls.iter_mut().for_each(|known| known.times = 0);
        }
        let mut counted = BTreeSet::new();
        let calls: Vec<(&SettledCall, u32)> = step
            .iter()
            .filter(|call| counted.insert(*call.call.as_bytes()))
            .map(|call| (call, self.count_call(call)))
            .collect();
        let is_alternating = self.add_step(has_progress, &calls);
        let tools = self.count_tools(step, is_progress_by_success);
        let calls = calls.into_iter().filter_map(|(call, times)| {
            let pattern = match (call.has_failed, is_alternating) {
                (true, _) => RepetitionPattern::SameFailure,
                (false, true) => RepetitionPattern::AlternatingCalls,
                (false, false) => RepetitionPattern::SameResult,
            };
            Repetition::new(pattern, &call.tool, times)
        });
        let tools = tools
            .into_iter()
            .filter_map(|(tool, times)| Repetition::new(RepetitionPattern::FailingTool, &tool, times));
        let found: Vec<Repetition> = calls.chain(tools).collect();
        found.iter().find(|found| found.ends_run()).or(found.first()).cloned()
    }

    fn is_progress(&self, call: &SettledCall) -> bool {
        let is_repeated =
            self.calls.iter().any(|known| (known.call, known.result) == (call.call, call.result));
        !is_repeated || (call.polls && !call.has_failed)
    }

    /// Counts a call once more, and returns its number of times.
    fn count_call(&mut self, call: &SettledCall) -> u32 {
        let at = self.calls.iter().position(|known| known.call == call.call);
        let before = at.and_then(|at| self.calls.remove(at)).filter(|known| known.result == call.result);
        let times = before.map_or(0, |known| known.times).saturating_add(1);
        push_bounded(&mut self.calls, KnownCall { call: call.call, result: call.result, times }, MAX_CALLS);
        times
    }

    /// Adds the hash of a step, and returns whether the last three steps were two that take turns.
    fn add_step(&mut self, has_progress: bool, calls: &[(&SettledCall, u32)]) -> bool {
        if has_progress {
            self.steps = [None; 2];
            return false;
        }
        let mut hashes: Vec<_> =
            calls.iter().map(|(call, _)| (call.call.as_bytes(), call.result.as_bytes())).collect();
        hashes.sort_unstable();
        let mut hasher = Hasher::default();
        for (call, result) in hashes {
            hasher.part(call);
            hasher.part(result);
        }
        let (step, [before_last, last]) = (Some(hasher.finish()), self.steps);
        self.steps = [last, step];
        before_last == step && last != step
    }

    /// Counts the tools that have failed in this step and did not succeed in it; each with its number of times.
    fn count_tools(&mut self, step: &[SettledCall], is_progress_by_success: bool) -> Vec<(Arc<str>, u32)> {
        if is_progress_by_success {
            self.failing.clear();
        }
        let succeeded: BTreeSet<&str> =
            step.iter().filter(|call| !call.has_failed).map(|call| &*call.tool).collect();
        self.failing.retain(|failing| !succeeded.contains(&*failing.tool));
        let mut counted = BTreeSet::new();
        let failed = step.iter().filter(|call| call.has_failed && !succeeded.contains(&*call.tool));
        failed
            .filter(|call| counted.insert(Arc::clone(&call.tool)))
            .map(|call| {
                let at = self.failing.iter().position(|failing| failing.tool == call.tool);
                let before = at.and_then(|at| self.failing.remove(at)).map_or(0, |failing| failing.times);
                let (tool, times) = (Arc::clone(&call.tool), before.saturating_add(1));
                push_bounded(&mut self.failing, FailingTool { tool: Arc::clone(&tool), times }, MAX_TOOLS);
                (tool, times)
            })
            .collect()
    }
}

/// Adds an item at the end, and removes the first one if there are more than `max`.
fn push_bounded<T>(items: &mut VecDeque<T>, item: T, max: usize) {
    items.push_back(item);
    if items.len() > max {
        items.pop_front();
    }
}

/// The calls of a complete step that count; `None` while one has no result.
pub(super) fn settled_calls(step: &ActiveStep, decisions: &PersonDecisions) -> Option<Vec<SettledCall>> {
    let results = step.results()?;
    let calls = step.answer.calls.iter().zip(&step.calls).zip(&results);
    let settled = calls.filter_map(|((requested, call), result)| {
        let has_failed = match result.end.status {
            CallStatus::Ok => false,
            CallStatus::Error => true,
            CallStatus::NotStarted if is_denied(call, decisions) => true,
            CallStatus::NotStarted | CallStatus::Stopped | CallStatus::InDoubt => return None,
        };
        let arguments = call.arguments.unwrap_or_else(|| Hash::of(requested.arguments.as_bytes()));
        Some(SettledCall {
            tool: portable_name(&call.tool),
            call: hash_of(&[call.tool.as_bytes(), arguments.as_bytes()]),
            result: result_hash(&result.end, has_failed),
            has_failed,
            polls: call.polls,
        })
    });
    Some(settled.collect())
}

/// Whether a call was not started because of a person. One that no person was asked about was denied before in the run.
fn is_denied(call: &ActiveToolCall, decisions: &PersonDecisions) -> bool {
    match call.approval {
        StartApproval::Denied => true,
        StartApproval::Requested => false,
        StartApproval::NotRequested => decisions.has_denied(call),
    }
}

/// The hash of a result. Equal outputs are equal although their artifacts have names of their own.
fn result_hash(end: &CallEnd, has_failed: bool) -> Hash {
    let mut hasher = Hasher::default();
    hasher.part(&[u8::from(has_failed)]);
    let artifacts = end.artifact.iter().chain(end.images.iter().map(|image| &image.artifact));
    let mut content = std::borrow::Cow::Borrowed(&*end.content);
    for artifact in artifacts {
        content = content.replace(&artifact.handle, "").into();
        hasher.part(&artifact.bytes.to_le_bytes());
        let hash = artifact.sha256.as_deref().map(ToString::to_string).unwrap_or_default();
        hasher.part(hash.as_bytes());
    }
    hasher.part(content.as_bytes());
    hasher.finish()
}

fn hash_of(parts: &[&[u8]]) -> Hash {
    let mut hasher = Hasher::default();
    parts.iter().for_each(|part| hasher.part(part));
    hasher.finish()
}
