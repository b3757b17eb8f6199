//! [`HttpProvider`], the implementation of `ModelProvider`: requests, deadlines, credentials, and the redaction of
//! failures.

use std::{
    error::Error,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};
use hermod_actors::{
    ActiveDeadline,
    model::{
        AnswerOrigin, CredentialId, Deadline, Failure, FailureClass, ModelAnswer, ModelLimits, ModelProfile,
        PoolStrategy, RateLimits, RequestFate,
    },
    port::{Clock as _, DeltaSink, Encoder, ModelProvider, ModelRequest},
};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use reqwest::{Body, Client, Response, Url};
use tokio::time::timeout;

use super::{
    client::{build_client, read_prefix, root_cause},
    config::{Deadlines, ProviderConfig, ProviderConfigError, parse_base_url},
    model_list,
};
use crate::{
    clock::SystemClock,
    provider::{
        BEARER, Credential, Dialect, WIRES, Wire, chat_completions,
        chunked_body::ChunkedBody,
        credential::{KeyError, KeyPlacement, NumberedKey},
        failure::{BodyEnd, failure_of, with_body_end},
        rates::rate_info,
        wire::{DecodeProgress, Decoder, EncodeTarget, WireFormat, encode_images},
    },
    secret::{redact, redacted_url},
};

/// Maximum number of bytes read of an error's body.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
/// Time limit for reading an error's body.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a complete answer waits for further events (the usage, the end mark).
const TAIL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of a request for the list of models.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the body may take to end after the end mark, so that the connection can be reused.
const END_TIMEOUT: Duration = Duration::from_millis(50);

/// A provider behind HTTP.
#[derive(Debug)]
pub struct HttpProvider {
    wire: &'static Wire,
    format: Box<dyn WireFormat>,
    name: Arc<str>,
    encoders: Mutex<Vec<(EncodeTarget, Arc<dyn Encoder>)>>,
    base: Url,
    url: Url,
    /// The URL without its query, for messages.
    endpoint: String,
    headers: HeaderMap,
    credentials: Vec<Credential>,
    pool: PoolStrategy,
    limits: RateLimits,
    deadlines: Deadlines,
    clock: SystemClock,
    /// True if the provider may be queried for its list of models.
    may_list_models: bool,
    /// Created at the first call: TLS setup takes milliseconds, which a start without a call should not spend.
    client: OnceLock<Client>,
}

impl HttpProvider {
    /// Checks the configuration; touches neither network nor disk.
    pub fn new(config: ProviderConfig) -> Result<Self, ProviderConfigError> {
        let base = parse_base_url(&config.base_url).map_err(|reason| ProviderConfigError::BaseUrl {
            provider: config.name.clone(),
            url: redacted_url(&config.base_url),
            reason,
        })?;
        let mut url = base.clone();
        let dialect = Dialect { host: url.host_str().unwrap_or_default().to_owned(), cache: config.cache };
        let wire =
            WIRES.iter().find(|wire| wire.name == config.wire).ok_or_else(|| ProviderConfigError::Wire {
                provider: config.name.clone(),
                wire: config.wire.clone(),
                known: WIRES.iter().map(|wire| wire.name).collect::<Vec<_>>().join(", "),
            })?;
        for (credential, key) in config.credentials.iter().filter_map(|it| Some((it, it.known_key()?))) {
            authorization(wire, credential.placement(), key.reveal())
                .ok_or_else(|| ProviderConfigError::Credential { provider: config.name.clone() })?;
        }
        append_path(&mut url, wire.path);
        let mut endpoint = url.clone();
        endpoint.set_query(None);
        Ok(Self {
            name: config.name.as_str().into(),
            encoders: Mutex::default(),
            headers: base_headers(wire),
            format: (wire.make)(&dialect),
            wire,
            endpoint: endpoint.to_string(),
            base,
            url,
            credentials: config.credentials,
            pool: config.pool,
            limits: config.limits,
            deadlines: config.deadlines,
            clock: SystemClock::default(),
            may_list_models: true,
            client: OnceLock::new(),
        })
    }

    /// This provider, never queried for a list of its models.
    #[must_use]
    pub fn without_model_list(self) -> Self {
        Self { may_list_models: false, ..self }
    }

