//! How a browser presents a token. At the sign-in the token is split in two halves: a cookie that scripts cannot read, and
//! a key that the page keeps and sends as a header. Browsers send a cookie to all ports of a host, and with requests that
//! other pages cause; without the key it is worth nothing.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::{
    access::TokenHalves,
    service::{
        Service,
        authorization::{unknown_token, verify},
        extract::read_body,
        problem::Problem,
    },
};

/// The header with the page's half: the id of both halves, a dot, and the half.
const KEY_HEADER: &str = "x-hermod-key";
/// Beginning of the name of the cookie; the id of the halves follows, so that services on several ports of one host do not
/// take each other's.
const COOKIE_PREFIX: &str = "hermod_";
/// How long a browser keeps the cookie if it is to outlive the browser, in seconds.
const KEPT_S: u32 = 30 * 24 * 3600;
/// Most bytes of the body of a sign-in.
const MAX_BODY_BYTES: usize = 1024;
/// KiB that the bodies of all sign-ins may have together.
static BODIES: Semaphore = Semaphore::const_new(256);

/// The body of a sign-in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignInBody {
    token: String,
    /// Whether the browser keeps the cookie when it ends.
    #[serde(default)]
    keep: bool,
}

/// The token whose halves a request has in its cookie and its header.
pub(in crate::service) fn presented(headers: &HeaderMap) -> Option<String> {
    let (id, page) = key(headers)?;
    TokenHalves::join(cookie(headers, id)?, page)
}

/// The id of the halves, and the page's half.
fn key(headers: &HeaderMap) -> Option<(&str, &str)> {
    let (id, page) = headers.get(KEY_HEADER)?.to_str().ok()?.split_once('.')?;
    let is_id = id.len() == 8 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then_some((id, page))
}

fn cookie<'h>(headers: &'h HeaderMap, id: &str) -> Option<&'h str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    cookies.flat_map(|cookies| cookies.split(';')).find_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name.strip_prefix(COOKIE_PREFIX)? == id).then_some(value)
    })
}

/// Signs a browser in: the answer has the page's half of the token, and the cookie the other one.
pub(super) async fn sign_in(
    State(service): State<Arc<Service>>,
    request: Request,
) -> Result<Response, Problem> {
    // Pages of other sites can send this type only if the service allows it, which it never does.
    let is_json = request.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if !is_json {
        let text = "the header Content-Type is not application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    let is_secure = service.tls.is_some() || comes_over_tls(request.headers());
    let (body, _space) = read_body(request, MAX_BODY_BYTES, &BODIES).await?;
    let body: SignInBody = serde_json::from_slice(&body)
        .map_err(|_| Problem::unprocessable("the body is not {\"token\": TEXT, \"keep\": true or false}"))?;
    let token = body.token.trim();
    verify(&service, token)?;
    let halves = TokenHalves::of(token).ok_or_else(unknown_token)?;
    let age = if body.keep { format!("; Max-Age={KEPT_S}") } else { String::new() };
    let cookie = set_cookie(&halves.id, &halves.cookie, &age, is_secure);
    let key = format!("{}.{}", halves.id, halves.page);
    Ok(([(header::SET_COOKIE, cookie?), NOT_STORED], Json(json!({ "key": key }))).into_response())
}

/// Signs a browser out: its cookie is removed. The token stays good for others.
pub(super) async fn sign_out(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let Some((id, _)) = key(&headers) else {
        return Err(Problem::bad_request(format!("the header {KEY_HEADER} is not that of a sign-in")));
    };
    let cookie = set_cookie(id, "", "; Max-Age=0", service.tls.is_some() || comes_over_tls(&headers));
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie?), NOT_STORED]).into_response())
}

/// No cache may keep the answer.
const NOT_STORED: (header::HeaderName, HeaderValue) =
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));

/// True if the browser has the page over TLS, which a proxy may have ended.
fn comes_over_tls(headers: &HeaderMap) -> bool {
    headers.get(header::ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

fn set_cookie(id: &str, value: &str, age: &str, is_secure: bool) -> Result<HeaderValue, Problem> {
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!("{COOKIE_PREFIX}{id}={value}; Path=/; HttpOnly; SameSite=Strict{age}{secure}");
    HeaderValue::from_str(&text).map_err(|_| Problem::bad_request("the cookie cannot be made"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: &str = "00000000000000000000000000000000000000000000000000000000000000ff";
    const OTHER: &str = "000000000000000000000000000000000000000000000000000000000000000f";

    #[test]
    fn a_token_is_presented_by_both_halves_alone() {
        let check = |cookies: &[&str], key: Option<&str>, expect: Option<&str>| {
            let mut headers = HeaderMap::new();
            for cookie in cookies {
                headers.append(header::COOKIE, cookie.parse().unwrap());
            }
            if let Some(key) = key {
                headers.insert(KEY_HEADER, key.parse().unwrap());
            }
            let last = presented(&headers).map(|token| token[token.len() - 2..].to_owned());
            assert_eq!(last.as_deref(), expect, "{cookies:?} {key:?}");
        };
        let (cookie, key) = (format!("hermod_0000000a={HALF}"), format!("0000000a.{OTHER}"));
        check(&[&cookie], Some(&key), Some("f0"));
        check(&[&format!("a=b; {cookie}; c=d")], Some(&key), Some("f0"));
        check(&["a=b", &cookie], Some(&key), Some("f0"));
        check(&[&cookie], None, None);
        check(&[], Some(&key), None);
        check(&[&cookie], Some(&format!("0000000b.{OTHER}")), None);
        check(&[&cookie], Some(OTHER), None);
        check(&[&cookie], Some(&format!(".{OTHER}")), None);
        check(&["hermod_0000000a="], Some(&key), None);
        check(&[&cookie], Some("0000000a."), None);
    }

    #[test]
    fn a_cookie_is_for_the_service_alone() {
        let check = |age: &str, is_secure, expect: &str| {
            assert_eq!(set_cookie("0000000a", "ff", age, is_secure).unwrap(), expect);
        };
        check("", false, "hermod_0000000a=ff; Path=/; HttpOnly; SameSite=Strict");
        check(
            "; Max-Age=0",
            true,
            "hermod_0000000a=ff; Path=/; HttpOnly; SameSite=Strict; Max-Age=0; Secure",
        );
    }
}
