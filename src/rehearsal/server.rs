use std::{io, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
    routing::{get, post},
    serve::ListenerExt,
};
use tokio::{
    net::{TcpListener, ToSocketAddrs},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{
    Fault, Faults, Pace, Script, next, stream,
    wire::{Events, Refusal, Reply, chat_completions},
};

/// A longer request is refused with 413.
const BODY_LIMIT: usize = 64 * 1024 * 1024;
const HEADER: &str = "x-hermod-rehearsal";

/// The endpoint of the rehearsal model.
#[derive(Debug)]
pub struct Rehearsal;

/// A model that plays until this is dropped.
#[derive(Debug)]
pub struct Running {
    /// What a client takes as its base URL: `http://127.0.0.1:<port>/v1`.
    pub base_url: String,
    stop: CancellationToken,
    server: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Debug)]
struct Stage {
    script: Arc<Script>,
    model: String,
    faults: Faults,
    stop: CancellationToken,
}

impl Rehearsal {
    /// Binds `addr` (port 0: any free one) and plays in a task of its own.
    pub async fn start(addr: impl ToSocketAddrs, script: Arc<Script>) -> io::Result<Running> {
        let listener = TcpListener::bind(addr).await?;
        let base_url = base_url(listener.local_addr()?);
        let stop = CancellationToken::new();
        let server = tokio::spawn(Self::serve(listener, script, stop.clone().cancelled_owned()));
        Ok(Running { base_url, stop, server: Some(server) })
    }

    /// Plays on `listener` until `shutdown` resolves. Then pauses of open streams end with a broken connection, what
    /// is already rendered is sent.
    pub async fn serve<F>(listener: TcpListener, script: Arc<Script>, shutdown: F) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = CancellationToken::new();
        let model = script.model();
        let stage = Arc::new(Stage { script, model, faults: Faults::default(), stop: stop.clone() });
        let router = Router::new()
            .route("/v1/chat/completions", post(complete))
            .route("/v1/models", get(models))
            .fallback(unknown)
            .method_not_allowed_fallback(unknown)
            .with_state(stage);
        // A delta that waits for the acknowledgement of the one before would not be a stream.
        let listener = listener.tap_io(|socket| {
            let _only_slower_without = socket.set_nodelay(true);
        });
        let ended = async move {
            shutdown.await;
            stop.cancel();
        };
        axum::serve(listener, router).with_graceful_shutdown(ended).await
    }
}

/// The base URL of the model that listens on `addr`.
fn base_url(addr: SocketAddr) -> String {
    format!("http://{addr}/v1")
}

impl Running {
    /// Stops the model and waits until its port is free and its connections are closed.
    pub async fn stop(mut self) -> io::Result<()> {
        self.stop.cancel();
        match self.server.take() {
            None => Ok(()),
            Some(server) => server.await.map_err(io::Error::other)?,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn complete(State(stage): State<Arc<Stage>>, request: Request) -> Response {
    let body = match to_bytes(request.into_body(), BODY_LIMIT).await {
        Ok(body) => body,
        Err(error) => {
            let message = format!("the request body could not be read (limit {BODY_LIMIT} bytes): {error}");
            return refuse(&Refusal { status: 413, message, param: None });
        }
    };
    let Played { events, pace, fault, reply } = match play(&stage, &body) {
        Ok(played) => played,
        Err(refusal) => return refuse(&refusal),
    };
    drop(body);
    if !stream::wait(pace.delay, &stage.stop).await {
        return refuse(&Refusal { status: 503, message: "the rehearsal is over".into(), param: None });
    }
    if let Some(Fault::Status { status, headers, body }) = fault {
        return scripted_error(*status, headers, body.as_deref());
    }
    let content_type = match reply {
        Reply::Whole => "application/json",
        Reply::Stream | Reply::StreamWithUsage => "text/event-stream",
    };
    respond(StatusCode::OK, content_type, stream::body(events, pace, fault, stage.stop.clone()))
}

/// An answer before it is sent.
struct Played<'s> {
    events: Events,
    pace: Pace,
    fault: Option<&'s Fault>,
    reply: Reply,
}

fn play<'s>(stage: &'s Stage, body: &[u8]) -> Result<Played<'s>, Refusal> {
    let exchange = chat_completions::read(body)?;
    let scripted = next(&stage.script, &exchange.conversation);
    let fault = stage.faults.strike(&scripted, &exchange.conversation);
    let events = chat_completions::write(&scripted, &stage.model, exchange.reply);
    Ok(Played { events, pace: scripted.pace, fault, reply: exchange.reply })
}

async fn models(State(stage): State<Arc<Stage>>) -> Response {
    respond(StatusCode::OK, "application/json", chat_completions::models(&stage.model).into())
}

async fn unknown(request: Request) -> Response {
    let message = format!(
        "there is no {} {} here: use POST /v1/chat/completions or GET /v1/models",
        request.method(),
        request.uri().path()
    );
    refuse(&Refusal { status: 404, message, param: None })
}

fn scripted_error(status: StatusCode, headers: &HeaderMap, body: Option<&str>) -> Response {
    let message = format!("(rehearsal) the script answers {status} here");
    let refusal = Refusal { status: status.as_u16(), message, param: None };
    let mut response = match body {
        Some(body) => respond(status, "application/json", body.to_owned().into()),
        None => refuse(&refusal),
    };
    for (name, value) in headers {
        response.headers_mut().insert(name, value.clone());
    }
    response
}

fn refuse(refusal: &Refusal) -> Response {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    respond(status, "application/json", chat_completions::error(refusal).into())
}

fn respond(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(HEADER, HeaderValue::from_static("1"));
    response
}