    /// The headers of a request for a list of models. They have the key of the first credential only if it is known
    /// already, because fetching a key takes too long.
    fn list_headers(&self) -> HeaderMap {
        let known = self.credentials.first().and_then(|credential| {
            authorization(self.wire, credential.placement(), credential.known_key()?.reveal())
        });
        let mut headers = self.headers.clone();
        headers.extend(known);
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        headers
    }

    fn origin(&self, model: &str) -> AnswerOrigin {
        AnswerOrigin { provider: Arc::clone(&self.name), wire: self.wire.name.into(), model: model.into() }
    }

    fn client(&self) -> Result<&Client, Failure> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = build_client(&self.url, self.deadlines.connect)
            .map_err(|error| self.network_failure("cannot set up a connection to", &*error))?;
        Ok(self.client.get_or_init(|| client))
    }

    /// The key for a request with this credential; `None` if the provider has no credentials.
    async fn key(&self, id: CredentialId) -> Result<Option<NumberedKey>, Failure> {
        let Some(credential) = self.credentials.get(id.0) else {
            let none = format!("provider {} has no {id}", self.name);
            return self.credentials.is_empty().then_some(None).ok_or(Failure::new(FailureClass::Auth, none));
        };
        credential.key().await.map(Some).map_err(|error| {
            let class = match &error {
                KeyError::Denied(_) => FailureClass::Auth,
                KeyError::Unreachable(_) => FailureClass::Server,
            };
            Failure::new(class, format!("{id} of provider {} cannot be had: {error}", self.name))
        })
    }

    fn headers_with(&self, id: CredentialId, key: Option<&NumberedKey>) -> Result<HeaderMap, Failure> {
        let mut headers = self.headers.clone();
        if let (Some(credential), Some(key)) = (self.credentials.get(id.0), key) {
            let header = authorization(self.wire, credential.placement(), key.secret.reveal());
            let (name, value) = header.ok_or_else(|| {
                let what = "is empty or has a line break or control character in it";
                Failure::new(FailureClass::Auth, format!("{id} of provider {} {what}", self.name))
            })?;
            headers.insert(name, value);
        }
        Ok(headers)
    }

    /// The status of the answer to a request for the list of models with this credential, which costs nothing.
    pub async fn list_status(&self, id: CredentialId) -> Result<u16, Failure> {
        let key = self.key(id).await?;
        let mut headers = self.headers_with(id, key.as_ref())?;
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let request = self.client()?.get(model_list::models_url(&self.base)).headers(headers);
        match request.timeout(LIST_TIMEOUT).send().await {
            Ok(response) => Ok(response.status().as_u16()),
            Err(error) => Err(self.redacted(self.send_failure(&error), id, key)),
        }
    }

    /// The failure without secrets. An authentication failure marks the key as refused.
    fn redacted(&self, mut failure: Failure, id: CredentialId, key: Option<NumberedKey>) -> Failure {
        if let (FailureClass::Auth, Some(key), Some(credential)) =
            (&failure.class, &key, self.credentials.get(id.0))
        {
            credential.on_refused(key);
        }
        // The current key may have changed since the request.
        let mut secrets: Vec<_> = key.into_iter().map(|key| key.secret).collect();
        secrets.extend(self.credentials.iter().flat_map(Credential::secrets));
        failure.message = redact(&secrets, failure.message);
        failure
    }

    async fn send_request(
        &self,
        mut request: ModelRequest,
        headers: HeaderMap,
        sent: &Arc<AtomicBool>,
        deltas: &dyn DeltaSink,
    ) -> Result<ModelAnswer, Failure> {
        let deadlines = self.deadlines.overridden_by(&request.deadlines);
        let mut first_deadline = ActiveDeadline::after(deadlines.first_event);
        let (origin, names) =
            (Arc::new(self.origin(&request.model)), Arc::clone(&request.head.renamed_tools));
        encode_images(&mut request);
        let body = Body::wrap(ChunkedBody::new(self.format.body(request), Arc::clone(sent)));
        let send = self.client()?.post(self.url.clone()).headers(headers).body(body).send();
        let response = first_deadline
            .bound(send)
            .await
            .ok_or_else(|| self.timeout_failure(Deadline::FirstEvent, &deadlines))?
            .map_err(|error| self.send_failure(&error))?;
        if let Some(info) = rate_info(response.headers(), self.clock.at()) {
            deltas.limits(info);
        }
        if response.status().is_success() {
            let decoder = self.format.decoder(origin);
            let mut answer =
                self.read_answer(response, decoder, (first_deadline, &deadlines), deltas).await?;
            for call in &mut answer.message.calls {
                if let Some(name) = names.get(&call.name) {
                    call.name.clone_from(name);
                }
            }
            return Ok(answer);
        }
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let (body, end) = read_error_body(response).await;
        let failure = failure_of(status, &headers, &body);
        Err(with_body_end(failure, status, &headers, &body, end))
    }

    async fn read_answer(
        &self,
        mut response: Response,
        mut decoder: Box<dyn Decoder>,
        (first_deadline, deadlines): (ActiveDeadline, &Deadlines),
        deltas: &dyn DeltaSink,
    ) -> Result<ModelAnswer, Failure> {
        let mut next = (first_deadline, Deadline::FirstEvent);
        loop {
            let chunk = match next.0.bound(response.chunk()).await {
                Some(Ok(Some(chunk))) => chunk,
                Some(Ok(None)) => break,
                // The answer is complete, so the way the connection ends does not matter.
                Some(Err(_)) | None if decoder.is_whole() => break,
                Some(Err(error)) => return Err(self.incomplete_stream(&error)),
                None => return Err(self.timeout_failure(next.1, deadlines)),
            };
            match decoder.push(&chunk, deltas)? {
                DecodeProgress::Quiet => {}
                DecodeProgress::Content if decoder.is_whole() => {
                    next = gap_deadline(TAIL_TIMEOUT.min(deadlines.gap));
                }
                DecodeProgress::Content => next = gap_deadline(deadlines.gap),
                DecodeProgress::Done => {
                    read_to_end(response).await;
                    break;
                }
            }
        }
        decoder.finish(deltas)
    }

    fn timeout_failure(&self, which: Deadline, deadlines: &Deadlines) -> Failure {
        let (limit, what) = match which {
            Deadline::Connect => (deadlines.connect, "no connection"),
            Deadline::FirstEvent => (deadlines.first_event, "no answer began"),
            Deadline::Gap => (deadlines.gap, "the answer did not go on"),
            Deadline::Call => (deadlines.call, "the answer did not end"),
        };
        let message = format!("{}: {what} within {} s", self.endpoint, limit.as_secs_f64());
        Failure::new(FailureClass::Timeout { which }, message)
    }

    fn send_failure(&self, error: &reqwest::Error) -> Failure {
        if error.is_connect() && error.is_timeout() {
            return self.timeout_failure(Deadline::Connect, &self.deadlines);
        }
        let what = if error.is_connect() { "cannot connect to" } else { "no response came from" };
        self.network_failure(what, error)
    }

    fn network_failure(&self, what: &str, error: &(dyn Error + 'static)) -> Failure {
        let message = format!("{what} {}: {}", self.endpoint, root_cause(error));
        Failure::new(FailureClass::Network, message)
    }

    fn incomplete_stream(&self, error: &reqwest::Error) -> Failure {
        let message = format!("the answer of {} broke off: {}", self.endpoint, root_cause(error));
        Failure::new(FailureClass::IncompleteStream, message)
    }
}

