//! What must hold of tool calls and their effects.

use std::collections::BTreeMap;

use super::{
    judge::{Found, Past},
    outside::{Deed, How},
};
use crate::{
    model::{Attempt, Body, CallAdmitted, CallEnded, CallId, CallStatus, EffectClass, WhyAgain},
    policy::{delegation::DELEGATE_TASK, todo::TODO},
};

/// What the records say of one call.
#[derive(Default)]
struct Told<'a> {
    admitted: Option<&'a CallAdmitted>,
    ends: Vec<&'a CallEnded>,
    /// Why there was another attempt after each of these.
    lost: BTreeMap<Attempt, WhyAgain>,
    started: u32,
}

fn told<'a>(past: &'a Past<'_>) -> BTreeMap<CallId, Told<'a>> {
    let mut calls: BTreeMap<CallId, Told<'a>> = BTreeMap::new();
    for record in past.records() {
        match &record.body {
            Body::CallAdmitted(admitted) => {
                calls.entry(admitted.call).or_default().admitted = Some(admitted);
            }
            Body::CallStarted(started) => calls.entry(started.call).or_default().started += 1,
            Body::CallEnded(ended) => calls.entry(ended.call).or_default().ends.push(ended),
            Body::CallLost(lost) => {
                calls.entry(lost.call).or_default().lost.insert(lost.attempt, lost.why);
            }
            _ => {}
        }
    }
    calls
}

/// Every call that was admitted has one; of a run that was ended without its session, at most one.
pub(super) fn one_result(past: &Past<'_>) -> Found {
    let wrong = |(call, told): (CallId, Told<'_>)| {
        let ends = told.ends.len();
        let is_open = ends == 0 && past.is_buried(call.run);
        (ends != 1 && !is_open).then(|| format!("{call} has {ends} results"))
    };
    told(past).into_iter().filter_map(wrong).collect()
}

/// A call that must not be repeated silently is repeated only with leave: it never began, or somebody wants it again
/// whatever it did.
pub(super) fn at_most_once(past: &Past<'_>) -> Found {
    let mut found = Found::new();
    for (call, told) in told(past) {
        let is_once = told.admitted.is_some_and(|admitted| admitted.effect == EffectClass::Once);
        let deeds: Vec<&Deed> = past.inner.deeds.iter().filter(|deed| deed.call == call).collect();
        for deed in &deeds {
            let why = told.lost.get(&deed.attempt);
            if why == Some(&WhyAgain::NeverBegun) {
                found.push(format!("{call} attempt {} began, and was told never to have", deed.attempt));
            }
            let again = deeds.iter().any(|other| other.attempt > deed.attempt);
            if is_once && again && why != Some(&WhyAgain::InDoubt) {
                found.push(format!(
                    "{call} was made again after attempt {} without leave: {why:?}",
                    deed.attempt
                ));
            }
        }
        let without_leave =
            told.lost.values().filter(|why| matches!(why, WhyAgain::Lost | WhyAgain::Interrupted));
        if is_once && without_leave.count() > 0 {
            found.push(format!("{call} is to be made again without leave: {:?}", told.lost));
        }
        if told.started > told.lost.len().try_into().unwrap_or(0) + 1 {
            found.push(format!("{call} was started {} times", told.started));
        }
    }
    found
}

/// What the result says to be done was done by the attempt that it is of.
pub(super) fn at_least_once(past: &Past<'_>) -> Found {
    let mut found = Found::new();
    for (call, told) in told(past) {
        // What is given to a subagent has no effect of its own, and a list is the session's.
        if told.admitted.is_some_and(|admitted| [DELEGATE_TASK, TODO].contains(&&*admitted.tool)) {
            continue;
        }
        let twin = told.admitted.and_then(|admitted| admitted.same_as).map(|n| CallId { n, ..call });
        for end in told.ends.iter().filter(|end| end.end.status == CallStatus::Ok) {
            let of = twin.unwrap_or(call);
            let done = past.inner.deeds.iter().any(|deed| {
                deed.call == of
                    && (twin.is_some() || deed.attempt == end.attempt)
                    && matches!(deed.ended, Some((_, How::Finished)))
            });
            if !done {
                found.push(format!("{call} attempt {} is told to be done", end.attempt));
            }
        }
    }
    found
}

/// Two attempts of a call are never under way at once; but a call in doubt that is made again may still be going on.
pub(super) fn no_overlap(past: &Past<'_>) -> Found {
    let told = told(past);
    let overlaps = past.inner.deeds.iter().filter_map(|deed| Some((deed, deed.overlaps?)));
    overlaps
        .filter(|(deed, earlier)| {
            let lost = told.get(&deed.call).and_then(|told| told.lost.get(earlier));
            lost != Some(&WhyAgain::InDoubt)
        })
        .map(|(deed, earlier)| {
            let Deed { call, attempt, began, kind, .. } = deed;
            format!(
                "{call} ({}) attempt {attempt} began at {began} ms while {earlier} was under way",
                kind.name()
            )
        })
        .collect()
}
