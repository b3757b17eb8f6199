//! Descriptions of pictures in plans: whether tasks have pictures that the models of the runs do not see, the answers to the
//! calls for descriptions with their faults, and their invariant.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use serde_json::Value;

use super::{
    asides::{PlannedAttempts, answer_aside},
    invariants::{FinalState, Violations},
    model::SimulatedProvider,
    seeded_rng::SeededRng,
};
use hermod_actors::{
    model::{
        AsideJob, AuxiliaryChain, Body, CallId, Failure, ModelAnswer, ModelProfile, ModelRef, RunId, RunSpec,
    },
    port::ModelRequest,
};

/// Percentage of plans whose tasks have pictures.
const PERCENT_OF_PLANS: u64 = 30;
/// The least that is a picture.
const PICTURE: &[u8] = b"GIF89a";
/// Most attempts of one call.
const MAX_ATTEMPTS: u32 = 4;

/// The descriptions of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DescriptionPlan {
    attempts: PlannedAttempts,
}

impl DescriptionPlan {
    /// The descriptions of a seed, if it has any.
    pub(super) fn of(seed: u64) -> Option<Self> {
        // A generator of its own: the draws here leave the draws of the rest of the plan unchanged.
        let mut dice = SeededRng::new(seed.rotate_left(36) ^ u64::from(u32::MAX));
        if !dice.chance(PERCENT_OF_PLANS) {
            return None;
        }
        Some(Self { attempts: PlannedAttempts::draw(&mut dice, 6) })
    }

    /// Has the models of this spec see no pictures, and another one describe them.
    pub(super) fn apply_to(spec: &mut RunSpec) {
        spec.profiles.resize(spec.chain.len(), ModelProfile::default());
        spec.profiles.iter_mut().for_each(|profile| profile.images = Some(false));
        let chain = vec![ModelRef::new("test", "sees").expect("two names")];
        spec.vision = Some(Arc::new(AuxiliaryChain { chain, profiles: Vec::new() }));
    }

    /// The pictures of the run with this number.
    pub(super) fn images(run: usize) -> Vec<Bytes> {
        vec![Bytes::from_static(PICTURE); run % 3]
    }
}

/// Answers a request for descriptions.
pub(super) async fn answer_description(
    endpoint: &SimulatedProvider,
    request: ModelRequest,
    messages: &[Value],
) -> Result<ModelAnswer, Failure> {
    let SimulatedProvider { plan, outside, .. } = endpoint;
    let shown = messages.get(1).unwrap_or(&Value::Null);
    let text = shown["text"].as_str().unwrap_or_default();
    let has_pictures = shown["images"].as_array().is_some_and(|images| !images.is_empty());
    if messages.len() != 2 || !text.starts_with("# The request\n") || !has_pictures {
        outside.report_violation("a description is of pictures", format!("{}: {messages:?}", request.call));
    }
    let nth = outside.count("description".into());
    let planned = plan.descriptions.as_ref().and_then(|plan| plan.attempts.get(nth));
    answer_aside(endpoint, &request, planned, format!("1. A keel, {nth}."), None).await
}

/// A run whose task has pictures calls its model once they are described, or once that was given up. Each description is
/// made once, in at most four attempts.
pub(super) fn before_the_call(past: &FinalState<'_>) -> Violations {
    let mut found = Violations::new();
    let is_description = |call: CallId| call.job() == Some(AsideJob::Vision);
    for records in past.journals.values() {
        let mut waiting = BTreeSet::<RunId>::new();
        let (mut attempts, mut over) = (BTreeMap::<CallId, u32>::new(), BTreeSet::<CallId>::new());
        for record in records {
            match &record.body {
                Body::RunAccepted(accepted)
                    if !accepted.images.is_empty() && accepted.spec.vision.is_some() =>
                {
                    waiting.insert(accepted.run);
                }
                // An exhausted run makes no more than its grace call.
                Body::RunExhausted(exhausted) => drop(waiting.remove(&exhausted.run)),
                Body::ModelStarted(started) if waiting.contains(&started.call.run) => {
                    found.push(format!("{started:?} before a description"));
                }
                Body::AsideStarted(started) if is_description(started.call) => {
                    let count = attempts.entry(started.call).or_default();
                    *count += 1;
                    if *count > MAX_ATTEMPTS || over.contains(&started.call) {
                        found.push(format!("{started:?} is one too many"));
                    }
                }
                Body::AsideAnswered(answered) if is_description(answered.call) => {
                    let is_last = answered.attempt >= MAX_ATTEMPTS || answered.fallback.is_some();
                    if answered.unusable.is_none() || is_last {
                        over.insert(answered.call);
                        waiting.remove(&answered.call.run);
                    }
                }
                Body::AsideFailed(failed) if is_description(failed.call) && failed.retry_at.is_none() => {
                    over.insert(failed.call);
                    waiting.remove(&failed.call.run);
                }
                _ => {}
            }
        }
    }
    found
}
