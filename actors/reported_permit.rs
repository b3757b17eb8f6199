//! A permit of a semaphore whose return is reported to an actor.

use std::sync::Arc;

use ractor::Message;
use tokio::sync::OwnedSemaphorePermit;

use crate::supervisor::StableActorRef;

/// A permit that is returned when dropped. Then the actor gets the report, and looks for free permits.
#[derive(Debug)]
pub(crate) struct ReportedPermit<M: Message> {
    permit: Option<OwnedSemaphorePermit>,
    actor: Arc<StableActorRef<M>>,
    /// `None` after the return.
    report: Option<M>,
}

impl<M: Message> ReportedPermit<M> {
    pub(crate) const fn new(permit: OwnedSemaphorePermit, actor: Arc<StableActorRef<M>>, report: M) -> Self {
        Self { permit: Some(permit), actor, report: Some(report) }
    }

    /// The same permit with another report.
    pub(crate) fn with_report(mut self, report: M) -> Self {
        self.report = Some(report);
        self
    }
}

impl<M: Message> Drop for ReportedPermit<M> {
    fn drop(&mut self) {
        drop(self.permit.take());
        if self.report.take().is_some_and(|report| self.actor.cast(report).is_err()) {
            tracing::debug!("the runtime has ended before the return of a permit");
        }
    }
}
