//! The server: accepts connections on threads of its own, bounds each, and closes them gracefully.

use std::{io, net, pin::pin, sync::Arc, thread, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    Service,
    connection::ClientStream,
    metrics::{Counted, LiveCount},
    routes,
};

/// Threads of the server.
const THREADS: usize = 2;
/// Time in which the head of the next request must be complete; also how long a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time in which a client must take the next bytes of its answer.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);
/// Most bytes of a request's head.
const MAX_HEAD_BYTES: usize = 32 << 10;
/// Most headers of a request.
const MAX_HEADERS: usize = 64;
/// Time that answers under way get when the server stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause after a failed accept, for example without a free file descriptor.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Connections above the limit: they are answered that there are too many, except for probes.
const SPARE_CONNECTIONS: usize = 16;
/// Time in which the head of a request on one of them must be complete.
const SPARE_HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether a connection is within the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Regular,
    Spare,
}

/// What connections are served.
struct Routers {
    /// All operations.
    all: Router,
    /// Probes alone.
    probes: Router,
}

/// Limits of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Most open connections; on further ones only probes are answered.
    pub connections: usize,
}

/// A running server. Dropping it closes all connections.
#[derive(Debug)]
pub struct HttpServer {
    closing: CancellationToken,
    thread: Option<thread::JoinHandle<()>>,
}

impl HttpServer {
    /// Serves a listener until it is stopped.
    pub fn start(listener: net::TcpListener, service: Service, limits: ServerLimits) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("hermod-http")
            .enable_all()
            .build()?;
        let closing = service.closing.clone();
        let open = service.metrics.connections.clone();
        let service = Arc::new(service);
        let routers = Routers { probes: routes::probes(Arc::clone(&service)), all: routes::router(service) };
        let listener = {
            let _runtime = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let accepting = accept(listener, (routers, open), limits, closing.clone());
        let thread = thread::Builder::new().name("hermod-http".into()).spawn(move || {
            runtime.block_on(accepting);
            // What is left waits for clients.
            runtime.shutdown_background();
        })?;
        Ok(Self { closing, thread: Some(thread) })
    }

    /// Accepts no more connections, and lets requests under way be answered for a while.
    pub async fn stop(mut self) {
        self.closing.cancel();
        if let Some(thread) = self.thread.take() {
            let joined = tokio::task::spawn_blocking(move || thread.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                tracing::error!("the threads of the HTTP server died");
            }
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

async fn accept(
    listener: TcpListener,
    (routers, open): (Routers, LiveCount),
    limits: ServerLimits,
    closing: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(limits.connections));
    let spare = Arc::new(Semaphore::new(SPARE_CONNECTIONS));
    loop {
        let next = async {
            let (stream, _) = listener.accept().await?;
            let place = match Arc::clone(&permits).try_acquire_owned() {
                Ok(permit) => Ok((permit, Place::Regular)),
                Err(_) => Arc::clone(&spare).acquire_owned().await.map(|permit| (permit, Place::Spare)),
            };
            io::Result::Ok((stream, place.map_err(io::Error::other)?))
        };
        let accepted = tokio::select! {
            biased;
            () = closing.cancelled() => break,
            next = next => next,
        };
        match accepted {
            Ok((stream, (permit, place))) => {
                serve(stream, (&routers, place), (permit, open.enter()), closing.clone());
            }
            Err(error) => {
                tracing::warn!(%error, "no HTTP connection could be accepted");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
    drop(listener);
    // A connection is gone when its permit is back.
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    if timeout(CLOSE_TIMEOUT, permits.acquire_many(all)).await.is_err() {
        tracing::info!("HTTP connections are closed before their answers were taken");
    }
}

fn serve(
    stream: TcpStream,
    (routers, place): (&Routers, Place),
    held: (OwnedSemaphorePermit, Counted),
    closing: CancellationToken,
) {
    // Nagle's algorithm would delay each event until the acknowledgement of the previous one.
    let _only_slower_without = stream.set_nodelay(true);
    let stream = TokioIo::new(ClientStream::new(stream, WRITE_PATIENCE, held));
    let (router, head_timeout) = match place {
        Place::Regular => (routers.all.clone(), HEAD_TIMEOUT),
        Place::Spare => (routers.probes.clone(), SPARE_HEAD_TIMEOUT),
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(place == Place::Regular)
        .header_read_timeout(head_timeout)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(stream, TowerToHyperService::new(router))
        .with_upgrades();
    tokio::spawn(async move {
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "an HTTP connection ended");
        }
    });
}
