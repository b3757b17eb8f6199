//! One attempt of a model call: loads its images, calls the provider, and renews a refused credential. Its end is
//! reported to the gate and to the provider's actor. `model_task.rs` makes the request and starts the task.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::{
    active_deadline::ActiveDeadline,
    model::{Failure, FailureClass, HookPoint, ModelAnswer, ModelRef, ModelStarted, RequestFate, RunSpec},
    policy::{CredentialRecovery, validate_usage},
    port::{
        ArtifactError, ArtifactName, Artifacts, HookQuestion, HookSubject, ModelProvider, ModelRequest,
        TextRedactor,
    },
    provider::{AnswerReport, AttemptReport, Gate, GateAdmission, Lease, ProviderMsg},
    redaction::{redact_answer, redact_failure, redact_hook_answer},
    session::{
        stream_publisher::{FirstDeltaObserver, StreamPublisher},
        watchdog,
    },
    supervisor::RuntimeParts,
    turn::FailoverOptions,
};

/// Most bytes of an image that are read.
const MAX_IMAGE_READ_BYTES: usize = 20 << 20;
/// Limit for renewing a credential.
pub(super) const RENEW_TIMEOUT: Duration = Duration::from_secs(30);

/// Makes the attempt. The gate knows its end before the session does.
pub(super) async fn run(
    parts: &RuntimeParts,
    (lease, spec, started): (Lease, &Arc<RunSpec>, &ModelStarted),
    mut request: Box<ModelRequest>,
    (publisher, cancel): (&StreamPublisher, &CancellationToken),
) -> Result<ModelAnswer, (Failure, FailoverOptions)> {
    let Lease { admission, permit } = lease;
    let (model, endpoint) = (admission.model.clone(), Arc::clone(admission.endpoint()));
    let gate = Arc::clone(admission.gate());
    let credential = admission.credential;
    // Boxed, as the other rare steps: each session with a model call under way has the memory of its task.
    let images = load_images(&*parts.executor.artifacts, &request);
    match Box::pin(watchdog::read_images(images, cancel)).await {
        Ok(images) => request.images = images,
        // The provider was not called, so its breakers and statistics learn nothing.
        Err(failure) => {
            tracing::warn!(%failure, "not asked");
            drop((admission, permit));
            let links = link_availabilities(parts, &spec.chain);
            return Err((failure, FailoverOptions { links, recovery: CredentialRecovery::No }));
        }
    }
    if let Some(refusal) = Box::pin(hook_refusal(parts, &request, (spec, started), cancel)).await {
        tracing::warn!(%refusal, "not asked");
        drop((admission, permit));
        let links = link_availabilities(parts, &spec.chain);
        return Err((refusal, FailoverOptions { links, recovery: CredentialRecovery::No }));
    }
    let begun_ms = parts.clock.monotonic_ms();
    let observer = FirstDeltaObserver::new(publisher, &admission, &*parts.clock);
    let limit = watchdog::call_limit(endpoint.longest_call(), request.deadlines.call_ms);
    let mut answer = watchdog::run_model(endpoint.call(*request, &observer), limit, cancel).await;
    redact(&mut answer, publisher, &*parts.redactor);
    match &answer {
        Ok(_) => tracing::debug!("answered"),
        Err(failure) => tracing::warn!(%failure, "failed"),
    }
    // An implausible usage must not count against the account's limits either.
    let (usage, anomaly) = match &answer {
        Ok(answer) => validate_usage(started, &answer.message, answer.usage),
        Err(_) => (None, None),
    };
    let answer_report = |_: &ModelAnswer| AnswerReport {
        first_delta_ms: observer.started_ms().map(|at_ms| at_ms.saturating_sub(begun_ms)),
        output_tokens: usage.map(|usage| usage.output_tokens),
        anomaly,
    };
    let end = answer.as_ref().map(answer_report).map_err(Clone::clone);
    let duration_ms = parts.clock.monotonic_ms().saturating_sub(begun_ms);
    let report = Box::new(AttemptReport { model, credential, duration_ms, end });
    match answer {
        Ok(answer) => {
            admission.end(Ok(usage), parts.clock.at());
            send_report(&gate, report);
            Ok(answer)
        }
        Err(failure) => {
            let reported = report_failure(parts, &*endpoint, admission, &failure, cancel);
            let recovery = Box::pin(reported).await;
            send_report(&gate, report);
            drop(permit);
            Err((failure, FailoverOptions { links: link_availabilities(parts, &spec.chain), recovery }))
        }
    }
}

