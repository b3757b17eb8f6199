//! What only a service does for its operator: its status, a drain, a reload of its configuration. The trait by which the
//! owner does it; `service/lifecycle.rs` implements it.

use std::{fmt::Debug, time::Duration};

use futures::future::BoxFuture;

use super::error::RequestError;
use crate::view::{DrainView, ReloadView, ServiceStatusView};

/// Operates the service of this process.
pub trait ServiceControl: Debug + Send + Sync + 'static {
    /// Its status.
    fn status(&self) -> BoxFuture<'_, Result<ServiceStatusView, RequestError>>;

    /// Takes no more work. Resolves when the runs under way have ended or the time is over; the process ends then. It goes
    /// on when the future is dropped.
    fn drain(&self, timeout: Duration) -> BoxFuture<'_, Result<DrainView, RequestError>>;

    /// Reads the configuration again, for new runs. A bad one is refused as a whole, and the present one stays.
    fn reload(&self) -> BoxFuture<'_, Result<ReloadView, RequestError>>;
}
