//! The part of the Compressor that outlives its actor: the stable reference and the permits. By it a session's task
//! waits for the admission of a summary call.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::{CompressorMsg, SummaryAdmission, SummaryJob};
use crate::{
    model::{CallId, SessionId},
    policy::{Candidate, SummaryReport, SummaryUrgency},
    supervisor::StableActorRef,
};

/// How sessions reach the Compressor.
#[derive(Debug)]
pub(crate) struct CompressorHandle {
    pub(crate) actor: Arc<StableActorRef<CompressorMsg>>,
    /// One permit for each summary call in progress.
    permits: Arc<Semaphore>,
    /// Number of permits, at least 1.
    max_concurrent: usize,
}

/// Permission for one summary call in progress; returned when dropped.
#[derive(Debug)]
pub(crate) struct SummaryPermit {
    /// `None` after the return.
    permit: Option<OwnedSemaphorePermit>,
    actor: Arc<StableActorRef<CompressorMsg>>,
    report: Option<SummaryReport>,
}

impl SummaryPermit {
    pub(super) const fn new(permit: OwnedSemaphorePermit, actor: Arc<StableActorRef<CompressorMsg>>) -> Self {
        Self { permit: Some(permit), actor, report: None }
    }

    /// The call has ended with this report, if it has one.
    pub(crate) fn end_call(mut self, report: Option<SummaryReport>) {
        self.report = report;
    }
}

impl Drop for SummaryPermit {
    fn drop(&mut self) {
        // Returned first: the actor looks for free permits when it has the report.
        drop(self.permit.take());
        if self.actor.cast(CompressorMsg::Released(self.report.take())).is_err() {
            tracing::debug!("the runtime has ended before the return of a permit");
        }
    }
}

impl CompressorHandle {
    /// A handle with this number of permits, at least one.
    pub(crate) fn new(max_concurrent: usize) -> Self {
        let max_concurrent = max_concurrent.clamp(1, Semaphore::MAX_PERMITS);
        Self { actor: Arc::default(), permits: Arc::new(Semaphore::new(max_concurrent)), max_concurrent }
    }

    /// Waits until the Compressor admits the call; `None` if the runtime or the session ends first. A job that is lost
    /// with the actor is sent again to the next one.
    pub(crate) async fn admit(
        &self,
        session: SessionId,
        call: CallId,
        candidates: &[Candidate],
        urgency: &mut watch::Receiver<SummaryUrgency>,
    ) -> Option<SummaryAdmission> {
        loop {
            let (reply, mut admission) = oneshot::channel();
            let (urgent, candidates) = (*urgency.borrow_and_update(), candidates.to_vec());
            let job = SummaryJob { session, call, urgency: urgent, candidates, reply };
            self.actor.cast(CompressorMsg::Request(job)).ok()?;
            loop {
                tokio::select! {
                    biased;
                    admission = &mut admission => match admission {
                        Ok(admission) => return Some(admission),
                        Err(_) => break,
                    },
                    changed = urgency.changed() => {
                        // Without a sender the session is gone.
                        changed.ok()?;
                        let urgent = *urgency.borrow_and_update();
                        self.actor.cast(CompressorMsg::Update(call, urgent)).ok()?;
                    }
                }
            }
        }
    }

    pub(super) fn try_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.permits).try_acquire_owned().ok()
    }

    /// Whether the permit that was just taken was the last free one of several.
    pub(super) fn is_last_of_several(&self) -> bool {
        self.max_concurrent > 1 && self.permits.available_permits() == 0
    }

    /// Number of calls in progress.
    pub(super) fn running(&self) -> usize {
        self.max_concurrent.saturating_sub(self.permits.available_permits())
    }
}