/// Why hooks keep the attempt from being sent.
async fn hook_refusal(
    parts: &RuntimeParts,
    request: &ModelRequest,
    (spec, started): (&Arc<RunSpec>, &ModelStarted),
    cancel: &CancellationToken,
) -> Option<Failure> {
    let point = HookPoint::BeforeModelCall;
    if !parts.hooks.is_asked(point, None) {
        return None;
    }
    let ModelStarted { model, bytes, max_tokens, .. } = started;
    let subject = HookSubject::ModelCall { model: model.clone(), bytes: *bytes, max_tokens: *max_tokens };
    let (session, id, spec) = (request.session, started.id(), Arc::clone(spec));
    let mut answer = tokio::select! {
        biased;
        () = cancel.cancelled() => {
            let cancelled = Failure::new(FailureClass::Cancelled, "the run was stopped while hooks were asked");
            return Some(cancelled.with_request(RequestFate::NotSent));
        }
        answer = parts.hooks.ask(HookQuestion { point, session, id, spec, subject }) => answer,
    };
    redact_hook_answer(&mut answer, &*parts.redactor);
    let refusal = Failure::new(FailureClass::ContentRefused, answer.refusal_text()?);
    Some(refusal.with_request(RequestFate::NotSent))
}

/// Redacts the end of an attempt before it is reported or recorded, and before the calls of an answer are prepared: the
/// recorded arguments are those that are executed.
fn redact(
    answer: &mut Result<ModelAnswer, Failure>,
    publisher: &StreamPublisher,
    redactor: &dyn TextRedactor,
) {
    match answer {
        Ok(answer) => {
            publisher.finish();
            redact_answer(answer, redactor);
        }
        Err(failure) => redact_failure(failure, redactor),
    }
}

/// Reports the attempt to the provider's actor. The gate knows of its end before, because the actor looks there for
/// open breakers.
fn send_report(gate: &Gate, report: Box<AttemptReport>) {
    if gate.actor.cast(ProviderMsg::Report(report)).is_err() {
        tracing::debug!("a report to a provider without an actor");
    }
}

/// Loads the images of a request by their handles.
async fn load_images(
    artifacts: &dyn Artifacts,
    request: &ModelRequest,
) -> Result<BTreeMap<String, Bytes>, Failure> {
    let mut images = BTreeMap::new();
    for image in request.messages.images() {
        let handle = &image.artifact.handle;
        if images.contains_key(handle) {
            continue;
        }
        let unreadable = |error: ArtifactError| {
            let class = match error {
                ArtifactError::NotFound(_) | ArtifactError::Removed { .. } | ArtifactError::Altered(_) => {
                    FailureClass::InvalidRequest
                }
                ArtifactError::Unavailable(_) => FailureClass::NotSent,
            };
            let message = format!("the picture {handle} of this conversation cannot be read: {error}");
            Failure::new(class, message)
        };
        let name = ArtifactName::from_handle(request.session, handle)
            .ok_or_else(|| unreadable(ArtifactError::NotFound(handle.clone())))?;
        if let Some(sha256) = &image.artifact.sha256 {
            artifacts.verify(name, **sha256).await.map_err(unreadable)?;
        }
        let read = artifacts.read(name, 0, MAX_IMAGE_READ_BYTES).await.map_err(unreadable)?;
        images.insert(handle.clone(), read.bytes);
    }
    Ok(images)
}

/// Reports a failure to the gate. A refused credential is renewed first; if that succeeds, the refusal does not count.
async fn report_failure(
    parts: &RuntimeParts,
    endpoint: &dyn ModelProvider,
    admission: GateAdmission,
    failure: &Failure,
    cancel: &CancellationToken,
) -> CredentialRecovery {
    if failure.class == FailureClass::Auth && admission.is_renewable() {
        let mut deadline = ActiveDeadline::after(RENEW_TIMEOUT);
        let renew = deadline.bound(endpoint.renew(admission.credential));
        let renewed = tokio::select! {
            biased;
            () = cancel.cancelled() => false,
            renewed = renew => renewed.unwrap_or(false),
        };
        if renewed {
            admission.mark_renewed();
            return CredentialRecovery::Renewed;
        }
    }
    admission.end(Err(failure), parts.clock.at())
}

fn link_availabilities(parts: &RuntimeParts, chain: &[ModelRef]) -> Vec<crate::policy::LinkAvailability> {
    let now = parts.clock.at();
    chain.iter().map(|model| parts.leases.availability(model, now)).collect()
}
