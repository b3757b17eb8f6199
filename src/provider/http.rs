//! The one place that talks HTTP to providers. Everything it carries is read and written by a [`WireFormat`].

use std::{
    error::Error,
    net::IpAddr,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use hermod_actors::{
    model::{Answer, Deadline, Failure, FailureClass, ModelTraits, Origin},
    port::{Deltas, Encoder, ModelRequest, Provider},
};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use reqwest::{Body, Client, Response, Url, redirect};
use rustls::{ClientConfig, RootCertStore, crypto::CryptoProvider};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    Cache, Dialect, WIRES,
    pieces::Pieces,
    wire::{Decoder, Progress, WireFormat, Writing, encode_pictures},
};
use crate::secret::{Secret, shown_url};

/// Bytes of an error's body that are read.
const ERROR_BODY: usize = 64 * 1024;
/// How long an error's body may take.
const ERROR_BODY_WAIT: Duration = Duration::from_secs(10);
/// How long a whole answer waits for what may still follow (the usage, the end mark).
const TAIL_WAIT: Duration = Duration::from_secs(5);
/// How long the end of the body may take behind the end mark, so that the connection can be used again.
const END_WAIT: Duration = Duration::from_millis(50);

/// How long each part of a call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// To connect, TLS included.
    pub connect: Duration,
    /// From the call's start until the first piece of the answer.
    pub first_event: Duration,
    /// Between two pieces of the answer; comments and empty events do not count.
    pub gap: Duration,
    /// The whole call.
    pub call: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_event: Duration::from_secs(90),
            gap: Duration::from_secs(90),
            call: Duration::from_mins(30),
        }
    }
}

/// A configured endpoint.
#[derive(Debug, Clone)]
pub struct ProviderConfig {
    /// Its name in the configuration.
    pub name: String,
    /// Such as `https://api.openai.com/v1`; the wire format's path is put behind it.
    pub base_url: String,
    /// A name of [`WIRES`].
    pub wire: String,
    /// The key, if it asks for one.
    pub credential: Option<Secret>,
    /// For how long its vendor is to cache how requests begin.
    pub cache: Cache,
    /// How long calls may take.
    pub deadlines: Deadlines,
}

/// A provider that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The base URL is none.
    #[error("providers.{provider}.base_url = \"{url}\": {reason}; give it as `https://host/v1`")]
    BaseUrl {
        /// The provider.
        provider: String,
        /// The URL; hidden if it may hold a password.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// No such wire format.
    #[error("providers.{provider}.wire = \"{wire}\": no such wire format; there are: {known}")]
    Wire {
        /// The provider.
        provider: String,
        /// The name.
        wire: String,
        /// The names that there are.
        known: String,
    },
    /// A credential that no header can carry.
    #[error("the credential of provider {provider} is empty or has a line break or control character in it")]
    Credential {
        /// The provider.
        provider: String,
    },
}

/// A provider behind HTTP.
#[derive(Debug)]
pub struct HttpProvider {
    wire: Box<dyn WireFormat>,
    name: Arc<str>,
    encoders: Mutex<Vec<(Writing, Arc<dyn Encoder>)>>,
    url: Url,
    /// The URL as people may see it.
    endpoint: String,
    headers: HeaderMap,
    credential: Option<Secret>,
    deadlines: Deadlines,
    /// Made at the first call: what TLS needs takes milliseconds that a start without a call should not pay.
    client: OnceLock<Client>,
}

impl HttpProvider {
    /// Checks the configuration; touches neither network nor disk.
    pub fn new(config: ProviderConfig) -> Result<Self, ConfigError> {
        let mut url = base_url(&config)?;
        let dialect = Dialect { host: url.host_str().unwrap_or_default().to_owned(), cache: config.cache };
        let wire = WIRES.iter().find(|wire| wire.name == config.wire).ok_or_else(|| ConfigError::Wire {
            provider: config.name.clone(),
            wire: config.wire.clone(),
            known: WIRES.iter().map(|wire| wire.name).collect::<Vec<_>>().join(", "),
        })?;
        let wire = (wire.make)(&dialect);
        let headers = headers(&*wire, config.credential.as_ref())
            .ok_or_else(|| ConfigError::Credential { provider: config.name.clone() })?;
        join(&mut url, wire.path());
        let mut shown = url.clone();
        shown.set_query(None);
        Ok(Self {
            name: config.name.as_str().into(),
            encoders: Mutex::default(),
            wire,
            endpoint: shown.to_string(),
            url,
            headers,
            credential: config.credential,
            deadlines: config.deadlines,
            client: OnceLock::new(),
        })
    }

