//! Expectations of runs in a simulation, the checks of which hold, miss, take long, hang or panic, and the invariant of
//! completion.

use std::{collections::BTreeMap, future::pending, time::Duration};

use futures::future::BoxFuture;

use super::invariants::{FinalState, Violations};
use hermod_actors::{
    model::{Body, CallId, Expectation, ExpectationMiss, Hash, Outcome, RunId, RunSpec},
    port::{Verification, Verifier},
};

/// Of this number of plans one has runs with expectations.
const PLANS_PER_EXPECTATION: u64 = 3;
/// Duration of a slow check.
const SLOW: Duration = Duration::from_secs(7);

/// The expectations of run `n` of the plan of a seed; a pure function, so that no draw of a plan changes.
pub(super) fn expectations(seed: u64, n: usize) -> Vec<Expectation> {
    let has_some = seed % PLANS_PER_EXPECTATION == 1 && n.is_multiple_of(2);
    let file = |path: &str| Expectation::File { path: path.into(), not_empty: false, newer: false };
    if has_some { vec![file("out"), file("log")] } else { Vec::new() }
}

/// Checks expectations as the plan has it, a pure function of its seed and the answer's call.
#[derive(Debug)]
pub(super) struct SimulatedVerifier {
    seed: u64,
}

impl SimulatedVerifier {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn dice(&self, call: CallId) -> u8 {
        Hash::of(format!("{} {call}", self.seed).as_bytes()).to_string().bytes().fold(0, u8::wrapping_add)
    }
}

impl Verifier for SimulatedVerifier {
    fn validate(&self, _: &RunSpec) -> Result<(), String> {
        Ok(())
    }

    fn validates_without_blocking(&self) -> bool {
        true
    }

    fn verify(&self, verification: Verification) -> BoxFuture<'static, Vec<ExpectationMiss>> {
        let dice = self.dice(verification.call);
        Box::pin(async move {
            match dice % 8 {
                0 | 1 => verification.all_missing("it does not exist"),
                2 => verification.all_missing("it does not exist").split_off(1),
                3 => pending().await,
                4 => panic!("planned: the check panics"),
                5 => {
                    tokio::time::sleep(SLOW).await;
                    Vec::new()
                }
                _ => Vec::new(),
            }
        })
    }
}

/// A run with expectations is completed only if a check without a miss is recorded after its last answer; one that fails
/// for them was told once.
pub(super) fn completed_is_checked(past: &FinalState<'_>) -> Violations {
    let mut found = Violations::new();
    for records in past.journals.values() {
        let mut expects: BTreeMap<RunId, bool> = BTreeMap::new();
        let mut holds: BTreeMap<RunId, bool> = BTreeMap::new();
        let mut missed: BTreeMap<RunId, usize> = BTreeMap::new();
        for record in records {
            match &record.body {
                Body::RunAccepted(accepted) => {
                    expects.insert(accepted.run, !accepted.spec.expects.is_empty());
                }
                Body::ModelAnswered(answered) => drop(holds.remove(&answered.call.run)),
                Body::RunVerified(verified) => {
                    let all_hold = verified.misses.is_empty();
                    holds.insert(verified.call.run, all_hold);
                    *missed.entry(verified.call.run).or_default() += usize::from(!all_hold);
                }
                Body::RunEnded(ended) => {
                    let is_expected = expects.get(&ended.run) == Some(&true);
                    let (holds, missed) = (holds.get(&ended.run), missed.get(&ended.run).copied());
                    let is_failed = ended.ended.to_string().starts_with("failed (expectation");
                    if ended.ended.outcome == Outcome::Completed && is_expected && holds != Some(&true) {
                        found.push(format!("{} is completed, and its check is {holds:?}", ended.run));
                    }
                    if is_failed && missed != Some(2) {
                        found.push(format!("{} fails after {missed:?} checks with a miss", ended.run));
                    }
                }
                _ => {}
            }
        }
    }
    found
}
