//! The HTTP server of the rehearsal model: routes, the order of the steps of a reply, and error responses. The body of
//! a streamed answer is in `stream.rs`.

use std::{io, sync::Arc};

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
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    AnswerPace, FaultCounter, PromptCache, Script, ScriptFault, next_answer, stream,
    wire::{EventBuffer, FORMATS, Format, ParsedRequest, RequestRefusal},
};

/// Larger requests are refused with status 413.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
const REHEARSAL_HEADER: &str = "x-hermod-rehearsal";

/// The endpoint of the rehearsal model.
#[derive(Debug)]
pub struct Rehearsal;

/// A running rehearsal model; dropping the handle stops it.
#[derive(Debug)]
pub struct RehearsalHandle {
    /// The base URL for clients: `http://127.0.0.1:<port>/v1`.
    pub base_url: String,
    stop: DropGuard,
    server: JoinHandle<io::Result<()>>,
}

#[derive(Debug)]
struct ServerState {
    script: Arc<Script>,
    model: String,
    faults: FaultCounter,
    cache: PromptCache,
    stop: CancellationToken,
}

impl Rehearsal {
    /// Binds `addr` (port 0: any free port) and serves in its own task.
    pub async fn start(addr: impl ToSocketAddrs, script: Arc<Script>) -> io::Result<RehearsalHandle> {
        let listener = TcpListener::bind(addr).await?;
        let base_url = format!("http://{}/v1", listener.local_addr()?);
        let stop = CancellationToken::new();
        let server = tokio::spawn(Self::serve(listener, script, stop.clone().cancelled_owned()));
        Ok(RehearsalHandle { base_url, stop: stop.drop_guard(), server })
    }

    /// Serves `listener` until `shutdown` resolves. Then a stream that waits in a pause breaks its connection; data
    /// that is already rendered is sent.
    pub async fn serve<F>(listener: TcpListener, script: Arc<Script>, shutdown: F) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = CancellationToken::new();
        let model = script.model();
        let (faults, cache) = (FaultCounter::default(), PromptCache::default());
        let state = Arc::new(ServerState { script, model, faults, cache, stop: stop.clone() });
        let mut router = Router::new().route("/v1/models", get(models));
        for format in &FORMATS {
            let answer = move |State(state), request| answer(format, state, request);
            router = router.route(format.path, post(answer));
        }
        // `method_not_allowed_fallback` applies only to routes that are registered before it.
        let router = router.fallback(unknown).method_not_allowed_fallback(unknown).with_state(state);
        // Nagle's algorithm would delay each delta until the acknowledgement of the previous one.
        let listener = listener.tap_io(|socket| {
            let _only_slower_without = socket.set_nodelay(true);
        });
        let signal = async move {
            shutdown.await;
            stop.cancel();
        };
        axum::serve(listener, router).with_graceful_shutdown(signal).await
    }
}

impl RehearsalHandle {
    /// Stops the model. Returns when the port is free and the connections are closed.
    pub async fn stop(self) -> io::Result<()> {
        drop(self.stop);
        self.server.await.map_err(io::Error::other)?
    }
}

async fn answer(format: &'static Format, state: Arc<ServerState>, request: Request) -> Response {
    if let Some(header) = format.header.filter(|header| !request.headers().contains_key(*header)) {
        return refuse(format, &RequestRefusal::bad_request(None, format!("{header}: header is required")));
    }
    let body = match to_bytes(request.into_body(), MAX_BODY_BYTES).await {
        Ok(body) => body,
        Err(error) => {
            let message =
                format!("the request body could not be read (limit {MAX_BODY_BYTES} bytes): {error}");
            return refuse(format, &RequestRefusal::new(413, message));
        }
    };
    let PreparedReply { events, pace, fault, is_stream } = match prepare_reply(format, &state, &body) {
        Ok(prepared) => prepared,
        Err(refusal) => return refuse(format, &refusal),
    };
    drop(body);
    if !stream::wait(pace.delay, &state.stop).await {
        return refuse(format, &RequestRefusal::new(503, "the rehearsal is over"));
    }
    if let Some(ScriptFault::Status { status, headers, body }) = fault {
        return scripted_error(format, *status, headers, body.as_deref());
    }
    let content_type = if is_stream { "text/event-stream" } else { "application/json" };
    respond(StatusCode::OK, content_type, stream::body(events, pace, fault, state.stop.clone()))
}

/// An answer before it is sent.
struct PreparedReply<'s> {
    events: EventBuffer,
    pace: AnswerPace,
    fault: Option<&'s ScriptFault>,
    is_stream: bool,
}

fn prepare_reply<'s>(
    format: &Format,
    state: &'s ServerState,
    body: &[u8],
) -> Result<PreparedReply<'s>, RequestRefusal> {
    let request = (format.read)(body)?;
    let ParsedRequest { conversation, prefix, is_stream, .. } = &request;
    let mut scripted = next_answer(&state.script, conversation);
    let fault = state.faults.next_fault(&scripted, conversation);
    if !scripted.has_cache_usage && !matches!(fault, Some(ScriptFault::Status { .. })) {
        scripted.set_cache_usage(state.cache.look_up(prefix));
    }
    let events = (format.write)(&scripted, &request, &state.model);
    Ok(PreparedReply { events, pace: scripted.pace, fault, is_stream: *is_stream })
}

async fn models(State(state): State<Arc<ServerState>>, request: Request) -> Response {
    let body = (format_of(&request).models)(&state.model);
    respond(StatusCode::OK, "application/json", body.into())
}

async fn unknown(request: Request) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    let endpoints: Vec<_> = FORMATS.iter().map(|format| format!("POST {}", format.path)).collect();
    let endpoints = endpoints.join(", ");
    let message = format!("there is no {method} {path} here: use {endpoints} or GET /v1/models");
    refuse(format_of(&request), &RequestRefusal::new(404, message))
}

/// The format with this request's path or header; the first format otherwise.
fn format_of(request: &Request) -> &'static Format {
    let by_path = FORMATS.iter().find(|format| format.path == request.uri().path());
    let has = |header: &str| request.headers().contains_key(header);
    let by_header = || FORMATS.iter().find(|format| format.header.is_some_and(has));
    by_path.or_else(by_header).unwrap_or(&FORMATS[0])
}

fn scripted_error(format: &Format, status: StatusCode, headers: &HeaderMap, body: Option<&str>) -> Response {
    let message = format!("(rehearsal) the script answers {} here", status.as_u16());
    let mut response = match body {
        Some(body) => respond(status, "application/json", body.to_owned().into()),
        None => refuse(format, &RequestRefusal::new(status.as_u16(), message)),
    };
    for (name, value) in headers {
        response.headers_mut().insert(name, value.clone());
    }
    response
}

fn refuse(format: &Format, refusal: &RequestRefusal) -> Response {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    respond(status, "application/json", (format.error)(refusal).into())
}

fn respond(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(REHEARSAL_HEADER, HeaderValue::from_static("1"));
    response
}
