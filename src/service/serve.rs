//! Serves a store: starts the runtime, lets unfinished runs go on, and takes work from clients until a signal.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    ops::ControlFlow,
    sync::Arc,
};

use hermod_actors::Defaults;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{HttpServer, ServerLimits, Service};
use crate::{
    access::TokenVerifier,
    config::Config,
    control::RequestError,
    discovery::Variables,
    host::{
        HostError, OwnedStore, RehearsalScript, Revival, RunSubmitter, ShutdownSignal, ShutdownUrgency,
        run_defaults, serve_commands, start,
    },
    prompt::LayeredPrompt,
};

/// How a store is served.
#[derive(Debug, Clone)]
pub struct ServeRequest {
    /// Where to listen; port 0 takes any free one.
    pub listen: SocketAddr,
    /// The script of a rehearsal, which replaces the models of all runs that name none.
    pub script: Option<RehearsalScript>,
}

/// Serves until a signal, which is returned. `on_ready` gets the address once clients are served.
pub async fn serve(
    request: ServeRequest,
    (config, variables): (&Config, &Variables),
    store: &mut OwnedStore,
    on_ready: impl FnOnce(SocketAddr),
) -> Result<ShutdownSignal, HostError> {
    if let Some(script) = &request.script {
        script.check()?;
    }
    // A client that connects from here on waits until it is served.
    let listener = listen(request.listen)?;
    let address = listener.local_addr().map_err(|error| listen_error(request.listen, &error))?;
    let reader = store.reader();
    let OwnedStore { journal, state, runtime: slot, signals, crash_history, notes, handler, .. } = store;
    let started = async {
        let (revival, endpoints) = Revival::find((config, variables), &reader, state, &**notes).await?;
        let spec = run_defaults::spec(config, Vec::new(), None, state);
        let defaults = Defaults { spec, prompt: Arc::new(LayeredPrompt::new(config, state)) };
        let host = start(Arc::clone(journal), endpoints, config, defaults, Some(Arc::clone(notes))).await?;
        Ok::<_, HostError>((revival, Arc::new(host)))
    };
    let (revival, host) = match signals.run_until_signal(Box::pin(started)).await? {
        ControlFlow::Continue(started) => started,
        ControlFlow::Break(signal) => return Ok(signal),
    };
    let runtime = &host.runtime;
    let submitter = Arc::new(RunSubmitter::new(
        Arc::clone(&host),
        (reader.clone(), state.clone()),
        (config.clone(), variables.clone()),
        request.script,
    ));
    let service = Service {
        runtime: Arc::clone(runtime),
        engine: Handle::current(),
        submitter: Arc::clone(&submitter),
        handler: handler.clone(),
        tokens: TokenVerifier::new(state),
        hosts: own_hosts(address).into_iter().chain(config.service.hosts.0.iter().cloned()).collect(),
        closing: CancellationToken::new(),
    };
    let limits =
        ServerLimits { connections: usize::try_from(config.service.connections.0).unwrap_or(usize::MAX) };
    let server = HttpServer::start(listener, service, limits);
    let server = server.map_err(|error| {
        RequestError::internal(format!("the threads of the HTTP server cannot be started: {error}"))
    })?;
    on_ready(address);
    let work = async {
        let revived = async {
            revival.execute(runtime, &reader, crash_history, notes).await?;
            submitter.allow_revivals();
            Err::<std::convert::Infallible, HostError>(runtime.wait_for_end().await.into())
        };
        match signals.run_until_signal(Box::pin(revived)).await {
            Ok(ControlFlow::Break(signal)) => Ok(signal),
            Ok(ControlFlow::Continue(never)) => match never {},
            Err(error) => Err(error),
        }
    };
    let submissions = Arc::clone(&submitter);
    let ended = serve_commands((slot, runtime), submissions, notes, work).await;
    server.stop().await;
    host.suspend(ShutdownUrgency::Urgent).await;
    ended
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
    let loopback = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
    std::iter::once(ip).chain(loopback.into_iter().filter(|_| address.ip().is_loopback())).collect()
}
