//! The way of a summary call to its start: the Compressor admits it, then a task waits for a lease.

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

/// What a summary call needs to start.
#[derive(Debug)]
pub(crate) struct SummaryLease {
    pub(super) lease: Lease,
    /// The permit of the Compressor.
    pub(super) permit: SummaryPermit,
}

impl TaskSpawner {
    /// Waits for the admission and the lease of the summary call.
    pub(super) fn acquire_summary(
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
            let lease =
                lease_wait::wait_for_lease(&parts, &candidates, &publisher, Some(MAX_SUMMARY_WAIT_MS)).await;
            let message = match lease {
                Ok(lease) => {
                    let model = lease.admission.model.clone();
                    let lease = Box::new(SummaryLease { lease, permit });
                    SessionInternalMsg::Granted(Input::Leased { id, model }, Grant::Summary(lease))
                }
                Err(skipped) => SessionInternalMsg::Input(Input::NoLease { id, skipped }),
            };
            send(&session, message);
        });
        InFlightTask::SummaryWait(wait, urgency)
    }
}
