//! Serves a store: starts the runtime, lets unfinished runs go on, and takes work from clients until a signal.

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener},
    ops::ControlFlow,
    sync::Arc,
    time::Duration,
};

use hermod_actors::{Defaults, RunError, model::Timestamp, port::Journal};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{runtime::Handle, signal::unix::Signal, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    HttpServer, ServerLimits, Service, TlsAcceptor, TlsFiles, idle,
    lifecycle::{ServiceLifecycle, hangups},
    metrics::{JournalCounts, MeasuredJournal, Metrics},
};
use crate::{
    access::TokenVerifier,
    channel::{Channels, FrontDoor as ChannelDoor},
    config::Config,
    control::{RequestError, RequestHandler, ServiceControl},
    delivery::{ChatOutputs, LineOutput, SharedOutput, TargetOutputs},
    discovery::Variables,
    hooks::{CommandEvents, ObservedEvent},
    host::{
        DrainOutcome, Exchangeable, HostError, NoteSink, OwnedStore, RehearsalScript, Revival, RunSubmitter,
        RuntimeHost, ServiceManager, ShutdownSignal, ShutdownUrgency, Signals, run_defaults, serve_commands,
        start,
    },
    prompt::LayeredPrompt,
    traces::{ExportCounts, TraceExport, TraceSource},
};

/// How long hooks may take for `service_stop`.
const SERVICE_STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// How a store is served.
#[derive(Debug, Clone)]
pub struct ServeRequest {
    /// Where to listen; port 0 takes any free one.
    pub listen: SocketAddr,
    /// The script of a rehearsal, which replaces the models of all runs that name none.
    pub script: Option<RehearsalScript>,
    /// The certificate with which clients are served; without one they speak plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Where messages for standard output go; without it they wait.
    pub output: Option<Arc<dyn LineOutput>>,
    /// How long the service may be idle before it ends; without it, it ends at a signal or a drain.
    pub idle_timeout: Option<Duration>,
}

/// Why a service has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceEnd {
    /// A signal, at which all runs were suspended.
    Signal(ShutdownSignal),
    /// It was drained.
    Drained(DrainOutcome),
    /// It was idle.
    Idle,
}

/// Serves until a signal, or until it is drained. `on_ready` gets the URL once clients are served.
pub async fn serve(
    request: ServeRequest,
    (config, variables): (&Config, &Variables),
    store: &mut OwnedStore,
    on_ready: impl FnOnce(&str),
) -> Result<ServiceEnd, HostError> {
    if let Some(script) = &request.script {
        script.check()?;
    }
    let hangups = hangups()?;
    let manager = ServiceManager::of(variables);
    // A client that connects from here on waits until it is served.
    let listener = listen(request.listen)?;
    let reader = store.reader();
    let OwnedStore { journal, state, signals, notes, .. } = &mut *store;
    let tls = request.tls.map(|files| TlsAcceptor::start(files, Arc::clone(notes))).transpose()?;
    let prompt = Exchangeable::new(LayeredPrompt::new(config, state));
    let (counts, spans) = (JournalCounts::default(), ExportCounts::default());
    let chats = Arc::<ChatOutputs>::default();
    let started = async {
        let (revival, endpoints) = Revival::find((config, variables), &reader, state, &**notes).await?;
        let spec = run_defaults::spec(config, Vec::new(), None, state);
        let defaults = Defaults { spec, prompt: Arc::<Exchangeable<LayeredPrompt>>::clone(&prompt) };
        counts.read(journal.rows()).await.map_err(RunError::Read)?;
        let measured = MeasuredJournal::new(Arc::clone(journal), counts.clone());
        let settings = (config, variables);
        let host = start(Arc::new(measured), endpoints, settings, defaults, Some(Arc::clone(notes))).await?;
        revival.keep_places(&host.runtime);
        let lines = request.output.map(SharedOutput::new);
        host.start_deliveries(settings, TargetOutputs { lines, chats: Some(Arc::clone(&chats)) });
        let metrics = Metrics::start(&host.runtime, (counts, spans.clone()), revival.count()).await?;
        // Before runs go on, so that none ends unseen.
        let source = TraceSource { runtime: &host.runtime, journal, state };
        let traces = TraceExport::start(source, (config, variables), spans, notes).await;
        let traces = traces.map_err(RunError::Read)?;
        Ok::<_, HostError>(((revival, metrics), Arc::new(host), traces))
    };
    let (revival, host, traces) = match signals.run_until_signal(Box::pin(started)).await? {
        ControlFlow::Continue(started) => started,
        ControlFlow::Break(signal) => return Ok(ServiceEnd::Signal(signal)),
    };
    let settings = (config.clone(), variables.clone());
    let submitter = RunSubmitter::new(Arc::clone(&host), (reader, state.clone()), settings, request.script);
    let idle_timeout = request.idle_timeout;
    let door = FrontDoor { listener, tls, on_ready, prompt, manager, hangups, chats, idle_timeout };
    let ended = serve_host(&host, revival, Arc::new(submitter), (config, store), door).await;
    traces.stop().await;
    host.suspend(ShutdownUrgency::Urgent).await;
    ended
}

