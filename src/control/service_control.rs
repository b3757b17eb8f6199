//! What only a service does for its operator: its status, a drain, a reload of its configuration, a trial of a hook. The trait by which the
//! owner does it; `service/lifecycle.rs` implements it.

use std::{fmt::Debug, time::Duration};

use futures::future::BoxFuture;
use tokio::sync::mpsc;

use super::{
    commands::RuntimeSlot,
    error::RequestError,
    handler::with_heartbeats,
    protocol::{ControlRequest, ControlResponse},
};
use crate::view::{DrainView, HookView, ReloadView, ServiceStatusView};

/// Operates the service of this process.
pub trait ServiceControl: Debug + Send + Sync + 'static {
    /// Its status.
    fn status(&self) -> BoxFuture<'_, Result<ServiceStatusView, RequestError>>;

    /// Takes no more work. Resolves when the runs under way have ended or the time is over; the process ends then. It goes
    /// on when the future is dropped.
    fn drain(&self, timeout: Duration) -> BoxFuture<'_, Result<DrainView, RequestError>>;

    /// Reads the configuration again, for new runs. A bad one is refused as a whole, and the present one stays.
    fn reload(&self) -> BoxFuture<'_, Result<ReloadView, RequestError>>;

    /// Calls this hook again as if it had never failed.
    fn enable_hook(&self, name: &str) -> Result<HookView, RequestError>;
}

/// Has the service of this process answer a request, with heartbeats until then. `None` if the client is gone or the process
/// ends.
pub(super) async fn operate(
    slot: &RuntimeSlot,
    request: ControlRequest,
    to: &mpsc::Sender<ControlResponse>,
) -> Result<Option<ControlResponse>, RequestError> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "all others are answered elsewhere")]
    let answer = slot.operate(|service| async move {
        Ok(match request {
            ControlRequest::ServiceStatus {} => {
                ControlResponse::ServiceStatus(Box::new(service.status().await?))
            }
            ControlRequest::ServiceDrain { timeout_ms } => {
                ControlResponse::Drained(service.drain(Duration::from_millis(timeout_ms)).await?)
            }
            ControlRequest::ConfigReload {} => ControlResponse::Reloaded(service.reload().await?),
            ControlRequest::HooksEnable { name } => {
                ControlResponse::Hook(Box::new(service.enable_hook(&name)?))
            }
            _ => return Err(RequestError::internal("this is no request to a service")),
        })
    });
    Ok(with_heartbeats(answer, to).await?.flatten())
}
