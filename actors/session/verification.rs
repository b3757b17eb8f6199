//! The task that checks the expectations of a run after its answer. A check that panics or takes too long ends like one
//! in which everything misses, so that the run still comes to its outcome.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures::FutureExt;
use tracing::Instrument;

use crate::{
    active_deadline::ActiveDeadline,
    model::{CallId, ExpectationMiss, RunSpec},
    port::{TextRedactor, Verification, command_timeouts_ms},
    redaction::redact_string,
    session::{
        SessionInternalMsg,
        tasks::{InFlightTask, TaskSpawner, send},
    },
    turn::{Input, Turn},
};

/// Time for files and schemas, beside the time limits of commands.
const FILES_LIMIT: Duration = Duration::from_mins(1);
/// Added to the time limit of each command, which the verifier itself enforces.
const COMMAND_SLACK: Duration = Duration::from_secs(30);

/// The limit of a check of the expectations of this spec.
pub(super) fn verification_limit(spec: &RunSpec) -> Duration {
    let commands = command_timeouts_ms(&spec.expects);
    commands.fold(FILES_LIMIT, |sum, ms| sum.saturating_add(Duration::from_millis(ms) + COMMAND_SLACK))
}

impl TaskSpawner {
    /// Checks the expectations of the run whose answer this call has given. Dropping the task ends the check.
    pub(super) fn verify(&self, turn: &Turn, call: CallId) -> InFlightTask {
        let (session, redactor) = (self.session.clone(), self.parts.redactor.clone());
        let verifier = self.parts.verifier.get();
        let verification = turn.unverified_run(call).map(|run| Verification {
            call,
            spec: run.spec,
            answer: run.answer,
            started_at: run.started_at,
        });
        let panic_guard = self.report_panic();
        let span = tracing::info_span!("verification", session = %self.id, run = %call.run, call = %call);
        let task = async move {
            let _panic_guard = panic_guard;
            let Some(verification) = verification else { return };
            let limit = verification_limit(&verification.spec);
            let check = {
                let verification = verification.clone();
                async move { ActiveDeadline::after(limit).bound(verifier.verify(verification)).await }
            };
            let mut misses = match AssertUnwindSafe(check).catch_unwind().await {
                Ok(Some(misses)) => misses,
                Ok(None) => {
                    verification.all_missing(&format!("was not checked within {} s", limit.as_secs()))
                }
                Err(_) => verification.all_missing("was not checked: the check panicked"),
            };
            misses.iter_mut().for_each(|miss| redact_miss(miss, &*redactor));
            tracing::debug!(misses = misses.len(), "checked");
            send(&session, SessionInternalMsg::Input(Input::Verified { call, misses }));
        };
        InFlightTask::Wait(self.tasks.spawn(task.instrument(span)))
    }
}

/// A reason may quote what a command has printed.
fn redact_miss(miss: &mut ExpectationMiss, redactor: &dyn TextRedactor) {
    let ExpectationMiss { n: _, expected, reason } = miss;
    redact_string(expected, redactor);
    redact_string(reason, redactor);
}
