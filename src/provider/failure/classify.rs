//! Classification of a response that is no answer: its failure class, request fate and message.

use hermod_actors::model::{Deadline, Failure, FailureClass, RequestFate};
use http::HeaderMap;
use serde_json::Value;

use super::{
    counts::class_of_counts,
    error_hints::{CODES, LOOSE_CODES, class_of_code, normalize_code},
    headers,
    retry_after::RetryAfter,
    rules::classes_in,
    sizes::{class_of_sizes, window_in},
    vendor_error::{MAX_DEPTH, VendorError},
};
use crate::provider::excerpt::excerpt;

/// The maximum length of a failure's message in characters.
const MAX_MESSAGE_CHARS: usize = 500;

/// The failure of a response without a success status. `body` may be cut off; the message quotes the vendor, bounded.
pub fn failure_of(status: u16, headers: &HeaderMap, body: &[u8]) -> Failure {
    if is_html(body) {
        let wait = headers::retry_after(headers).or(headers::latest_reset(headers));
        let class = match status {
            401 | 408 | 413 | 429 | 500.. => class_of_status(status, wait),
            _ => FailureClass::NotAnApi,
        };
        let fate = fate_of(status, &class);
        let before = format!("HTTP {status}: HTML page in place of an answer: ");
        return failure_with_excerpt(class, &before, body).with_request(fate);
    }
    let mut error = VendorError::of_bytes(body);
    let named = headers.get("x-amzn-errortype").and_then(|kind| kind.to_str().ok());
    error.codes.extend(named.and_then(|kind| kind.split(':').next()).map(normalize_code));
    let text = if error.message.is_empty() { "no explanation" } else { &error.message };
    let mut class = class_of(&error, Some(status), headers);
    if let FailureClass::QuotaExhausted { reset_at } = &mut class {
        *reset_at = reset_at.or_else(|| headers::retry_at(headers));
    }
    let fate = fate_of(status, &class);
    failure_with_excerpt(class, &format!("HTTP {status}: "), text.as_bytes()).with_request(fate)
}

/// The fate of a request, from the status and class of its response: `Rejected` if the provider refused it before it
/// worked on it.
const fn fate_of(status: u16, class: &FailureClass) -> RequestFate {
    match (status, class) {
        // Vendors bill these. A filter has read the request, a deadline or a broken model ended the work, or a gateway
        // had passed the request on.
        (_, FailureClass::ContentRefused) | (408 | 424 | 502 | 504 | 520 | 524, _) => RequestFate::MayHaveRun,
        // Cloudflare sends 521 to 523, 525 and 526 if it has not reached the server behind it.
        (..500 | 501 | 503 | 505 | 521..=523 | 525 | 526 | 529, _) => RequestFate::Rejected,
        (500.., class) => class.usual_fate(),
    }
}

/// The failure of an error under status 200: the value of an `error` field, or a whole event of type `error`.
pub fn failure_in_stream(error: &Value) -> Failure {
    let found = VendorError::of_document(error, MAX_DEPTH);
    failure_under_200(&found.unwrap_or_else(|| VendorError::of_value(error, MAX_DEPTH)))
}

/// The failure of a JSON document under status 200 that is no answer; `None` if it contains no error.
pub fn failure_in_body(body: &[u8]) -> Option<Failure> {
    let error = VendorError::of_document(&serde_json::from_slice(body).ok()?, MAX_DEPTH)?;
    Some(failure_under_200(&error))
}

fn failure_under_200(error: &VendorError) -> Failure {
    let status = error.chain().iter().rev().find_map(|error| error.status);
    let class = class_of(error, status, &HeaderMap::new());
    let fate = match status {
        Some(status) => fate_of(status, &class),
        None => class.usual_fate(),
    };
    failure_with_excerpt(class, "error in place of an answer: ", error.message.as_bytes()).with_request(fate)
}

