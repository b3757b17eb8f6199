//! The way of an aside to its start: the Compressor admits it, then a task waits for a lease.

use std::sync::Arc;

use tokio::sync::watch;

use crate::{
    compressor::{SummaryAdmission, SummaryPermit},
    model::AttemptId,
    policy::{Candidate, SummaryUrgency},
    provider::Lease,
    session::{
        SessionInternalMsg, lease_wait,
        shell::Grant,
        stream_publisher::StreamPublisher,
        tasks::{InFlightTask, TaskSpawner, send},
    },
    turn::Input,
};

/// Most milliseconds that an admitted summary waits for a model that is not available at present. After that,
/// compaction continues without a summary.
const MAX_SUMMARY_WAIT_MS: u64 = 1_000;
/// The same for an aside that no run waits for.
const MAX_OTHER_WAIT_MS: u64 = 30_000;

/// What an aside needs to start.
#[derive(Debug)]
pub(crate) struct AsideLease {
    pub(super) lease: Lease,
    /// The permit of the Compressor.
    pub(super) permit: SummaryPermit,
}

impl TaskSpawner {
    /// Waits for the admission and the lease of the aside.
    pub(super) fn acquire_aside(
        &self,
        id: AttemptId,
        candidates: Vec<Candidate>,
        urgency: SummaryUrgency,
    ) -> InFlightTask {
        let (urgency, mut updates) = watch::channel(urgency);
        let (parts, session, session_id) = (Arc::clone(&self.parts), self.session.clone(), self.id);
        let publisher = StreamPublisher::new(&self.parts, self.id, id);
        let on_panic = self.report_panic();
        let wait = self.tasks.spawn(async move {
            let _on_panic = on_panic;
            let admission = parts.compressor.admit(session_id, id.call, &candidates, &mut updates).await;
            let Some(SummaryAdmission { candidates, permit }) = admission else { return };
            let max_ms = if id.call.is_summary() { MAX_SUMMARY_WAIT_MS } else { MAX_OTHER_WAIT_MS };
            let lease = lease_wait::wait_for_lease(&parts, &candidates, &publisher, Some(max_ms)).await;
            let message = match lease {
                Ok(lease) => {
                    let model = lease.admission.model.clone();
                    let lease = Box::new(AsideLease { lease, permit });
                    SessionInternalMsg::Granted(Input::Leased { id, model }, Grant::Aside(lease))
                }
                Err(skipped) => SessionInternalMsg::Input(Input::NoLease { id, skipped }),
            };
            send(&session, message);
        });
        InFlightTask::AsideWait(wait, urgency)
    }
}
