//! The state of the calls that describe pictures. Folds records; `vision.rs` decides.

use std::sync::Arc;

use crate::{
    model::{AsideJob, Body, CallId, ModelStarted, RunId, SessionTime},
    turn::aside_call::{AsideCall, max_attempts},
};

/// The calls for descriptions of a run.
#[derive(Debug, Clone)]
pub(super) struct VisionState {
    /// Number of the call that is next or under way, from 1 in its run.
    pub(super) nth: u32,
    pub(super) call: AsideCall,
    /// The handle of the last picture that needs no call any more: it is described, or its call was given up.
    pub(super) settled: Option<String>,
}

impl VisionState {
    pub(super) const fn new() -> Self {
        Self { nth: 1, call: AsideCall::new(1), settled: None }
    }

    /// The attempt under way.
    pub(super) const fn started(&self) -> Option<&Arc<ModelStarted>> {
        self.call.started()
    }

    /// The id of the call.
    pub(super) fn id(&self, run: RunId) -> CallId {
        CallId::aside(run, self.nth, AsideJob::Vision)
    }

    /// Folds a record about the call; others change nothing. `links` is the length of the chain. Returns whether the
    /// call is over.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other kinds do not change descriptions")]
    pub(super) fn apply(&mut self, (body, run): (&Body, RunId), links: usize, now: SessionTime) -> bool {
        let id = self.id(run);
        match body {
            Body::AsideStarted(started) if started.call == id => self.call.on_started(started, now),
            Body::AsideAnswered(answered) if answered.call == id => {
                self.call.on_answered(answered, links);
                self.call.is_given_up |= answered.attempt >= max_attempts(AsideJob::Vision);
                return answered.unusable.is_none() || self.call.is_given_up;
            }
            Body::AsideFailed(failed) if failed.call == id => {
                self.call.on_failed(failed, now);
                return self.call.is_given_up;
            }
            _ => {}
        }
        false
    }
}
