//! Parsing of vendors' errors from their many body formats.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::{
    error_hints::normalize_code,
    headers,
    retry_after::{RetryAfter, find_retry_after, parse_retry_after},
    statuses::status_in,
    text::{embedded_json, parse_code, parse_status, strip_quotes},
};

/// The maximum depth of nested errors, as from a gateway in front of a gateway.
pub(super) const MAX_DEPTH: u8 = 3;
/// The code used here for Google's ids of daily quotas.
const DAILY_QUOTA: &str = "quotaperday";

/// An error as a vendor reports it.
#[derive(Debug, Default)]
pub(super) struct VendorError {
    /// The text for people.
    pub(super) message: String,
    /// The message, prepared for the phrase search; empty if it is not text.
    pub(super) text: String,
    /// The normalized codes and types, the more specific ones first.
    pub(super) codes: Vec<String>,
    /// An HTTP status in the body.
    pub(super) status: Option<u16>,
    pub(super) retry_after: RetryAfter,
    /// The context window in tokens, if the vendor has a field for it.
    pub(super) window: Option<u64>,
    /// The error concerns a request field other than the messages, the model and the token limits.
    pub(super) is_about_a_field: bool,
    /// The error of the provider behind a gateway.
    pub(super) inner: Option<Box<Self>>,
}

impl VendorError {
    /// The error in any body.
    pub(super) fn of_bytes(body: &[u8]) -> Self {
        let json = serde_json::from_slice(body).ok();
        json.and_then(|body| Self::of_document(&body, MAX_DEPTH)).unwrap_or_else(|| match json_without_error(
            body,
        ) {
            true => Self::default(),
            false => Self::of_text(&String::from_utf8_lossy(body), MAX_DEPTH),
        })
    }

    /// This error and its nested errors, the innermost first because it is the most specific.
    pub(super) fn chain(&self) -> Vec<&Self> {
        let mut chain = self.inner.as_ref().map(|inner| inner.chain()).unwrap_or_default();
        chain.push(self);
        chain
    }

    /// The error in a JSON document; `None` if there is none.
    pub(super) fn of_document(body: &Value, depth: u8) -> Option<Self> {
        let body = body.as_array().and_then(|list| list.first()).unwrap_or(body);
        let object = body.as_object()?;
        let has = |name: &str| object.get(name).filter(|value| !value.is_null());
        let has_text = ["message", "Message", "errorMessage", "error_msg", "detail", "title"]
            .iter()
            .any(|name| has(name).is_some());
        if let Some(error) = has("error").filter(|error| error.is_object() || !has_text) {
            let mut found = Self::of_value(error, depth);
            match error.as_object() {
                Some(fields) => found.codes.extend(zhipu_code(fields)),
                None => found.codes.extend(codes_of(object)),
            }
            return Some(found);
        }
        if let Some(first) = has("errors").and_then(Value::as_array).and_then(|errors| errors.first()) {
            let mut found = Self::of_value(first, depth);
            found.codes.extend(first["code"].as_u64().map(|code| format!("cloudflare{code}")));
            return Some(found);
        }
        let minimax = has("base_resp").and_then(|status| Some((status, status["status_code"].as_i64()?)));
        if let Some((status, code)) = minimax.filter(|(_, code)| *code != 0) {
            let mut found = Self::of_value(status, depth);
            found.codes.push(format!("minimax{code}"));
            return Some(found);
        }
        match has("detail") {
            Some(detail @ Value::Object(_)) => Some(Self::of_value(detail, depth)),
            _ => has_text.then(|| Self::of_value(body, depth)),
        }
    }

    /// The error in an error object, or in a text in its place.
    pub(super) fn of_value(error: &Value, depth: u8) -> Self {
        match error {
            Value::Object(fields) => Self::of_fields(fields, depth),
            Value::String(text) => Self::of_text(text, depth),
            Value::Null => Self::default(),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                Self { message: error.to_string(), ..Self::default() }
            }
        }
    }

    fn of_text(message: &str, depth: u8) -> Self {
        let message = message.trim();
        let text = strip_quotes(message);
        Self {
            codes: parse_code(message).map(normalize_code).into_iter().collect(),
            status: parse_status(message).or_else(|| status_in(&text)),
            retry_after: find_retry_after(&text),
            inner: embedded_json(message).and_then(|json| Self::of_wrapped(json, depth)),
            text,
            message: message.to_owned(),
            ..Self::default()
        }
    }

    fn of_fields(fields: &Map<String, Value>, depth: u8) -> Self {
        let names = [
            "message",
            "Message",
            "errorMessage",
            "msg",
            "status_msg",
            "error_msg",
            "error_description",
            "detail",
            "title",
        ];
        let described = names.iter().find_map(|name| fields.get(*name).filter(|value| !value.is_null()));
        let mut error = match described {
            Some(Value::String(message)) => Self::of_text(message, depth),
            // The value may contain the checked input, which is no evidence for phrases.
            Some(other) => Self { message: other.to_string(), ..Self::default() },
            None => Self { message: Value::Object(fields.clone()).to_string(), ..Self::default() },
        };
        error.codes.splice(0..0, codes_of(fields));
        error.status = status_of(fields).or(error.status);
        // For a daily quota, the reported delay is that of the quota per minute.
        error.retry_after = match error.codes.iter().any(|code| code == DAILY_QUOTA) {
            true => RetryAfter::default(),
            false => retry_after_of(fields).or(error.retry_after),
        };
        error.window = fields.get("n_ctx").and_then(Value::as_u64);
        error.is_about_a_field = fields.get("param").and_then(Value::as_str).is_some_and(is_another_field);
        let raw = fields.get("metadata").and_then(|metadata| metadata.get("raw")).and_then(Value::as_str);
        if let Some(raw) = raw.filter(|_| depth > 0) {
            let inner =
                Self::of_wrapped(raw, depth).unwrap_or_else(|| Box::new(Self::of_text(raw, depth - 1)));
            error.message = format!("{}: {}", error.message, inner.message);
            error.inner = Some(inner);
        }
        error
    }

    fn of_wrapped(json: &str, depth: u8) -> Option<Box<Self>> {
        let depth = depth.checked_sub(1)?;
        let document = serde_json::Deserializer::from_str(json).into_iter::<Value>().next()?.ok()?;
        Self::of_document(&document, depth).map(Box::new)
    }
}