impl ModelProvider for HttpProvider {
    fn encoder(&self, model: &str, profile: &ModelProfile) -> Arc<dyn Encoder> {
        let mut encoders = self.encoders.lock().unwrap_or_else(PoisonError::into_inner);
        let is_match = |target: &EncodeTarget| {
            &*target.origin.model == model && target.has_vision == profile.accepts_images()
        };
        if let Some((_, encoder)) = encoders.iter().find(|(target, _)| is_match(target)) {
            return Arc::clone(encoder);
        }
        let target =
            EncodeTarget { origin: Arc::new(self.origin(model)), has_vision: profile.accepts_images() };
        let encoder = self.format.encoder(target.clone());
        encoders.push((target, Arc::clone(&encoder)));
        encoder
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest,
        deltas: &'a dyn DeltaSink,
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        async move {
            let deadlines = self.deadlines.overridden_by(&request.deadlines);
            let (id, mut key) = (request.credential, None);
            let sent = Arc::new(AtomicBool::new(false));
            let attempt = async {
                key = self.key(id).await?;
                let headers = self.headers_with(id, key.as_ref())?;
                self.send_request(request, headers, &sent, deltas).await
            };
            let result = ActiveDeadline::after(deadlines.call).bound(attempt).await;
            let result = result.unwrap_or_else(|| Err(self.timeout_failure(Deadline::Call, &deadlines)));
            result.map_err(|failure| {
                let fate = fate_of(&failure, sent.load(Ordering::Relaxed));
                self.redacted(failure.with_request(fate), id, key)
            })
        }
        .boxed()
    }

