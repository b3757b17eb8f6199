//! Titles in plans: whether sessions get one, the answers to the calls for them with their faults, and their invariant.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use super::{
    asides::{PlannedAttempts, answer_aside},
    invariants::{FinalState, Violations},
    model::SimulatedProvider,
    seeded_rng::SeededRng,
};
use hermod_actors::{
    model::{AsideJob, AttemptId, AuxiliaryChain, Body, Failure, ModelAnswer, ModelStarted, RunId, RunSpec},
    port::ModelRequest,
};

/// Percentage of plans whose sessions get titles.
const PERCENT_OF_PLANS: u64 = 40;

/// The calls for titles in a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TitlePlan {
    attempts: PlannedAttempts,
}

impl TitlePlan {
    /// The titles of a seed, if it has any.
    pub(super) fn of(seed: u64) -> Option<Self> {
        // A generator of its own: the draws here leave the draws of the rest of the plan unchanged.
        let mut dice = SeededRng::new(seed.rotate_left(48) ^ u64::from(u32::MAX));
        if !dice.chance(PERCENT_OF_PLANS) {
            return None;
        }
        Some(Self { attempts: PlannedAttempts::draw(&mut dice, 5) })
    }

    /// Has the runs of this spec give their session a title.
    pub(super) fn apply_to(spec: &mut RunSpec) {
        let (chain, profiles) = (spec.chain.clone(), spec.profiles.clone());
        spec.title = Some(Arc::new(AuxiliaryChain { chain, profiles }));
    }
}

/// Answers a request for a title.
pub(super) async fn answer_title(
    endpoint: &SimulatedProvider,
    request: ModelRequest,
    messages: &[Value],
) -> Result<ModelAnswer, Failure> {
    let SimulatedProvider { plan, outside, .. } = endpoint;
    let text = messages.get(1).and_then(|message| message["text"].as_str()).unwrap_or_default();
    if messages.len() != 2 || !text.starts_with("# The request\n") {
        outside.report_violation("a title is of the conversation", format!("{}: {messages:?}", request.call));
    }
    let nth = outside.count("title".into());
    let planned = plan.titles.as_ref().and_then(|titles| titles.attempts.get(nth));
    answer_aside(endpoint, &request, planned, format!("\"Title {nth}\"\n"), None).await
}

/// The attempts of calls beside the runs that the last life has left open: its process ended first.
pub(super) fn open_asides<'a>(past: &'a FinalState<'_>) -> BTreeMap<AttemptId, &'a ModelStarted> {
    let mut open = BTreeMap::new();
    for record in past.records() {
        if let Body::AsideStarted(started) = &record.body {
            open.insert(started.id(), &**started);
        } else if let Some((id, _)) = record.body.settled_usage() {
            open.remove(&id);
        }
    }
    open
}

/// A session gets one title at most, after a run of it has completed, and no call for one starts while a run is under
/// way. No attempt is made after the title.
pub(super) fn one_title(past: &FinalState<'_>) -> Violations {
    let mut found = Violations::new();
    for (session, records) in &past.journals {
        let (mut open, mut ended, mut title) = (BTreeSet::<RunId>::new(), BTreeSet::<RunId>::new(), None);
        for record in records {
            match &record.body {
                Body::RunAccepted(accepted) => drop(open.insert(accepted.run)),
                Body::RunReopened(reopened) => drop(open.insert(reopened.run)),
                Body::RunEnded(end) => {
                    open.remove(&end.run);
                    ended.insert(end.run);
                }
                Body::AsideStarted(started)
                    if started.call.job() == Some(AsideJob::Title)
                        && (!open.is_empty() || title.is_some() || !ended.contains(&started.call.run)) =>
                {
                    found.push(format!("{session}: {started:?} beside {open:?}, after {title:?}"));
                }
                Body::AsideAnswered(answered)
                    if answered.call.job() == Some(AsideJob::Title) && answered.unusable.is_none() =>
                {
                    if let Some(earlier) = title.replace(&answered.text) {
                        found.push(format!("{session}: {answered:?} after {earlier}"));
                    }
                }
                _ => {}
            }
        }
    }
    found
}