/// What a service has beside its runtime.
struct FrontDoor<F> {
    listener: TcpListener,
    tls: Option<Arc<TlsAcceptor>>,
    on_ready: F,
    prompt: Arc<Exchangeable<LayeredPrompt>>,
    manager: ServiceManager,
    hangups: Signal,
    chats: Arc<ChatOutputs>,
    idle_timeout: Option<Duration>,
}

/// Lets the unfinished runs go on, and serves clients until the end.
async fn serve_host(
    host: &Arc<RuntimeHost>,
    (revival, metrics): (Revival, Metrics),
    submitter: Arc<RunSubmitter>,
    (config, store): (&Config, &mut OwnedStore),
    door: FrontDoor<impl FnOnce(&str)>,
) -> Result<ServiceEnd, HostError> {
    let (runtime, reader, clients) = (&host.runtime, store.reader(), store.clients());
    let OwnedStore { journal, state, runtime: slot, signals, crash_history, notes, handler, .. } = store;
    // Without trials, all go on before the first client comes.
    let on_probation = if crash_history.probation().is_some() {
        Some(revival)
    } else {
        revival.execute(runtime, &reader, crash_history, notes).await?;
        submitter.allow_revivals();
        None
    };
    let address = door.listener.local_addr().map_err(|error| server_error(&error))?;
    let url = format!("{}://{address}", if door.tls.is_some() { "https" } else { "http" });
    let service = Service {
        runtime: Arc::clone(runtime),
        engine: Handle::current(),
        submitter: Arc::clone(&submitter),
        handler: handler.clone(),
        inbound: host.open_inbound(config, &submitter.settings().variables),
        tokens: TokenVerifier::new(state),
        hosts: own_hosts(address).into_iter().chain(config.service.hosts.0.iter().cloned()).collect(),
        dashboard: config.service.dashboard.0,
        tls: door.tls,
        metrics,
        closing: CancellationToken::new(),
    };
    host.start_schedules(config, &submitter).await?;
    let channels = start_channels(host, &submitter, handler, (door.chats, notes)).await;
    let parts = (door.prompt, door.manager, Arc::clone(&channels));
    let lifecycle = ServiceLifecycle::new(&service, Arc::clone(host), parts, url.clone());
    let lifecycle = Arc::new(lifecycle);
    let limits = ServerLimits { connections: connections(config, &**notes) };
    let server = HttpServer::start(door.listener, service, limits).map_err(|error| server_error(&error))?;
    slot.attach_service(&(Arc::<ServiceLifecycle>::clone(&lifecycle) as Arc<dyn ServiceControl>));
    (door.on_ready)(&url);
    lifecycle.on_ready();
    tell_of_start(host, &url, lifecycle.started_at);
    let revived = async {
        if let Some(revival) = on_probation {
            revival.execute(runtime, &reader, crash_history, notes).await?;
            submitter.allow_revivals();
        }
        Err::<Infallible, HostError>(runtime.wait_for_end().await.into())
    };
    let ends = (revived, idle::wait_until_idle(&lifecycle, &clients, door.idle_timeout));
    let work = run_until_end((&lifecycle, &submitter), signals, ends, (journal, door.hangups, notes));
    let submissions = Arc::<RunSubmitter>::clone(&submitter);
    let ended = serve_commands((slot, runtime), submissions, notes, work).await;
    lifecycle.manager.stopping();
    channels.stop().await;
    server.stop().await;
    let hooks = host.hooks();
    let told = hooks.tell_of_service(ObservedEvent::ServiceStop, &url, lifecycle.started_at);
    if timeout(SERVICE_STOP_TIMEOUT, told).await.is_err() {
        tracing::warn!("not all hooks have taken service_stop");
    }
    ended
}