fn failure_with_excerpt(class: FailureClass, before: &str, text: &[u8]) -> Failure {
    let hint = if class == FailureClass::NotAnApi { " (check base_url)" } else { "" };
    let message = excerpt(&[before.as_bytes(), text].concat(), MAX_MESSAGE_CHARS - hint.len());
    Failure::new(class, message + hint)
}

fn is_html(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'<')
}

/// Sizes come first, because vendors report them under many codes. Classes of codes and texts that are plausible with
/// the status come next; the status is last.
fn class_of(error: &VendorError, status: Option<u16>, headers: &HeaderMap) -> FailureClass {
    let chain = error.chain();
    let body = chain.iter().fold(RetryAfter::default(), |found, error| found.or(error.retry_after));
    let wait = headers::retry_after(headers).or(body).or(headers::latest_reset(headers));
    let is_credible = |class: &FailureClass| status.is_none_or(|status| is_plausible(class, status));
    let texts = || chain.iter().filter(|error| !error.is_about_a_field).map(|error| error.text.as_str());
    if is_credible(&FailureClass::ContextTooLong { limit: None })
        && let Some(class) = texts().find_map(|text| class_of_sizes(text).or_else(|| class_of_counts(text)))
    {
        return class;
    }
    let codes = || chain.iter().flat_map(|error| &error.codes);
    let mut classes = (codes().filter_map(|code| class_of_code(CODES, code)))
        .chain(texts().flat_map(classes_in))
        .chain(codes().filter_map(|code| class_of_code(LOOSE_CODES, code)));
    match (classes.find(|class| is_credible(class)), status) {
        // A short retry time means a rate limit, whatever the wording.
        (Some(FailureClass::QuotaExhausted { .. }), _) if body.after_ms.is_some() => rate_limited(wait),
        (Some(FailureClass::QuotaExhausted { .. }), _) => FailureClass::QuotaExhausted { reset_at: wait.at },
        (Some(FailureClass::RateLimited { .. }), _) => rate_limited(wait),
        (Some(FailureClass::ContextTooLong { .. }), _) => {
            let window = chain.iter().find_map(|error| error.window.or_else(|| window_in(&error.text)));
            FailureClass::ContextTooLong { limit: window }
        }
        // With a retry time, the wait is more useful than the reason.
        (Some(FailureClass::Overloaded), Some(429)) if wait != RetryAfter::default() => rate_limited(wait),
        (Some(class), _) => class.clone(),
        (None, Some(404)) if error.text.is_empty() => FailureClass::NotAnApi,
        (None, Some(status)) => class_of_status(relayed_status(status, &chain), wait),
        (None, None) => FailureClass::Server,
    }
}

/// The status that a gateway reports of the provider behind it, if its own says less.
fn relayed_status(status: u16, chain: &[&VendorError]) -> u16 {
    let relayed = chain.iter().filter(|error| !error.is_about_a_field).find_map(|error| error.status);
    match (status, relayed) {
        (400 | 500 | 502, Some(relayed @ (402 | 413 | 429 | 503 | 529))) => relayed,
        _ => status,
    }
}

/// True if a response with this status can mean this. Otherwise the class comes from a quoted error.
const fn is_plausible(class: &FailureClass, status: u16) -> bool {
    match class {
        FailureClass::QuotaExhausted { .. } => status < 500 && status != 408,
        FailureClass::ContentRefused => matches!(status, 400 | 403 | 422 | 451 | 500),
        FailureClass::ContextTooLong { .. } => matches!(status, 400 | 413 | 422 | 429 | 500),
        FailureClass::ModelNotFound => matches!(status, 400 | 403 | 404 | 410 | 422),
        FailureClass::RateLimited { .. } => !matches!(status, 401 | 404 | 408),
        FailureClass::Overloaded => matches!(status, 400 | 429 | 500..),
        FailureClass::Auth | FailureClass::InvalidRequest => matches!(status, 400 | 422),
        FailureClass::NotAnApi => matches!(status, 404 | 405),
        // The status already decides the first three; no code and no phrase means the others.
        FailureClass::Timeout { .. }
        | FailureClass::Network
        | FailureClass::Server
        | FailureClass::IncompleteStream
        | FailureClass::OutputCap { .. }
        | FailureClass::Cancelled
        | FailureClass::Lost
        | FailureClass::NotSent
        | FailureClass::Interrupted => false,
    }
}

