//! The calls beside the runs in plans: their planned attempts, and how each is answered.

use std::{future::pending, time::Duration};

use super::{
    answers::{answer_or_fault, text_answer},
    model::{ServedCallGuard, SimulatedProvider},
    plan::ModelFault,
    seeded_rng::SeededRng,
};
use hermod_actors::{
    model::{Failure, ModelAnswer},
    port::ModelRequest,
};

/// The attempts of the calls for one job, in order. All further attempts succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedAttempts(Vec<PlannedAttempt>);

/// The duration of an attempt in milliseconds, and its fault.
type PlannedAttempt = (u64, Option<ModelFault>);

impl PlannedAttempts {
    /// Fewer than `below` attempts, some with a fault.
    pub(super) fn draw(dice: &mut SeededRng, below: u64) -> Self {
        let attempt = |dice: &mut SeededRng| {
            let fault = dice.chance(70).then(|| dice.pick(&FAULTS));
            (dice.pick(&[1, 300, 1_500]), fault)
        };
        Self((0..dice.below(below)).map(|_| attempt(dice)).collect())
    }

    pub(super) fn get(&self, nth: usize) -> Option<PlannedAttempt> {
        self.0.get(nth).copied()
    }
}

/// The faults that a call for any job may have.
const FAULTS: [ModelFault; 9] = [
    ModelFault::Server,
    ModelFault::NotConnected,
    ModelFault::FailedWithUsage(9),
    ModelFault::Auth,
    ModelFault::Hang,
    ModelFault::Panic,
    ModelFault::Empty,
    ModelFault::NoUsage,
    ModelFault::WrongUsage,
];

/// Answers an attempt with this text, or as it is planned. A refused one is answered with its failure once the planned
/// time is over.
pub(super) async fn answer_aside(
    endpoint: &SimulatedProvider,
    request: &ModelRequest,
    planned: Option<PlannedAttempt>,
    text: String,
    refused: Option<Failure>,
) -> Result<ModelAnswer, Failure> {
    let outside = &endpoint.outside;
    let call = ServedCallGuard::start(outside, request, Vec::new());
    if endpoint.is_endless() {
        return pending().await;
    }
    let (ms, fault) = planned.unwrap_or((20, None));
    tokio::time::sleep(Duration::from_millis(ms)).await;
    if let Some(refused) = refused {
        call.finish(None);
        return Err(refused);
    }
    if let Some(fault) = fault {
        outside.record_fault(fault.name());
    }
    let whole = || text_answer(&text, request.max_tokens);
    let answered = match answer_or_fault(fault, (0, 0), request.max_tokens, whole) {
        Some(answered) => answered,
        None if fault == Some(ModelFault::Panic) => panic!("planned: the provider panics"),
        None => pending().await,
    };
    call.finish(answered.as_ref().ok().and_then(|answer| answer.usage));
    answered
}