/// True if a body is JSON without content: `{}`, `null`, `[]`, `""`.
fn json_without_error(body: &[u8]) -> bool {
    matches!(body.trim_ascii(), b"{}" | b"null" | b"[]" | b"\"\"")
}

/// The codes of an error: first those of its details, then its own, then its type, then the code of its inner error.
fn codes_of(fields: &Map<String, Value>) -> Vec<String> {
    let mut codes = Vec::new();
    let details = fields.get("details").and_then(Value::as_array).into_iter().flatten();
    for detail in details {
        let quotas = detail.get("violations").and_then(Value::as_array).into_iter().flatten();
        let ids = quotas.filter_map(|quota| quota.get("quotaId")?.as_str());
        if ids.into_iter().any(|id| id.contains("PerDay")) {
            codes.push(DAILY_QUOTA.to_owned());
        }
        codes.extend(detail.get("reason").and_then(Value::as_str).map(normalize_code));
    }
    let inner =
        fields.get("innererror").or_else(|| fields.get("inner_error")).and_then(|inner| inner.get("code"));
    let values =
        ["code", "errorCode", "__type", "error", "status", "type"].iter().map(|name| fields.get(*name));
    let words = values.chain([inner]).flatten().filter_map(Value::as_str);
    // for example `type.googleapis.com/..`, `com.amazonaws#ThrottlingException`
    codes.extend(words.map(|word| normalize_code(word.rsplit(['#', '/']).next().unwrap_or(word))));
    codes
}

/// The code of Zhipu, which has no type beside it: `{"code":"1113","message":".."}`.
fn zhipu_code(fields: &Map<String, Value>) -> Option<String> {
    let code = fields.get("code").and_then(Value::as_str).filter(|_| !fields.contains_key("type"))?;
    (code.len() == 4 && code.starts_with('1') && code.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| format!("zhipu{code}"))
}

fn status_of(fields: &Map<String, Value>) -> Option<u16> {
    let names = ["status", "code", "status_code", "statusCode", "raw_status_code"];
    names.iter().find_map(|name| {
        let status = number(fields.get(*name)?)?;
        (400.0..600.0).contains(&status).then(|| status.to_string().parse().ok()).flatten()
    })
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
}

/// The retry time in the fields of an error.
fn retry_after_of(fields: &Map<String, Value>) -> RetryAfter {
    let as_text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let delay_names = ["retry_after", "retry_after_seconds", "retryAfter", "resets_in_seconds"];
    let millis = fields.get("retry_after_ms").and_then(number).and_then(RetryAfter::after);
    let time_names = ["resets_at", "reset_at", "resetAt", "reset_time"];
    let waits = delay_names
        .iter()
        .chain(&time_names)
        .filter_map(|name| parse_retry_after(&as_text(fields.get(*name)?)));
    let details = fields.get("details").and_then(Value::as_array).into_iter().flatten();
    let delays = details.filter_map(|detail| parse_retry_after(detail.get("retryDelay")?.as_str()?));
    let headers =
        fields.get("metadata").and_then(|metadata| metadata.get("headers")).and_then(Value::as_object);
    let headers = headers.map(parse_headers).unwrap_or_default();
    let of_headers = headers::retry_after(&headers).or(headers::latest_reset(&headers));
    waits.chain(delays).fold(millis.unwrap_or_default(), RetryAfter::or).or(of_headers)
}

/// The headers of the upstream provider, which a gateway includes in its error.
fn parse_headers(fields: &Map<String, Value>) -> HeaderMap {
    let header = |(name, value): (&String, &Value)| {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_str(value.as_str()?).ok()?))
    };
    fields.iter().filter_map(header).collect()
}

/// True if a `param` concerns neither the length nor the model.
fn is_another_field(param: &str) -> bool {
    let first = param.split(['.', '[']).next().unwrap_or(param);
    !(first.is_empty()
        || matches!(first, "messages" | "input" | "prompt" | "model" | "contents")
        || normalize_code(first).ends_with("tokens"))
}
