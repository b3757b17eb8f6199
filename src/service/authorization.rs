//! Who may do what: the header `Host` and the origin of a browser are checked first, then the token, then its scope.

use std::{borrow::Cow, marker::PhantomData, sync::Arc};

use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use super::{Service, dashboard, problem::Problem, reach::Reach, tls::TlsAcceptor};
use crate::access::{Scope, TokenEntry};

/// Paths that need no token in a header: probes of a supervisor and the document of the operations, which tell nothing of
/// any run, and the WebSocket whose clients present their token in the first message.
const OPEN_PATHS: [&str; 4] = ["/livez", "/readyz", "/openapi.json", "/gateway"];
/// Beginning of the paths of webhooks of other services: they are signed, and their operation checks that. It takes no
/// token, and all others need the one that is not read here.
const INBOUND_PATHS: &str = "/v1/hooks/";

/// Refuses requests from other sites and without a valid token, before any of their body is read.
pub(super) async fn authorize(
    State(service): State<Arc<Service>>,
    mut request: Request,
    next: Next,
) -> Response {
    let token = match check(&service, &request) {
        Ok(token) => token,
        Err(problem) => return problem.into_response(),
    };
    let reads = request.method().is_safe();
    if let Some(token) = &token {
        request.extensions_mut().insert(Arc::clone(token));
    }
    let response = next.run(request).await;
    // A request may wait for long, and a token that is revoked meanwhile reads nothing more.
    match token.filter(|token| reads && !service.tokens.is_valid(token)) {
        Some(_) => unknown_token().into_response(),
        None => response,
    }
}

fn check(service: &Service, request: &Request) -> Result<Option<Arc<TokenEntry>>, Problem> {
    check_host((&service.hosts, service.tls.as_deref()), request)?;
    let path = request.uri().path();
    if OPEN_PATHS.contains(&path)
        || path.starts_with(INBOUND_PATHS)
        || (service.dashboard && dashboard::is_open(path))
    {
        return Ok(None);
    }
    let token = presented(service, request.headers()).ok_or_else(|| {
        let text = "the header Authorization is not `Bearer TOKEN`; `hermod tokens create` makes a token";
        Problem::new(StatusCode::UNAUTHORIZED, text)
    })?;
    verify(service, &token).map(Some)
}

/// The token of a request: that of its header, else the one of which a browser has two halves.
fn presented<'h>(service: &Service, headers: &'h HeaderMap) -> Option<Cow<'h, str>> {
    if headers.contains_key(header::AUTHORIZATION) {
        return bearer(headers).map(Cow::Borrowed);
    }
    service.dashboard.then(|| dashboard::presented(headers)).flatten().map(Cow::Owned)
}

/// The entry of a presented token.
pub(super) fn verify(service: &Service, token: &str) -> Result<Arc<TokenEntry>, Problem> {
    match service.tokens.verify(token) {
        Ok(Some(entry)) => Ok(entry),
        Ok(None) => Err(unknown_token()),
        Err(error) => {
            tracing::error!(%error, "no token can be checked");
            Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "the file of the tokens cannot be read; see the log",
            ))
        }
    }
}

pub(super) fn unknown_token() -> Problem {
    let text = "this token is not known, revoked or expired; `hermod tokens create` makes a new one";
    Problem::new(StatusCode::UNAUTHORIZED, text)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    (values.next().is_none() && scheme.eq_ignore_ascii_case("bearer")).then(|| token.trim())
}

/// A page of another site can have a browser send requests here, under a name that leads to this address.
fn check_host((hosts, tls): (&[String], Option<&TlsAcceptor>), request: &Request) -> Result<(), Problem> {
    let mut values = request.headers().get_all(header::HOST).iter();
    let host = values.next().and_then(|host| host.to_str().ok()).or_else(|| request.uri().host());
    let is_known = |host: &str| {
        let host = host.to_ascii_lowercase();
        let name = without_port(&host);
        hosts.iter().any(|known| *known == host || known == name) || tls.is_some_and(|tls| tls.has_name(name))
    };
    match host {
        Some(host) if is_known(host) && values.next().is_none() => {}
        host => {
            let host = host.unwrap_or_default();
            let detail = format!("the service is not known as `{host}`; add that name to service.hosts");
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail));
        }
    }
    let Some(origin) = request.headers().get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let site = origin.split_once("://").map_or(origin, |(_, site)| site);
    if is_known(site) {
        return Ok(());
    }
    let detail = format!("pages of `{origin}` may not use the service; add that host to service.hosts");
    Err(Problem::new(StatusCode::FORBIDDEN, detail))
}