    fn origin(&self, model: &str) -> Origin {
        Origin { provider: Arc::clone(&self.name), wire: self.wire.name().into(), model: model.into() }
    }

    fn client(&self) -> Result<&Client, Failure> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = client(&self.url, self.deadlines.connect)
            .map_err(|error| self.broken("cannot set up a connection to", &*error))?;
        Ok(self.client.get_or_init(|| client))
    }

    async fn exchange(&self, mut request: ModelRequest, deltas: &dyn Deltas) -> Result<Answer, Failure> {
        let first_by = Instant::now() + self.deadlines.first_event;
        let (origin, names) = (Arc::new(self.origin(&request.model)), Arc::clone(&request.head.names));
        encode_pictures(&mut request);
        let body = Body::wrap(Pieces::new(self.wire.body(request)));
        let send = self.client()?.post(self.url.clone()).headers(self.headers.clone()).body(body).send();
        let response = timeout_at(first_by, send)
            .await
            .map_err(|_| self.late(Deadline::FirstEvent))?
            .map_err(|error| self.not_sent(&error))?;
        if response.status().is_success() {
            let decoder = self.wire.decoder(origin);
            let mut answer = self.read_answer(response, decoder, (first_by, deltas)).await?;
            for call in &mut answer.message.calls {
                if let Some(name) = names.get(&call.name) {
                    call.name.clone_from(name);
                }
            }
            return Ok(answer);
        }
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = error_body(response).await;
        Err(self.wire.failure(status, &headers, &body))
    }

    async fn read_answer(
        &self,
        mut response: Response,
        mut decoder: Box<dyn Decoder>,
        (first_by, deltas): (Instant, &dyn Deltas),
    ) -> Result<Answer, Failure> {
        let mut next = (first_by, Deadline::FirstEvent);
        loop {
            let chunk = match timeout_at(next.0, response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => break,
                // The answer is whole: how the connection ends does not matter.
                Ok(Err(_)) | Err(_) if decoder.is_whole() => break,
                Ok(Err(error)) => return Err(self.cut(&error)),
                Err(_) => return Err(self.late(next.1)),
            };
            match decoder.push(&chunk, deltas)? {
                Progress::Quiet => {}
                Progress::Content if decoder.is_whole() => next = self.within(TAIL_WAIT),
                Progress::Content => next = self.within(self.deadlines.gap),
                Progress::Done => {
                    read_to_end(response).await;
                    break;
                }
            }
        }
        decoder.finish(deltas)
    }

    fn within(&self, wait: Duration) -> (Instant, Deadline) {
        (Instant::now() + wait.min(self.deadlines.gap), Deadline::Gap)
    }

    fn late(&self, which: Deadline) -> Failure {
        let (limit, what) = match which {
            Deadline::Connect => (self.deadlines.connect, "no connection"),
            Deadline::FirstEvent => (self.deadlines.first_event, "no answer began"),
            Deadline::Gap => (self.deadlines.gap, "the answer did not go on"),
            Deadline::Call => (self.deadlines.call, "the answer did not end"),
        };
        let message = format!("{}: {what} within {} s", self.endpoint, limit.as_secs_f64());
        Failure::new(FailureClass::Timeout { which }, message)
    }

    fn not_sent(&self, error: &reqwest::Error) -> Failure {
        if error.is_connect() && error.is_timeout() {
            return self.late(Deadline::Connect);
        }
        let what = if error.is_connect() { "cannot connect to" } else { "no response came from" };
        self.broken(what, error)
    }

    fn broken(&self, what: &str, error: &(dyn Error + 'static)) -> Failure {
        let message = format!("{what} {}: {}", self.endpoint, root_cause(error));
        Failure::new(FailureClass::Network, message)
    }

    fn cut(&self, error: &reqwest::Error) -> Failure {
        let message = format!("the answer of {} broke off: {}", self.endpoint, root_cause(error));
        Failure::new(FailureClass::Cut, message)
    }
}

