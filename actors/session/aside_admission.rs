//! The way of an aside to its start: the Compressor admits it, then a task waits for a lease. Then hooks may annotate the
//! prompt of a summary, once for each compaction.

use std::sync::Arc;

use tokio::sync::watch;

use crate::{
    compressor::{SummaryAdmission, SummaryPermit},
    model::{AsideJob, AttemptId, HookAnswer, HookPoint, HookedSummary, ModelRef, RunSpec, SessionId},
    policy::{Candidate, SummaryUrgency},
    port::{HookQuestion, HookSubject},
    provider::Lease,
    redaction::redact_hook_answer,
    session::{
        SessionInternalMsg, lease_wait,
        memory_task::flush_objection,
        shell::Grant,
        stream_publisher::StreamPublisher,
        tasks::{InFlightTask, TaskSpawner, send},
    },
    supervisor::RuntimeParts,
    turn::{Input, Turn},
};

/// Most milliseconds that an admitted summary or memory flush waits for a model that is not available at present. After that,
/// compaction continues without it.
const MAX_SUMMARY_WAIT_MS: u64 = 1_000;
/// The same for other asides: no run waits for a title, and without a description a model is blind.
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
        turn: &Turn,
        id: AttemptId,
        candidates: Vec<Candidate>,
        urgency: SummaryUrgency,
    ) -> InFlightTask {
        let (urgency, mut updates) = watch::channel(urgency);
        let (parts, session, session_id) = (Arc::clone(&self.parts), self.session.clone(), self.id);
        let publisher = StreamPublisher::new(&self.parts, self.id, id);
        let on_panic = self.report_panic();
        let unhooked = (turn.unhooked_summary_bytes().filter(|_| id.call.is_summary()))
            .zip(turn.current().map(|(_, spec)| Arc::clone(spec)));
        let job = id.call.job();
        let is_of_compaction = job.is_some_and(AsideJob::is_of_compaction);
        let flushed =
            turn.current().filter(|_| job == Some(AsideJob::Memory)).map(|(_, spec)| Arc::clone(spec));
        let wait = self.tasks.spawn(async move {
            let _on_panic = on_panic;
            if let Some(objection) = flushed.and_then(|spec| flush_objection(&parts, &spec)) {
                let skipped = Arc::new([objection]);
                return send(&session, SessionInternalMsg::Input(Input::NoLease { id, skipped }));
            }
            let admission = parts.compressor.admit(session_id, id.call, &candidates, &mut updates).await;
            let Some(SummaryAdmission { candidates, permit }) = admission else { return };
            let max_ms = if is_of_compaction { MAX_SUMMARY_WAIT_MS } else { MAX_OTHER_WAIT_MS };
            let lease = lease_wait::wait_for_lease(&parts, &candidates, &publisher, Some(max_ms)).await;
            let message = match lease {
                Ok(lease) => {
                    let model = lease.admission.model.clone();
                    let hooks = match unhooked {
                        Some(subject) => Box::pin(ask_hooks(&parts, (session_id, id), &model, subject)).await,
                        None => None,
                    };
                    let lease = Box::new(AsideLease { lease, permit });
                    let input = match id.call.is_summary() {
                        true => Input::SummaryLeased { id, model, hooks },
                        false => Input::Leased { id, model },
                    };
                    SessionInternalMsg::Granted(input, Grant::Aside(lease))
                }
                Err(skipped) => SessionInternalMsg::Input(Input::NoLease { id, skipped }),
            };
            send(&session, message);
        });
        InFlightTask::AsideWait(wait, urgency)
    }
}

/// Asks the hooks about a summary of so many bytes; `None` if there are none. Nothing that they do keeps it from being made:
/// without it the run could not go on.
async fn ask_hooks(
    parts: &RuntimeParts,
    (session, id): (SessionId, AttemptId),
    model: &ModelRef,
    (bytes, spec): (u64, Arc<RunSpec>),
) -> Option<Arc<HookedSummary>> {
    let point = HookPoint::BeforeCompaction;
    if !parts.hooks.is_asked(point, None) {
        return None;
    }
    let subject = HookSubject::Compaction { model: model.clone(), bytes };
    // All attempts for a summary are one question.
    let id = id.call.attempt(0);
    let mut answer = parts.hooks.ask(HookQuestion { point, session, id, spec, subject }).await;
    redact_hook_answer(&mut answer, &*parts.redactor);
    let HookAnswer { decisions, replacement } = answer;
    let annotation = replacement.as_ref().and_then(|text| text.as_str()).map(Arc::from);
    Some(Arc::new(HookedSummary { decisions: decisions.into(), annotation }))
}