const fn rate_limited(wait: RetryAfter) -> FailureClass {
    FailureClass::RateLimited { retry_after_ms: wait.after_ms, reset_at: wait.at }
}

const fn class_of_status(status: u16, wait: RetryAfter) -> FailureClass {
    match status {
        // Redirects are not followed.
        ..400 | 405 => FailureClass::NotAnApi,
        401 | 403 => FailureClass::Auth,
        402 => FailureClass::QuotaExhausted { reset_at: wait.at },
        408 => FailureClass::Timeout { which: Deadline::Call },
        413 => FailureClass::ContextTooLong { limit: None },
        // Bedrock sends 424 if its model broke.
        424 => FailureClass::Server,
        429 => rate_limited(wait),
        400..500 => FailureClass::InvalidRequest,
        // Cloudflare sends 52x if the server behind it is down or slow.
        502..=504 | 520..=524 | 529 => FailureClass::Overloaded,
        500.. => FailureClass::Server,
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[allow(clippy::needless_pass_by_value)] // the callers write the class where it is expected
    fn check_with(headers: &[(&'static str, &'static str)], status: u16, body: &str, expected: FailureClass) {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let failure = failure_of(status, &headers.iter().map(pair).collect(), body.as_bytes());
        assert_eq!(failure.class, expected, "{status} {body}");
        assert!(failure.message.starts_with(&format!("HTTP {status}: ")), "{failure}");
        assert!(failure.message.chars().count() <= MAX_MESSAGE_CHARS + 1, "{failure}");
    }

    fn check(status: u16, body: &str, expected: FailureClass) {
        check_with(&[], status, body, expected);
    }

    const RATE: FailureClass = FailureClass::RateLimited { retry_after_ms: None, reset_at: None };
    const QUOTA_OUT: FailureClass = FailureClass::QuotaExhausted { reset_at: None };

    #[test]
    fn a_status_has_a_class() {
        let classes = [
            (302, FailureClass::NotAnApi),
            (400, FailureClass::InvalidRequest),
            (401, FailureClass::Auth),
            (402, QUOTA_OUT),
            (403, FailureClass::Auth),
            (405, FailureClass::NotAnApi),
            (408, FailureClass::Timeout { which: Deadline::Call }),
            (413, FailureClass::ContextTooLong { limit: None }),
            (422, FailureClass::InvalidRequest),
            (429, RATE),
            (500, FailureClass::Server),
            (501, FailureClass::Server),
            (503, FailureClass::Overloaded),
            (529, FailureClass::Overloaded),
            (999, FailureClass::Server),
        ];
        for (status, class) in classes {
            for body in ["", "{}", "null", "[]", r#"{"error":{"message":"so"}}"#, r#"{"detail":[1]}"#, "so"] {
                check(status, body, class.clone());
            }
        }
    }

    #[test]
    fn a_404_is_the_models_or_the_paths() {
        for body in ["", "{}", "Not Found", "404 page not found", r#"{"detail":"Not Found"}"#] {
            check(404, body, FailureClass::NotAnApi);
        }
        let invalid_url = r#"{"error":{"message":"Invalid URL (POST /v1/v1/chat/completions)","type":"invalid_request_error"}}"#;
        check(404, invalid_url, FailureClass::NotAnApi);
        check(404, r#"{"error":{"code":"404","message":"Resource not found"}}"#, FailureClass::NotAnApi);
        for body in [
            r#"{"error":{"message":"model \"x\" not found, try pulling it first"}}"#,
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-3.5-x"}}"#,
            r#"{"error":{"code":404,"message":"models/gemini-x is not found for API version v1beta, or is not supported for generateContent.","status":"NOT_FOUND"}}"#,
            r#"{"error":{"message":"No endpoints found for a/b.","code":404}}"#,
            r#"{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}"#,
        ] {
            check(404, body, FailureClass::ModelNotFound);
        }
        let other = r#"{"error":{"code":"previous_response_not_found","message":"Previous response with id 'resp_1' not found."}}"#;
        check(404, other, FailureClass::InvalidRequest);
        assert!(failure_of(404, &HeaderMap::new(), b"").message.ends_with("(check base_url)"));
    }

    #[test]
    fn words_say_more_than_the_status() {
        check(429, r#"{"error":{"message":"m","type":"insufficient_quota"}}"#, QUOTA_OUT);
        check(429, r#"{"error":{"message":"Insufficient credits remaining."}}"#, QUOTA_OUT);
        check(400, r#"{"error":{"message":"m","code":"content_filter"}}"#, FailureClass::ContentRefused);
        check(404, r#"{"error":"Specified model not found: x"}"#, FailureClass::ModelNotFound);
        check(400, r#"{"message":"Invalid model: x","type":"invalid_model"}"#, FailureClass::ModelNotFound);
        check(404, "404 page not found", FailureClass::NotAnApi);
        check(500, r#"{"error":{"message":"The model is overloaded"}}"#, FailureClass::Overloaded);
        let tpm = r#"{"error":{"message":"Request reached the limit of tokens per minute, context_length"}}"#;
        check(429, tpm, RATE);
    }

    #[test]
    fn the_window_is_in_the_text() {
        let check_window = |text: &str, limit: Option<u64>| {
            let body = serde_json::json!({"error": {"message": text}}).to_string();
            check(400, &body, FailureClass::ContextTooLong { limit });
        };
        check_window(
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 145000 tokens.",
            Some(128_000),
        );
        check_window(
            "maximum prompt length is 131,072 but the request contains 537812 tokens",
            Some(131_072),
        );
        check_window("prompt is too long: 208423 tokens > 200000 maximum", Some(200_000));
        check_window(
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
            Some(1_048_575),
        );
        check_window("Your request exceeded model token limit: 262144 (requested: 291351)", Some(262_144));
        check_window("prompt token count of 140000 exceeds the limit of 128000", Some(128_000));
        check_window("the maximum context length is 99999999999999999999999", None);
        check_window("Please reduce the length of the messages or completion", None);
        let body = r#"{"error":{"code":400,"message":"m","type":"exceed_context_size_error","n_ctx":4096}}"#;
        check(400, body, FailureClass::ContextTooLong { limit: Some(4_096) });
    }

    #[test]
    fn a_page_is_no_api_unless_the_server_is_down() {
        check(404, "<!DOCTYPE html><html>", FailureClass::NotAnApi);
        check(403, "\n<html>", FailureClass::NotAnApi);
        check(401, "<html>", FailureClass::Auth);
        check(500, "<html>", FailureClass::Server);
        check(521, "<html>", FailureClass::Overloaded);
        check_with(
            &[("retry-after", "3")],
            429,
            "<html>",
            FailureClass::RateLimited { retry_after_ms: Some(3_000), reset_at: None },
        );
    }

    #[test]
    fn headers_go_before_the_body() {
        let body = r#"{"error":{"message":"m","retry_after":3600}}"#;
        let rate = |ms| FailureClass::RateLimited { retry_after_ms: Some(ms), reset_at: None };
        check(429, body, rate(3_600_000));
        check_with(&[("retry-after-ms", "20")], 429, body, rate(20));
    }

    #[test]
    fn a_message_is_bounded() {
        check(400, &"x".repeat(70_000), FailureClass::InvalidRequest);
        check(400, &format!("{{\"error\":\"{}\"}}", "ü\\n".repeat(9_000)), FailureClass::InvalidRequest);
    }
}
