use hermod_actors::model::{Deadline, Failure, FailureClass};
use http::HeaderMap;
use serde_json::Value;

use super::signs::{CONTENT, CONTEXT, NO_MODEL, QUOTA, window_in};
use crate::provider::{
    excerpt::excerpt,
    headers::{ComeBack, come_back},
};

/// Characters that a failure's message may have.
const SHOWN: usize = 500;

/// What a response means that is no answer. `body` may be cut off; the message quotes the vendor, bounded.
pub fn failure_of(status: u16, headers: &HeaderMap, body: &[u8]) -> Failure {
    let come_back = come_back(headers);
    if is_page(body) {
        let class = match status {
            408 | 429 | 500.. => of_status(status, come_back, ""),
            _ => FailureClass::NotAnApi,
        };
        let page = format!("HTTP {status}: HTML page in place of an answer: ");
        return told(class, &page, body);
    }
    let error = serde_json::from_slice(body).ok().and_then(|body| VendorError::of_body(&body));
    let error = error.unwrap_or_else(|| VendorError::plain(&String::from_utf8_lossy(body)));
    let text = if error.message.is_empty() { "no explanation" } else { &error.message };
    let class = error.class(Some(status), come_back);
    told(class, &format!("HTTP {status}: "), text.as_bytes())
}

/// What an error means that came under status 200: the value of an `error` field, or an event of type `error` as a whole.
pub(in crate::provider) fn failure_in_stream(error: &Value) -> Failure {
    let inner = error.get("error").filter(|inner| !inner.is_null());
    VendorError::of_error(inner.unwrap_or(error)).told_under_200()
}

/// What a JSON document means that came under status 200 and is no answer; `None` if it tells of no error.
pub(in crate::provider) fn failure_in_body(body: &[u8]) -> Option<Failure> {
    let error = VendorError::of_body(&serde_json::from_slice(body).ok()?)?;
    Some(error.told_under_200())
}

fn told(class: FailureClass, before: &str, text: &[u8]) -> Failure {
    Failure::new(class, excerpt(&[before.as_bytes(), text].concat(), SHOWN))
}

fn is_page(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'<')
}

/// What a vendor says of an error, in whichever shape.
#[derive(Debug, Default)]
struct VendorError {
    message: String,
    /// `code` and `type` in lower case, each if it is a word.
    words: String,
    /// A status that stands in the body.
    status: Option<u16>,
    retry_after_ms: Option<u64>,
    /// The size of the context, where the vendor has a field for it.
    window: Option<u64>,
}

impl VendorError {
    fn plain(message: &str) -> Self {
        Self { message: message.trim().to_owned(), ..Self::default() }
    }