impl Provider for HttpProvider {
    fn encoder(&self, model: &str, traits: &ModelTraits) -> Arc<dyn Encoder> {
        let mut encoders = self.encoders.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |writing: &Writing| &*writing.origin.model == model && writing.sees == traits.sees();
        if let Some((_, encoder)) = encoders.iter().find(|(writing, _)| is_it(writing)) {
            return Arc::clone(encoder);
        }
        let writing = Writing { origin: Arc::new(self.origin(model)), sees: traits.sees() };
        let encoder = self.wire.encoder(writing.clone());
        encoders.push((writing, Arc::clone(&encoder)));
        encoder
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest,
        deltas: &'a dyn Deltas,
    ) -> BoxFuture<'a, Result<Answer, Failure>> {
        async move {
            let result = timeout(self.deadlines.call, self.exchange(request, deltas)).await;
            let mut result = result.unwrap_or_else(|_| Err(self.late(Deadline::Call)));
            if let (Err(failure), Some(credential)) = (&mut result, &self.credential) {
                failure.message = credential.hidden_in(std::mem::take(&mut failure.message));
            }
            result
        }
        .boxed()
    }
}

/// The base URL, without anything secret in it.
fn base_url(config: &ProviderConfig) -> Result<Url, ConfigError> {
    let text = &config.base_url;
    parse_base_url(text).map_err(|reason| ConfigError::BaseUrl {
        provider: config.name.clone(),
        url: shown_url(text),
        reason,
    })
}

/// Whether a text can be a base URL, or why not.
pub fn check_base_url(text: &str) -> Result<(), String> {
    parse_base_url(text).map(drop)
}

fn parse_base_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text.trim()).map_err(|reason| reason.to_string())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it holds a user or a password, which belong into the credential".to_owned());
    }
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("it is neither http nor https".to_owned());
    }
    Ok(url)
}

/// Puts the path behind a base URL, unless the URL ends in it already, as it stands in some vendors' documentation.
fn join(url: &mut Url, path: &[&str]) {
    let has_it = url.path_segments().is_some_and(|segments| {
        segments.filter(|segment| !segment.is_empty()).collect::<Vec<_>>().ends_with(path)
    });
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path.iter().filter(|_| !has_it));
    }
}

/// The headers of every request; `None` if the credential cannot be one.
fn headers(wire: &dyn WireFormat, credential: Option<&Secret>) -> Option<HeaderMap> {
    const AGENT: &str = concat!("hermod/", env!("CARGO_PKG_VERSION"));
    let fixed: [(HeaderName, &'static str); 3] = [
        (header::CONTENT_TYPE, "application/json"),
        (header::ACCEPT, "text/event-stream"),
        (header::USER_AGENT, AGENT),
    ];
    let mut headers: HeaderMap =
        fixed.into_iter().map(|(name, value)| (name, HeaderValue::from_static(value))).collect();
    if let Some(credential) = credential {
        let text = credential.reveal();
        if text.is_empty() {
            return None;
        }
        let (name, before) = wire.credential();
        let mut value = HeaderValue::from_str(&format!("{before}{text}")).ok()?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    headers
        .extend(wire.headers().iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))));
    Some(headers)
}

/// A client for one URL. It reads certificates only for https: they cost milliseconds.
fn client(url: &Url, connect: Duration) -> Result<Client, Box<dyn Error>> {
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let tls = if url.scheme() == "https" { tls(ring)? } else { no_tls(ring)? };
    let mut builder = Client::builder()
        .tls_backend_preconfigured(tls)
        .http1_only()
        .redirect(redirect::Policy::none())
        .referer(false)
        .connect_timeout(connect);
    if is_loopback(url.host_str().unwrap_or_default()) {
        builder = builder.no_proxy();
    }
    Ok(builder.build()?)
}

fn tls(provider: Arc<CryptoProvider>) -> Result<ClientConfig, Box<dyn Error>> {
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_platform_verifier()?
        .with_no_client_auth())
}

/// Trusts nobody: for connections that use no TLS.
fn no_tls(provider: Arc<CryptoProvider>) -> Result<ClientConfig, Box<dyn Error>> {
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth())
}

fn is_loopback(host: &str) -> bool {
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// The begin of an error's body, as far as it comes.
async fn error_body(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            let room = ERROR_BODY - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() >= room {
                break;
            }
        }
    };
    // What has come until then says enough.
    let _late = timeout(ERROR_BODY_WAIT, read).await;
    body
}

/// Reads what is left, so that the connection can be used again; if that takes long, it is closed.
async fn read_to_end(mut response: Response) {
    let read = async { while let Ok(Some(_)) = response.chunk().await {} };
    let _late = timeout(END_WAIT, read).await;
}

/// The innermost error's text: the outer ones only say that something failed.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
