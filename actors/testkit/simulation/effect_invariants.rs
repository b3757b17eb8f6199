//! The invariants of tool calls and their effects.

use std::collections::BTreeMap;

use super::{
    external_world::{EndKind, ToolExecution},
    invariants::{FinalState, Violations},
};
use hermod_actors::{
    DELEGATE_TASK, TODO,
    model::{Attempt, Body, CallAdmitted, CallEnded, CallId, CallStatus, EffectClass, RetryReason},
};

/// The records of one call.
#[derive(Default)]
struct CallRecords<'a> {
    admitted: Option<&'a CallAdmitted>,
    ends: Vec<&'a CallEnded>,
    /// The reason for the next attempt, by lost attempt.
    lost: BTreeMap<Attempt, RetryReason>,
    started: u32,
}

fn call_records<'a>(past: &'a FinalState<'_>) -> BTreeMap<CallId, CallRecords<'a>> {
    let mut calls: BTreeMap<CallId, CallRecords<'a>> = BTreeMap::new();
    for record in past.records() {
        match &record.body {
            Body::CallAdmitted(admitted) => {
                calls.entry(admitted.call).or_default().admitted = Some(admitted);
            }
            Body::CallStarted(started) => calls.entry(started.call).or_default().started += 1,
            Body::CallEnded(ended) => calls.entry(ended.call).or_default().ends.push(ended),
            Body::CallLost(lost) => {
                calls.entry(lost.call).or_default().lost.insert(lost.attempt, lost.reason);
            }
            _ => {}
        }
    }
    calls
}

/// Every admitted call has one result; a call of a force-failed run has at most one.
pub(super) fn one_result(past: &FinalState<'_>) -> Violations {
    let wrong = |(call, records): (CallId, CallRecords<'_>)| {
        let ends = records.ends.len();
        let is_open = ends == 0 && past.is_force_failed(call.run);
        (ends != 1 && !is_open).then(|| format!("{call} has {ends} results"))
    };
    call_records(past).into_iter().filter_map(wrong).collect()
}

/// A `once` call is repeated only if the earlier attempt never began, or if its repetition in doubt was decided.
pub(super) fn at_most_once(past: &FinalState<'_>) -> Violations {
    let mut found = Violations::new();
    for (call, records) in call_records(past) {
        let is_once = records.admitted.is_some_and(|admitted| admitted.effect == EffectClass::Once);
        let executions: Vec<&ToolExecution> =
            past.inner.executions.iter().filter(|execution| execution.call == call).collect();
        for execution in &executions {
            let why = records.lost.get(&execution.attempt);
            if why == Some(&RetryReason::NeverStarted) {
                found.push(format!("{call} attempt {} began, and was told never to have", execution.attempt));
            }
            let again = executions.iter().any(|other| other.attempt > execution.attempt);
            if is_once && again && why != Some(&RetryReason::InDoubt) {
                found.push(format!(
                    "{call} was made again after attempt {} without leave: {why:?}",
                    execution.attempt
                ));
            }
        }
        let without_leave =
            records.lost.values().filter(|why| matches!(why, RetryReason::Lost | RetryReason::Interrupted));
        if is_once && without_leave.count() > 0 {
            found.push(format!("{call} is to be made again without leave: {:?}", records.lost));
        }
        if records.started > records.lost.len().try_into().unwrap_or(0) + 1 {
            found.push(format!("{call} was started {} times", records.started));
        }
    }
    found
}

/// A result that reports success belongs to an attempt whose execution finished.
pub(super) fn at_least_once(past: &FinalState<'_>) -> Violations {
    let mut found = Violations::new();
    for (call, records) in call_records(past) {
        // A delegation has no effect of its own, and a todo list is state of the session.
        if records.admitted.is_some_and(|admitted| [DELEGATE_TASK, TODO].contains(&&*admitted.tool)) {
            continue;
        }
        let twin = records.admitted.and_then(|admitted| admitted.same_as).map(|n| CallId { n, ..call });
        for end in records.ends.iter().filter(|end| end.end.status == CallStatus::Ok) {
            let of = twin.unwrap_or(call);
            let done = past.inner.executions.iter().any(|execution| {
                execution.call == of
                    && (twin.is_some() || execution.attempt == end.attempt)
                    && matches!(execution.ended, Some((_, EndKind::Finished)))
            });
            if !done {
                found.push(format!("{call} attempt {} is told to be done", end.attempt));
            }
        }
    }
    found
}

/// Two attempts of a call never overlap, except after a call in doubt is repeated: its earlier attempt may still go on.
pub(super) fn no_overlap(past: &FinalState<'_>) -> Violations {
    let records = call_records(past);
    let overlaps =
        past.inner.executions.iter().filter_map(|execution| Some((execution, execution.overlaps?)));
    overlaps
        .filter(|(execution, earlier)| {
            let lost = records.get(&execution.call).and_then(|records| records.lost.get(earlier));
            lost != Some(&RetryReason::InDoubt)
        })
        .map(|(execution, earlier)| {
            let ToolExecution { call, attempt, began, kind, .. } = execution;
            format!(
                "{call} ({}) attempt {attempt} began at {began} ms while {earlier} was under way",
                kind.name()
            )
        })
        .collect()
}
