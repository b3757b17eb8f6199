//! The time limits of a session's tasks in milliseconds, for reports of what a run waits for. `watchdog.rs` enforces
//! them.

use std::time::Duration;

use crate::{
    model::{AttemptId, ModelRef, RunSpec},
    session::{
        memory_task::SAVE_LIMIT,
        model_attempt::RENEW_TIMEOUT,
        verification::verification_limit,
        watchdog::{ARTIFACT_LIMIT, STOP_LIMIT, TOOL_LIMIT, call_limit},
    },
    supervisor::RuntimeParts,
    turn::TaskDeadlines,
};

impl TaskDeadlines for RuntimeParts {
    /// Reading the images, the call itself, and renewing a refused credential.
    fn model(&self, model: &ModelRef, spec: &RunSpec) -> u64 {
        let limit_ms = spec.profile_of(model).deadlines.call_ms;
        let endpoint = self.leases.endpoint(model);
        let call = endpoint.map_or(Duration::ZERO, |endpoint| call_limit(endpoint.longest_call(), limit_ms));
        ms(ARTIFACT_LIMIT + call + RENEW_TIMEOUT)
    }

    /// The tool's own limit, and writing a long result.
    fn tool(&self, attempt: AttemptId) -> u64 {
        ms(self.executor.limit_of(attempt).unwrap_or(TOOL_LIMIT) + ARTIFACT_LIMIT)
    }

    fn verify(&self, spec: &RunSpec) -> u64 {
        ms(verification_limit(spec))
    }

    fn memory(&self) -> u64 {
        ms(SAVE_LIMIT)
    }

    /// The stop limit of a tool, and the same time for writing its output.
    fn stop(&self) -> u64 {
        ms(STOP_LIMIT * 2)
    }
}

fn ms(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
}
