//! The service as its operator sees it: why it is not healthy, its status, its drain and its reload, by the control socket
//! and by SIGHUP.

use std::{convert::Infallible, future, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use hermod_actors::{
    ProviderStatus, Runtime,
    model::{BreakerState, RunState, Timestamp},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Mutex,
};

use super::{Service, metrics::LiveCount, tls::TlsAcceptor};
use crate::{
    channel::Channels,
    clock,
    control::{RequestError, ServiceControl, StoreReader},
    host::{Exchangeable, HostError, RunSubmitter, RuntimeHost, ServiceManager},
    prompt::LayeredPrompt,
    view::{
        BreakerView, DrainView, HookView, ReloadView, ServicePhase, ServiceStatusView, UnfinishedRunsView,
    },
};

/// Milliseconds after which a write to the store counts as stuck.
const STUCK_WRITE_MS: u64 = 30_000;

/// Operates a running service.
#[derive(Debug)]
pub(super) struct ServiceLifecycle {
    pub(super) host: Arc<RuntimeHost>,
    pub(super) submitter: Arc<RunSubmitter>,
    pub(super) reader: StoreReader,
    pub(super) prompt: Arc<Exchangeable<LayeredPrompt>>,
    pub(super) manager: ServiceManager,
    /// Where clients reach it.
    pub(super) url: String,
    pub(super) tls: Option<Arc<TlsAcceptor>>,
    pub(super) started_at: Timestamp,
    pub(super) connections: LiveCount,
    pub(super) streams: LiveCount,
    pub(super) channels: Arc<Channels>,
    /// Held during a reload: one at a time.
    pub(super) reloading: Mutex<()>,
}

/// Why a service does not take work; empty if it does. The first word of each is a name for programs.
pub(super) fn unready_reasons(runtime: &Runtime, submitter: &RunSubmitter) -> Vec<String> {
    let health = runtime.health_probe();
    let mut reasons = Vec::new();
    if submitter.drain().is_requested() {
        reasons.push("draining: the service takes no new work, and ends with its runs".to_owned());
    }
    if !submitter.may_submit() {
        reasons.push(
            "probation: the process has crashed repeatedly, and its unfinished runs go on one at a time first".to_owned(),
        );
    }
    if let Some(full) = health.disk_full() {
        reasons.push(format!("disk_full: {} needs {} bytes", full.path, full.needed_bytes));
    } else if health.writing_since().is_some_and(|since| clock::now().ms_since(since) > STUCK_WRITE_MS) {
        reasons.push("store_stuck: a write has not returned for 30 s".to_owned());
    }
    let stalled = health.stalled_handlers().len();
    if stalled > 0 {
        reasons.push(format!("stalled: {stalled} message handlers do not return"));
    }
    reasons
}

impl ServiceLifecycle {
    /// Of a service that clients reach at this URL.
    pub(super) fn new(
        service: &Service,
        host: Arc<RuntimeHost>,
        (prompt, manager, channels): (Arc<Exchangeable<LayeredPrompt>>, ServiceManager, Arc<Channels>),
        url: String,
    ) -> Self {
        Self {
            host,
            submitter: Arc::clone(&service.submitter),
            reader: service.handler.reader().clone(),
            prompt,
            manager,
            channels,
            url,
            tls: service.tls.clone(),
            started_at: service.metrics.started_at,
            connections: service.metrics.connections.clone(),
            streams: service.metrics.streams.clone(),
            reloading: Mutex::new(()),
        }
    }

    /// Clients are served from now on.
    pub(super) fn on_ready(&self) {
        self.manager.ready(&format!("serves {}", self.url));
    }

    async fn current_status(&self) -> Result<ServiceStatusView, RequestError> {
        let runtime = &self.host.runtime;
        let rows = self.reader.read(|rows| rows.open_runs()).await?;
        let count = |state| rows.iter().filter(|row| row.state == state).count();
        let phase = match (self.submitter.drain().is_requested(), self.submitter.may_submit()) {
            (true, _) => ServicePhase::Draining,
            (false, false) => ServicePhase::Probation,
            (false, true) => ServicePhase::Serving,
        };
        Ok(ServiceStatusView {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            address: self.url.clone(),
            state_dir: self.host.state_dir().to_owned(),
            started_at: self.started_at,
            phase,
            reasons: unready_reasons(runtime, &self.submitter),
            runs: UnfinishedRunsView {
                queued: count(RunState::Queued),
                running: count(RunState::Running),
                parked: count(RunState::Parked),
            },
            submissions: runtime.pending_submissions(),
            sessions: runtime.supervision_counts().await?.1.live,
            breakers: runtime.providers().await.iter().flat_map(open_breakers).collect(),
            hooks: self.host.hooks().hooks().iter().map(|hook| hook.view()).collect(),
            gone_targets: self.host.gone_targets(),
            channels: self.channels.views(),
            connections: self.connections.get(),
            streams: self.streams.get(),
        })
    }

    async fn reload_now(&self) -> Result<ReloadView, HostError> {
        let _one_at_a_time = self.reloading.lock().await;
        self.manager.reloading();
        let reloaded = self.exchange_all().await;
        self.on_ready();
        match &reloaded {
            Ok(ReloadView { changed, restart, .. }) => {
                tracing::info!(?changed, ?restart, "the configuration is reloaded");
            }
            Err(error) => tracing::error!(%error, "the configuration is not reloaded, the present one stays"),
        }
        reloaded
    }

    /// Exchanges the configuration and the certificate, or nothing.
    async fn exchange_all(&self) -> Result<ReloadView, HostError> {
        let certificate = match &self.tls {
            Some(tls) => Some((tls, tls.read_files().await?)),
            None => None,
        };
        let reloaded = self.submitter.reload(&self.host, &self.prompt).await?;
        self.channels.exchange(&self.submitter.settings()).await;
        if let Some((tls, certificate)) = certificate {
            tls.exchange(certificate);
        }
        Ok(reloaded)
    }

    /// Reloads the configuration at each SIGHUP. What comes of it goes to `note`.
    pub(super) async fn reload_at_hangups(&self, mut hangups: Signal, note: impl Fn(&str)) -> Infallible {
        while hangups.recv().await.is_some() {
            match self.reload_now().await {
                Ok(reloaded) => note(&describe(&reloaded)),
                Err(error) => note(&format!("config    not reloaded, the present one stays: {error}")),
            }
        }
        future::pending().await
    }
}

/// SIGHUP as an event; from here on it ends the process no more.
pub(super) fn hangups() -> Result<Signal, HostError> {
    let error = |error| RequestError::internal(format!("signals cannot be listened to: {error}"));
    Ok(signal(SignalKind::hangup()).map_err(error)?)
}

fn describe(reloaded: &ReloadView) -> String {
    let changed = reloaded.changed.len();
    match reloaded.restart.join(", ") {
        restart if restart.is_empty() => format!("config    reloaded: {changed} changed"),
        restart => format!("config    reloaded: {changed} changed; only a restart applies {restart}"),
    }
}

fn open_breakers(provider: &ProviderStatus) -> impl Iterator<Item = BreakerView> {
    let breaker = |model: Option<&str>, breaker| BreakerView {
        provider: provider.name.clone(),
        model: model.map(str::to_owned),
        breaker,
    };
    let models = provider.models.iter().map(move |status| breaker(Some(&status.model), status.breaker));
    std::iter::once(breaker(None, provider.endpoint))
        .chain(models)
        .filter(|view| view.breaker != BreakerState::Closed)
}

impl ServiceControl for ServiceLifecycle {
    fn status(&self) -> BoxFuture<'_, Result<ServiceStatusView, RequestError>> {
        Box::pin(self.current_status())
    }

    fn drain(&self, timeout: Duration) -> BoxFuture<'_, Result<DrainView, RequestError>> {
        self.submitter.drain().request(timeout);
        self.manager.status("draining: takes no new work, and ends with its runs");
        Box::pin(async move {
            let outcome = self.submitter.drain().outcome().await;
            Ok(DrainView { suspended: outcome.suspended, parked: outcome.parked })
        })
    }

    fn reload(&self) -> BoxFuture<'_, Result<ReloadView, RequestError>> {
        Box::pin(async move { self.reload_now().await.map_err(crate::host::request_error) })
    }

    fn enable_hook(&self, name: &str) -> Result<HookView, RequestError> {
        let hooks = self.host.hooks();
        let hook = hooks.find(name).map_err(RequestError::usage)?;
        hook.enable();
        Ok(hook.view())
    }
}
