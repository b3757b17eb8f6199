//! Properties of a response beside its decoded content: kind of body, stop reason, place of an error. `decode.rs`
//! prints them.

use http::{HeaderMap, header};
use serde_json::Value;

use crate::provider::{parse_json_lossy, sse};

/// The kind of a body, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum BodyKind {
    /// Neither: an empty body, an HTML page, or a stream without an event.
    #[default]
    Neither,
    /// An event stream.
    Events,
    /// A JSON document.
    Document,
}

/// Where a vendor reports that there will be no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorField {
    /// In a field or an event `error`.
    Error,
    /// In a response with the status `failed`.
    Failed,
}

/// The properties of one response, up to its first error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ResponseShape {
    pub(super) kind: BodyKind,
    pub(super) error: Option<ErrorField>,
    /// The vendor's own stop reason.
    pub(super) stop: Option<String>,
}

impl ResponseShape {
    /// The properties of a body under a success status.
    pub(super) fn of(body: &[u8]) -> Self {
        let start = body.iter().position(|byte| !b" \t\r\n\xef\xbb\xbf".contains(byte));
        let body = &body[start.unwrap_or(body.len())..];
        let mut shape = Self::default();
        match body.first() {
            None | Some(b'<') => {}
            Some(b'{' | b'[') => {
                shape.kind = BodyKind::Document;
                shape.inspect(body);
            }
            Some(_) => {
                let mut parser = sse::SseParser::default();
                let pushed = parser.push(body, |data| shape.event(data));
                // The decoder also stops at an event that is too large, so nothing after it counts.
                if pushed.is_ok() {
                    let _incomplete = parser.finish(|data| shape.event(data));
                }
            }
        }
        shape
    }

    fn event(&mut self, data: &[u8]) {
        self.kind = BodyKind::Events;
        if self.error.is_none() {
            self.inspect(data);
        }
    }

    fn inspect(&mut self, json: &[u8]) {
        let Ok(value) = parse_json_lossy(json, &mut String::new(), |value: Value| value) else { return };
        let field = |name: &str| value.get(name).filter(|value| !value.is_null());
        let response =
            field("response").or_else(|| Some(&value).filter(|_| is(&value, "object", "response")));
        let status = response.and_then(|response| word(response, "status"));
        if status == Some("failed") {
            self.error = Some(ErrorField::Failed);
        } else if is(&value, "type", "error") || field("error").is_some() {
            self.error = Some(ErrorField::Error);
            return;
        }
        let choices = field("choices").and_then(Value::as_array).into_iter().flatten();
        let first = choices.filter(|choice| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0);
        let objects = [Some(&value), field("message"), field("delta")].into_iter().flatten().chain(first);
        let mut stop = objects
            .filter_map(|object| word(object, "finish_reason").or_else(|| word(object, "stop_reason")));
        let ended = status.filter(|status| !["queued", "in_progress"].contains(status));
        let detail = response.and_then(|response| word(response.get("incomplete_details")?, "reason"));
        if let Some(stop) = stop.next_back().or(detail).or(ended) {
            self.stop = Some(stop.to_owned());
        }
    }
}

/// A message if the content type contradicts the body; the body is then believed.
pub(super) fn contradiction(headers: &HeaderMap, kind: BodyKind) -> Option<String> {
    let content_type = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let (declared, is) = match kind {
        BodyKind::Neither => return None,
        BodyKind::Events => ("event-stream", "an event stream"),
        BodyKind::Document => ("json", "a JSON document"),
    };
    let contradicts = !content_type.contains(declared);
    contradicts
        .then(|| format!("the headers say content-type: {content_type}, the body is {is}: read as that"))
}

fn is(value: &Value, name: &str, expected: &str) -> bool {
    word(value, name) == Some(expected)
}

fn word<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str().filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, shape: BodyKind, error: Option<ErrorField>, stop: Option<&str>) {
        let expected = ResponseShape { kind: shape, error, stop: stop.map(str::to_owned) };
        assert_eq!(ResponseShape::of(body.as_bytes()), expected, "{body}");
    }

    #[test]
    fn a_body_has_a_shape() {
        for body in ["", " \n", "<html>", ": only a comment\n\n", "no events"] {
            check(body, BodyKind::Neither, None, None);
        }
        check("\u{feff} {\"a\":1}", BodyKind::Document, None, None);
        check("\n\u{feff}\u{feff}{\"a\":1}", BodyKind::Document, None, None);
        check("{\"a\":", BodyKind::Document, None, None);
        check("data: {}\n\n", BodyKind::Events, None, None);
        check(": first a comment\n\ndata: [DONE]", BodyKind::Events, None, None);
    }

    #[test]
    fn each_vendor_has_its_word_for_the_end() {
        let events = |json: &str| format!("data: {json}\n\n");
        let check = |json: &str, stop: Option<&str>| {
            check(&events(json), BodyKind::Events, None, stop);
            check(json, BodyKind::Document, None, stop);
        };
        check(r#"{"choices":[{"finish_reason":"eos"},{"index":1,"finish_reason":"length"}]}"#, Some("eos"));
        check(r#"{"choices":[{"index":0,"finish_reason":null}]}"#, None);
        check(r#"{"type":"message_delta","delta":{"stop_reason":"stop_sequence"}}"#, Some("stop_sequence"));
        check(r#"{"type":"message","stop_reason":"end_turn","error":null}"#, Some("end_turn"));
        check(r#"{"object":"response","status":"completed","error":null}"#, Some("completed"));
        check(r#"{"type":"response.created","response":{"status":"in_progress"}}"#, None);
        check(r#"{"item":{"status":"completed"},"status":"completed"}"#, None);
        let incomplete =
            r#"{"response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}"#;
        check(incomplete, Some("max_output_tokens"));
    }

    #[test]
    fn a_text_that_is_none_does_not_hide_the_end() {
        let body = |text: &[u8]| [&b"{\"text\":\""[..], text, b"\",\"stop_reason\":\"end_turn\"}"].concat();
        for text in [&b"\xff"[..], br"\ud83d"] {
            assert_eq!(ResponseShape::of(&body(text)).stop.as_deref(), Some("end_turn"));
        }
    }

    #[test]
    fn only_the_first_error_counts() {
        let error = r#"data: {"type":"error","message":"m"}"#;
        let failed = r#"data: {"type":"response.failed","response":{"status":"failed","error":{}}}"#;
        check(&format!("{error}\n\n{failed}\n\n"), BodyKind::Events, Some(ErrorField::Error), None);
        check(
            &format!("{failed}\n\n{error}\n\n"),
            BodyKind::Events,
            Some(ErrorField::Failed),
            Some("failed"),
        );
        check(r#"{"error":"no"}"#, BodyKind::Document, Some(ErrorField::Error), None);
    }

    #[test]
    fn a_wrong_content_type_is_told() {
        let check = |content_type: &'static str, shape: BodyKind, is_reported: bool| {
            let headers =
                HeaderMap::from_iter([(header::CONTENT_TYPE, http::HeaderValue::from_static(content_type))]);
            assert_eq!(contradiction(&headers, shape).is_some(), is_reported, "{content_type} {shape:?}");
        };
        check("text/event-stream; charset=utf-8", BodyKind::Events, false);
        check("application/json", BodyKind::Document, false);
        check("application/json", BodyKind::Events, true);
        check("text/event-stream", BodyKind::Document, true);
        check("text/html", BodyKind::Neither, false);
        assert_eq!(contradiction(&HeaderMap::new(), BodyKind::Events), None);
    }
}