/// Tells hooks in the background that the service serves.
fn tell_of_start(host: &RuntimeHost, url: &str, started_at: Timestamp) {
    let (hooks, url) = (host.hooks(), url.to_owned());
    tokio::spawn(async move { hooks.tell_of_service(ObservedEvent::ServiceStart, &url, started_at).await });
}

/// Starts the channels, and tells hooks of their commands from now on.
async fn start_channels(
    host: &Arc<RuntimeHost>,
    submitter: &Arc<RunSubmitter>,
    handler: &RequestHandler,
    (chats, notes): (Arc<ChatOutputs>, &Arc<dyn NoteSink>),
) -> Arc<Channels> {
    let hooks = Arc::clone(host);
    let commands = Arc::new(CommandEvents::new(host.state_dir(), move || hooks.hooks()));
    let telling = Arc::clone(&commands);
    tokio::spawn(async move { telling.tell().await });
    let door = ChannelDoor {
        runtime: Arc::clone(&host.runtime),
        submitter: Arc::clone(submitter),
        handler: handler.clone(),
        commands,
    };
    Arc::new(Channels::start(door, chats, Arc::clone(notes), host.state_dir().to_owned()).await)
}

/// Works until a signal, the end of a drain, idleness, or the failure of `revived`, which goes on as long as the runtime.
async fn run_until_end(
    (lifecycle, submitter): (&ServiceLifecycle, &RunSubmitter),
    signals: &mut Signals,
    (revived, idle): (
        impl Future<Output = Result<Infallible, HostError>>,
        impl Future<Output = Result<(), HostError>>,
    ),
    (journal, hangups, notes): (&Arc<dyn Journal>, Signal, &Arc<dyn NoteSink>),
) -> Result<ServiceEnd, HostError> {
    let runtime = &lifecycle.host.runtime;
    let work = async {
        tokio::select! {
            ended = revived => match ended? {},
            idle = idle => idle.map(|()| ServiceEnd::Idle),
            drained = submitter.drain().carry_out(runtime) => Ok::<_, HostError>(ServiceEnd::Drained(drained?)),
            never = lifecycle.manager.keep_alive(runtime, journal) => match never {},
            never = lifecycle.reload_at_hangups(hangups, |line| notes.note(line)) => match never {},
        }
    };
    match signals.run_until_signal(Box::pin(work)).await? {
        ControlFlow::Break(signal) => Ok(ServiceEnd::Signal(signal)),
        ControlFlow::Continue(ended) => Ok(ended),
    }
}

fn server_error(error: &io::Error) -> RequestError {
    RequestError::internal(format!("the HTTP server cannot be started: {error}"))
}

/// The limit of connections: at most half of the files that this process may have open, so that runs have the others.
/// That number is raised as far as the system allows. A limit that the user has set, and cannot have, is noted.
fn connections(config: &Config, notes: &dyn NoteSink) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let files = if raised.is_ok() { limit.maximum } else { limit.current };
    let configured = u64::from(config.service.connections.0);
    let connections = files.map_or(configured, |files| configured.min(files / 2));
    if connections < configured && config.is_set("service.connections") {
        notes.note(&format!(
            "limit     {connections} connections instead of service.connections = {configured}: this process may have {} files \
             open; raise LimitNOFILE or `ulimit -n`",
            files.unwrap_or(u64::MAX)
        ));
    }
    usize::try_from(connections).unwrap_or(usize::MAX)
}

fn listen(address: SocketAddr) -> Result<TcpListener, HostError> {
    Ok(TcpListener::bind(address).map_err(|error| listen_error(address, &error))?)
}

fn listen_error(address: SocketAddr, error: &io::Error) -> RequestError {
    RequestError::usage(format!("--listen {address}: {error}; give a free address like 127.0.0.1:7717"))
}

/// The names by which clients may reach a service that listens at this address.
fn own_hosts(address: SocketAddr) -> Vec<String> {
    let ip = match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    };
    let is_local = address.ip().is_loopback() || address.ip().is_unspecified();
    let loopback = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
    std::iter::once(ip).chain(loopback.into_iter().filter(|_| is_local)).collect()
}