    /// `{error}`, `{error: {..}}`, `{message, code, type}`, `{detail}`, or a list with one of them.
    fn of_body(body: &Value) -> Option<Self> {
        let body = body.as_array().and_then(|list| list.first()).unwrap_or(body);
        match body.get("error").filter(|error| !error.is_null()) {
            Some(error) if body.get("message").is_none() || error.is_object() => Some(Self::of_error(error)),
            _ if body.get("message").is_some() => Some(Self::of_error(body)),
            Some(error) => Some(Self::of_error(error)),
            None => body.get("detail").map(|detail| match detail {
                Value::Object(_) => Self::of_error(detail),
                Value::String(text) => Self::plain(text),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                    Self::plain(&detail.to_string())
                }
            }),
        }
    }

    fn of_error(error: &Value) -> Self {
        let Value::Object(fields) = error else {
            return Self::plain(error.as_str().map_or_else(|| error.to_string(), str::to_owned).as_str());
        };
        let word = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        let number = |name: &str| {
            let field = fields.get(name)?;
            field.as_u64().or_else(|| field.as_str()?.parse().ok())
        };
        let inner = fields.get("innererror").and_then(|inner| inner.get("code")).and_then(Value::as_str);
        let status = ["status", "code", "status_code", "raw_status_code"].iter().find_map(|name| {
            number(name).and_then(|n| u16::try_from(n).ok()).filter(|status| (400..600).contains(status))
        });
        let message = match fields.get("message") {
            Some(Value::String(message)) => message.clone(),
            Some(other) => other.to_string(),
            None => error.to_string(),
        };
        Self {
            message,
            words: [word("code"), word("type"), inner.unwrap_or_default()].join(" ").to_lowercase(),
            status,
            retry_after_ms: number("retry_after").map(|seconds| seconds.saturating_mul(1_000)),
            window: number("n_ctx"),
        }
    }

    fn told_under_200(&self) -> Failure {
        let class = self.class(self.status, ComeBack::default());
        told(class, "error in place of an answer: ", self.message.as_bytes())
    }

    /// The words first, because they say more; then the status.
    fn class(&self, status: Option<u16>, mut come_back: ComeBack) -> FailureClass {
        come_back.after_ms = come_back.after_ms.or(self.retry_after_ms);
        let text = self.message.to_lowercase();
        let says = |signs: &[&str]| signs.iter().any(|sign| self.words.contains(sign) || text.contains(sign));
        let refused = status.is_none_or(|status| matches!(status, 400 | 403 | 404 | 413 | 422 | 500));
        if says(QUOTA) && status.is_none_or(|status| status < 500) {
            return FailureClass::QuotaExhausted { reset_at: come_back.at };
        }
        if refused && says(CONTENT) {
            return FailureClass::ContentRefused;
        }
        if refused && says(CONTEXT) {
            return FailureClass::ContextTooLong { limit: self.window.or_else(|| window_in(&text)) };
        }
        if matches!(status, None | Some(400 | 404 | 422)) && self.is_about_the_model(&text) {
            return FailureClass::ModelNotFound;
        }
        match status {
            Some(status) => of_status(status, come_back, &text),
            None => self.of_words(come_back, &text),
        }
    }

    fn is_about_the_model(&self, text: &str) -> bool {
        let words = ["model_not_found", "invalid_model", "model_not_available", "unknown_model"];
        words.iter().any(|word| self.words.contains(word))
            || text.contains("model") && NO_MODEL.iter().any(|sign| text.contains(sign))
    }

    /// Without a status there are only words.
    fn of_words(&self, come_back: ComeBack, text: &str) -> FailureClass {
        let says = |signs: &[&str]| signs.iter().any(|sign| self.words.contains(sign) || text.contains(sign));
        let word = |signs: &[&str]| signs.iter().any(|sign| self.words.contains(sign));
        if says(&["rate_limit", "rate limit", "ratelimit", "too many requests", "too_many_requests"]) {
            return of_status(429, come_back, text);
        }
        if word(&["authentication", "invalid_api_key", "permission", "unauthorized", "forbidden"]) {
            return FailureClass::Auth;
        }
        if says(&["timeout", "timed out"]) {
            return FailureClass::Timeout { which: Deadline::Call };
        }
        if word(&["invalid_request", "invalid_prompt", "unsupported", "bad_request"]) {
            return FailureClass::InvalidRequest;
        }
        of_status(500, come_back, text)
    }
}

fn of_status(status: u16, come_back: ComeBack, text: &str) -> FailureClass {
    match status {
        401 | 403 => FailureClass::Auth,
        402 => FailureClass::QuotaExhausted { reset_at: come_back.at },
        408 => FailureClass::Timeout { which: Deadline::Call },
        413 => FailureClass::ContextTooLong { limit: window_in(text) },
        429 => FailureClass::RateLimited { retry_after_ms: come_back.after_ms, reset_at: come_back.at },
        // 52x is what Cloudflare says when the server behind it is down or slow.
        502..=504 | 520..=524 | 529 => FailureClass::Overloaded,
        500.. if text.contains("overload") => FailureClass::Overloaded,
        500.. => FailureClass::Server,
        // Redirects are not followed.
        ..400 => FailureClass::NotAnApi,
        400..500 => FailureClass::InvalidRequest,
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
        assert!(failure.message.chars().count() <= SHOWN + 1, "{failure}");
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
            (404, FailureClass::InvalidRequest),
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
    fn words_say_more_than_the_status() {
        check(429, r#"{"error":{"message":"m","type":"insufficient_quota"}}"#, QUOTA_OUT);
        check(429, r#"{"error":{"message":"Insufficient credits remaining."}}"#, QUOTA_OUT);
        check(400, r#"{"error":{"message":"m","code":"content_filter"}}"#, FailureClass::ContentRefused);
        check(404, r#"{"error":"Specified model not found: x"}"#, FailureClass::ModelNotFound);
        check(400, r#"{"message":"Invalid model: x","type":"invalid_model"}"#, FailureClass::ModelNotFound);
        check(404, "404 page not found", FailureClass::InvalidRequest);
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
