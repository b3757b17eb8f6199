//! One attempt of a model call, and what its end means to whoever gives leases.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::{
    active_deadline::ActiveDeadline,
    model::{Answer, Failure, FailureClass, ModelRef, ModelStarted, RunSpec},
    policy::{Otherwise, believed},
    port::{ArtifactError, ArtifactName, Artifacts, ModelRequest, Provider},
    provider::{Admission, Lease, ProviderMsg, Report},
    session::{
        Wiring,
        said::{Heard, Published},
        watchdog,
    },
    supervisor::ProvidersMsg,
    turn::FailoverOptions,
};

/// Bytes that a picture may have.
const MAX_PICTURE: usize = 20 << 20;
/// What renewing a credential may take.
pub(super) const RENEWING: Duration = Duration::from_secs(30);

/// Makes the attempt. The gate knows how it ended before the session does.
pub(super) async fn make(
    wiring: &Wiring,
    (lease, chain, started): (Lease, &RunSpec, &ModelStarted),
    mut request: ModelRequest,
    (published, cancel): (&Published, &CancellationToken),
) -> Result<Answer, (Failure, FailoverOptions)> {
    let Lease { admission, permit } = lease;
    let (model, endpoint) = (admission.model().clone(), Arc::clone(admission.endpoint()));
    let credential = admission.credential();
    match watchdog::shown(pictures(&*wiring.tools.artifacts, &request), cancel).await {
        Ok(pictures) => request.pictures = pictures,
        // The provider was not asked, and has said nothing.
        Err(failure) => {
            tracing::warn!(%failure, "not asked");
            drop((admission, permit));
            let links = standings(wiring, &chain.chain);
            return Err((failure, FailoverOptions { links, recovery: Otherwise::No }));
        }
    }
    let heard = Heard::new(published, &admission, &*wiring.clock);
    let limit = watchdog::of_call(&*endpoint, request.deadlines.call_ms);
    let answer = watchdog::answer(endpoint.call(request, &heard), limit, cancel).await;
    match &answer {
        Ok(_) => tracing::debug!("answered"),
        Err(failure) => tracing::warn!(%failure, "failed"),
    }
    // A usage that is not believed must not fill the limits of the account either.
    let (usage, anomaly) = match &answer {
        Ok(answer) => believed(started, &answer.message, answer.usage),
        Err(_) => (None, None),
    };
    let end = answer.as_ref().map(|_| anomaly).map_err(Clone::clone);
    let report = ProviderMsg::Report(Report { model: model.clone(), credential, end });
    if wiring.providers.cast(ProvidersMsg::To(Arc::clone(model.provider()), report)).is_err() {
        tracing::debug!("the supervisor of providers is gone");
    }
    match answer {
        Ok(answer) => {
            admission.end(Ok(usage), wiring.clock.at());
            Ok(answer)
        }
        Err(failure) => {
            let otherwise = told(wiring, (&*endpoint, admission), &failure, cancel).await;
            drop(permit);
            Err((failure, FailoverOptions { links: standings(wiring, &chain.chain), recovery: otherwise }))
        }
    }
}

/// The pictures that a request shows.
async fn pictures(kept: &dyn Artifacts, request: &ModelRequest) -> Result<BTreeMap<String, Bytes>, Failure> {
    let mut pictures = BTreeMap::new();
    for image in request.messages.images() {
        let handle = &image.artifact.handle;
        if pictures.contains_key(handle) {
            continue;
        }
        let unread = |error: ArtifactError| {
            let class = match error {
                ArtifactError::NotFound(_) | ArtifactError::Removed { .. } | ArtifactError::Altered(_) => {
                    FailureClass::InvalidRequest
                }
                ArtifactError::Unavailable(_) => FailureClass::NotMade,
            };
            let message = format!("the picture {handle} of this conversation cannot be read: {error}");
            Failure::new(class, message)
        };
        let name = ArtifactName::of_handle(request.session, handle)
            .ok_or_else(|| unread(ArtifactError::NotFound(handle.clone())))?;
        if let Some(sha256) = &image.artifact.sha256 {
            kept.verify(name, **sha256).await.map_err(unread)?;
        }
        let read = kept.read(name, 0, MAX_PICTURE).await.map_err(unread)?;
        pictures.insert(handle.clone(), read.bytes);
    }
    Ok(pictures)
}

/// Tells the gate of a failure, unless it was the credential's and that is another one now.
async fn told(
    wiring: &Wiring,
    (endpoint, admission): (&dyn Provider, Admission),
    failure: &Failure,
    cancel: &CancellationToken,
) -> Otherwise {
    if failure.class == FailureClass::Auth && admission.is_renewable() {
        let mut deadline = ActiveDeadline::after(RENEWING);
        let renew = deadline.bound(endpoint.renew(admission.credential()));
        let renewed = tokio::select! {
            biased;
            () = cancel.cancelled() => false,
            renewed = renew => renewed.unwrap_or(false),
        };
        if renewed {
            admission.renewed();
            return Otherwise::Renewed;
        }
    }
    admission.end(Err(failure), wiring.clock.at())
}

fn standings(wiring: &Wiring, chain: &[ModelRef]) -> Vec<crate::policy::Standing> {
    let now = wiring.clock.at();
    chain.iter().map(|model| wiring.leases.standing(model, now)).collect()
}