/// A host without its port; IPv6 addresses are in brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        Some(_) | None => host,
    }
}

/// The token of a request, as `authorize` has found it.
fn token_of(parts: &Parts) -> Result<Arc<TokenEntry>, Problem> {
    let token = parts.extensions.get::<Arc<TokenEntry>>().cloned();
    token.ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, "this operation needs a token"))
}

impl Reach {
    /// What the token of a request reaches.
    pub(super) fn of_request(parts: &Parts, service: &Arc<Service>) -> Result<Self, Problem> {
        Ok(Self::new(Arc::clone(service), token_of(parts)?))
    }
}

/// A scope as a type, for the signature of an operation.
pub(super) trait RequiredScope: Send {
    const SCOPE: Scope;
}

macro_rules! scopes {
    ($($name:ident),*) => {$(
        #[derive(Debug)]
        pub(super) struct $name;
        impl RequiredScope for $name {
            const SCOPE: Scope = Scope::$name;
        }
    )*};
}
scopes!(Read, Submit, Steer, Approve, Admin);

/// The token of a request, which has this scope.
#[derive(Debug)]
pub(super) struct Granted<S> {
    pub(super) token: Arc<TokenEntry>,
    scope: PhantomData<S>,
}

impl<S> Granted<S> {
    /// Refuses a token that is limited to agents; `why` says that the operation tells of all.
    pub(super) fn check_unlimited(&self, why: &str) -> Result<(), Problem> {
        if self.token.agents.is_none() {
            return Ok(());
        }
        let detail = format!("{why}, and the token `{}` is limited to some", self.token.name);
        Err(Problem::new(StatusCode::FORBIDDEN, detail))
    }

    /// What the token reaches.
    pub(super) fn reach(&self, service: Arc<Service>) -> Reach {
        Reach::new(service, Arc::clone(&self.token))
    }
}

impl<S: RequiredScope, T: Sync> FromRequestParts<T> for Granted<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &T) -> Result<Self, Problem> {
        let token = token_of(parts)?;
        require(&token, S::SCOPE)?;
        Ok(Self { token, scope: PhantomData })
    }
}

/// What the token of a request reaches, whatever its scopes: an operation that learns from the body what is asked checks
/// them by [`require`].
#[derive(Debug)]
pub(super) struct Presented(pub(super) Reach);

impl FromRequestParts<Arc<Service>> for Presented {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Problem> {
        Reach::of_request(parts, service).map(Self)
    }
}

/// Refuses a token without this scope.
pub(super) fn require(token: &TokenEntry, scope: Scope) -> Result<(), Problem> {
    if token.has(scope) {
        return Ok(());
    }
    let detail = format!("the token `{}` has no scope `{scope}`", token.name);
    Err(Problem::new(StatusCode::FORBIDDEN, detail))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn only_known_hosts_and_their_pages_are_served() {
        let hosts = ["127.0.0.1", "localhost", "[::1]", "hermod.example:8443"].map(str::to_owned);
        let check = |host: Option<&str>, origin: Option<&str>, expect: Option<u16>| {
            let mut request = Request::builder().uri("/v1/runs");
            for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
                if let Some(value) = value {
                    request = request.header(name, value);
                }
            }
            let request = request.body(Body::empty()).unwrap();
            let status =
                check_host((&hosts, None), &request).err().map(|problem| problem.into_response().status());
            assert_eq!(status.map(|status| status.as_u16()), expect, "{host:?} {origin:?}");
        };
        for host in
            ["127.0.0.1", "127.0.0.1:7717", "LOCALHOST:80", "[::1]:7717", "[::1]", "hermod.example:8443"]
        {
            check(Some(host), None, None);
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "hermod.example",
            "hermod.example:1",
            "",
            "127.0.0.2:7717",
        ] {
            check(Some(host), None, Some(421));
        }
        check(None, None, Some(421));
        check(Some("localhost"), Some("http://localhost:7717"), None);
        check(Some("localhost"), Some("https://evil.example"), Some(403));
        check(Some("localhost"), Some("null"), Some(403));
    }

    #[test]
    fn a_token_is_the_only_credential_of_a_request() {
        let check = |values: &[&str], expect: Option<&str>| {
            let mut headers = HeaderMap::new();
            values.iter().for_each(|value| {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            });
            assert_eq!(bearer(&headers), expect, "{values:?}");
        };
        check(&["Bearer abc"], Some("abc"));
        check(&["bearer  abc "], Some("abc"));
        check(&["Basic abc"], None);
        check(&["abc"], None);
        check(&["Bearer a", "Bearer b"], None);
        check(&[], None);
    }
}
