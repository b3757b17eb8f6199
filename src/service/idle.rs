//! When a service that a client has started in the background may end: it has no client, and nothing to do by itself.

use std::{
    future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::lifecycle::ServiceLifecycle;
use crate::{
    control::{RequestError, is_reachable},
    host::{HostError, runs_under_way},
};

/// The longest pause between two looks.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Resolves when the service has been idle for `patience`; never without one. `clients` is the number of connections of the control socket.
///
/// Runs that wait for a person do not keep a service: they are in the store. Schedules and channels do, because they can
/// begin work at any time.
pub(super) async fn wait_until_idle(
    lifecycle: &ServiceLifecycle,
    clients: &Arc<AtomicUsize>,
    patience: Option<Duration>,
) -> Result<(), HostError> {
    let Some(patience) = patience else { return future::pending().await };
    let interval = (patience / 10).min(MAX_POLL_INTERVAL);
    let mut idle_since = None;
    loop {
        sleep(interval).await;
        // Without its socket no client finds it, and its folder may be gone.
        if !is_reachable(lifecycle.host.state_dir()) {
            return Ok(());
        }
        let has_clients = clients.load(Ordering::Relaxed) > 0 || lifecycle.connections.get() > 0;
        if has_clients || has_work(lifecycle).await? {
            idle_since = None;
            continue;
        }
        if idle_since.get_or_insert_with(Instant::now).elapsed() >= patience {
            return Ok(());
        }
    }
}

async fn has_work(lifecycle: &ServiceLifecycle) -> Result<bool, HostError> {
    let runtime = &lifecycle.host.runtime;
    if runtime.pending_submissions() > 0 || !lifecycle.channels.views().is_empty() {
        return Ok(true);
    }
    if runs_under_way(&runtime.open_runs().await?).next().is_some() {
        return Ok(true);
    }
    let schedules = runtime.schedules().await.map_err(RequestError::from)?;
    Ok(schedules.iter().any(|schedule| schedule.next.is_some() && schedule.paused.is_none()))
}
