//! Port of verification: looks whether the expectations of a run hold, before the run counts as completed.

use std::{fmt::Debug, future::ready, sync::Arc};

use futures::future::BoxFuture;

use crate::model::{CallId, Expectation, ExpectationMiss, RunSpec, Timestamp};

/// Checks what runs have to leave behind. It belongs to the process, as the tools do.
pub trait Verifier: Debug + Send + Sync + 'static {
    /// Whether the expectations of this spec can be checked, and may be: a command only if the run may run it. The error
    /// names the first that cannot, with the remedy. Called on a thread that may block. Steps, memory and stack depth
    /// must be bounded for all expectations: clients write them.
    fn validate(&self, spec: &RunSpec) -> Result<(), String>;

    /// Whether `validate` neither blocks nor computes for long, and may be called in a task.
    fn validates_without_blocking(&self) -> bool {
        false
    }

    /// Checks the expectations of a run, and returns those that do not hold. The same check may be made several times. A
    /// command that outlives its time limit is ended, and counts as missing. When the future is dropped, nothing that it
    /// started keeps running.
    fn verify(&self, verification: Verification) -> BoxFuture<'static, Vec<ExpectationMiss>>;
}

/// A check of a run's expectations.
#[derive(Debug, Clone)]
pub struct Verification {
    /// The model call that has given the answer.
    pub call: CallId,
    /// The spec of the run, with the expectations.
    pub spec: Arc<RunSpec>,
    /// The text of the answer.
    pub answer: Arc<str>,
    /// The start of the run.
    pub started_at: Timestamp,
}

impl Verification {
    /// All expectations as missing, for the same reason.
    pub fn all_missing(&self, reason: &str) -> Vec<ExpectationMiss> {
        let expects = self.spec.expects.iter().enumerate();
        expects.map(|(n, expectation)| ExpectationMiss::new(n, expectation, reason)).collect()
    }
}

/// The verifier of a runtime that was given none. It takes no expectations.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoVerifier;

const NO_VERIFIER: &str = "this runtime checks no expectations; leave them out, or give it a verifier";

impl Verifier for NoVerifier {
    fn validate(&self, spec: &RunSpec) -> Result<(), String> {
        if spec.expects.is_empty() { Ok(()) } else { Err(NO_VERIFIER.into()) }
    }

    fn verify(&self, verification: Verification) -> BoxFuture<'static, Vec<ExpectationMiss>> {
        Box::pin(ready(verification.all_missing(NO_VERIFIER)))
    }
}

/// The time limits of an expectation's command, for reports and for the watchdog.
pub(crate) fn command_timeouts_ms(expects: &[Expectation]) -> impl Iterator<Item = u64> {
    expects.iter().filter_map(Expectation::command_timeout_ms)
}