    fn credentials(&self) -> usize {
        self.credentials.len().max(1)
    }

    fn pool(&self) -> PoolStrategy {
        self.pool
    }

    fn limits(&self) -> RateLimits {
        self.limits
    }

    fn longest_call(&self) -> Duration {
        self.deadlines.call
    }

    fn model_limits<'a>(&'a self, model: &'a str) -> Option<BoxFuture<'a, Option<ModelLimits>>> {
        // The lists of the other formats contain no limits.
        let has_limits = self.may_list_models && self.wire.name == chat_completions::NAME;
        has_limits.then(|| {
            async move {
                model_list::limits(self.client().ok()?, &self.base, self.list_headers(), model).await
            }
            .boxed()
        })
    }

    /// Requests the list of models, which all vendors have at the same place. Its content does not matter.
    fn probe(&self) -> Option<BoxFuture<'_, Result<(), Failure>>> {
        self.may_list_models.then(|| {
            async move {
                let url = model_list::models_url(&self.base);
                let request = self.client()?.get(url).headers(self.list_headers());
                request.send().await.map(drop).map_err(|error| self.send_failure(&error))
            }
            .boxed()
        })
    }

    fn renew(&self, credential: CredentialId) -> BoxFuture<'_, bool> {
        async move {
            match self.credentials.get(credential.0) {
                Some(credential) => credential.renew().await,
                None => false,
            }
        }
        .boxed()
    }
}

/// The fate of a failed attempt's request. The provider's own report counts first; without one, a request that was not
/// sent completely is `NotSent`.
fn fate_of(failure: &Failure, is_sent: bool) -> RequestFate {
    match failure.request {
        Some(fate) => fate,
        None if is_sent => failure.class.usual_fate(),
        None => RequestFate::NotSent,
    }
}

/// The deadline of the next piece.
fn gap_deadline(gap: Duration) -> (ActiveDeadline, Deadline) {
    (ActiveDeadline::after(gap), Deadline::Gap)
}

/// Appends the path to a base URL, unless the URL already ends in it, as in the documentation of some vendors.
fn append_path(url: &mut Url, path: &[&str]) {
    let has_it = url.path_segments().is_some_and(|segments| {
        segments.filter(|segment| !segment.is_empty()).collect::<Vec<_>>().ends_with(path)
    });
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path.iter().filter(|_| !has_it));
    }
}

/// The headers of every request, without a credential.
fn base_headers(wire: &Wire) -> HeaderMap {
    const USER_AGENT: &str = concat!("hermod/", env!("CARGO_PKG_VERSION"));
    let fixed: [(HeaderName, &'static str); 3] = [
        (header::CONTENT_TYPE, "application/json"),
        (header::ACCEPT, "text/event-stream"),
        (header::USER_AGENT, USER_AGENT),
    ];
    let wire_headers = wire.headers.iter().map(|(name, value)| (HeaderName::from_static(name), *value));
    fixed
        .into_iter()
        .chain(wire_headers)
        .map(|(name, value)| (name, HeaderValue::from_static(value)))
        .collect()
}

/// The header with a key; `None` if the key is empty or invalid in a header.
fn authorization(wire: &Wire, placement: KeyPlacement, key: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, prefix) = match placement {
        KeyPlacement::ByWire => wire.credential,
        KeyPlacement::Bearer => BEARER,
    };
    let mut value = HeaderValue::from_str(&format!("{prefix}{key}")).ok().filter(|_| !key.is_empty())?;
    value.set_sensitive(true);
    Some((HeaderName::from_static(name), value))
}

/// The start of an error's body, and how its reading ended.
async fn read_error_body(mut response: Response) -> (Vec<u8>, BodyEnd) {
    let mut body = Vec::new();
    let read = read_prefix(&mut response, MAX_ERROR_BODY_BYTES, &mut body);
    let read = ActiveDeadline::after(ERROR_BODY_TIMEOUT).bound(read).await;
    (body, read.unwrap_or(BodyEnd::Broken))
}

/// Reads the rest of the body within [`END_TIMEOUT`], so that the connection can be reused; otherwise it closes.
async fn read_to_end(mut response: Response) {
    let read = async { while let Ok(Some(_)) = response.chunk().await {} };
    let _late = timeout(END_TIMEOUT, read).await;
}
