//! What a response shows of itself beside what is decoded: its shape, the vendor's word for its end, an error's place.

use http::{HeaderMap, header};
use serde_json::Value;

use crate::provider::{sse, with_json};

/// What came, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Shape {
    /// Neither of the two: an empty body, a page, or a stream without an event.
    #[default]
    Neither,
    /// An event stream.
    Events,
    /// A JSON document.
    Document,
}

/// Where a vendor says that there will be no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// In an `error`.
    Error,
    /// In a response with the status `failed`.
    Failed,
}

/// The signs of one response, up to the first error in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Signs {
    pub(super) shape: Shape,
    pub(super) error: Option<Said>,
    /// The vendor's own word for why the model stopped.
    pub(super) stop: Option<String>,
}

impl Signs {
    /// The signs of a body under status 200.
    pub(super) fn of(body: &[u8]) -> Self {
        let begin = body.iter().position(|byte| !b" \t\r\n\xef\xbb\xbf".contains(byte));
        let body = &body[begin.unwrap_or(body.len())..];
        let mut signs = Self::default();
        match body.first() {
            None | Some(b'<') => {}
            Some(b'{' | b'[') => {
                signs.shape = Shape::Document;
                signs.look(body);
            }
            Some(_) => {
                let mut parser = sse::Parser::new();
                let pushed = parser.push(body, |event| signs.event(event.data));
                // What lies behind an event that is too large is not decoded either.
                if pushed.is_ok() {
                    let _half = parser.finish(|event| signs.event(event.data));
                }
            }
        }
        signs
    }

    fn event(&mut self, data: &[u8]) {
        self.shape = Shape::Events;
        if self.error.is_none() {
            self.look(data);
        }
    }

    fn look(&mut self, json: &[u8]) {
        let Ok(value) = with_json(json, &mut String::new(), |value: Value| value) else { return };
        let field = |name: &str| value.get(name).filter(|value| !value.is_null());
        let response =
            field("response").or_else(|| Some(&value).filter(|_| is(&value, "object", "response")));
        let status = response.and_then(|response| word(response, "status"));
        if status == Some("failed") {
            self.error = Some(Said::Failed);
        } else if is(&value, "type", "error") || field("error").is_some() {
            self.error = Some(Said::Error);
            return;
        }
        let choices = field("choices").and_then(Value::as_array).into_iter().flatten();
        let first = choices.filter(|choice| choice.get("index").and_then(Value::as_u64).unwrap_or(0) == 0);
        let places = [Some(&value), field("message"), field("delta")].into_iter().flatten().chain(first);
        let mut stop =
            places.filter_map(|place| word(place, "finish_reason").or_else(|| word(place, "stop_reason")));
        let ended = status.filter(|status| !["queued", "in_progress"].contains(status));
        let detail = response.and_then(|response| word(response.get("incomplete_details")?, "reason"));
        if let Some(stop) = stop.next_back().or(detail).or(ended) {
            self.stop = Some(stop.to_owned());
        }
    }
}

/// The content type, if it says something else than the body is: the body is what is believed.
pub(super) fn contradiction(headers: &HeaderMap, shape: Shape) -> Option<String> {
    let said = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let (declared, is) = match shape {
        Shape::Neither => return None,
        Shape::Events => ("event-stream", "an event stream"),
        Shape::Document => ("json", "a JSON document"),
    };
    let contradicts = !said.contains(declared);
    contradicts.then(|| format!("the headers say content-type: {said}, the body is {is}: read as that"))
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

    fn check(body: &str, shape: Shape, error: Option<Said>, stop: Option<&str>) {
        let expected = Signs { shape, error, stop: stop.map(str::to_owned) };
        assert_eq!(Signs::of(body.as_bytes()), expected, "{body}");
    }

    #[test]
    fn a_body_has_a_shape() {
        for body in ["", " \n", "<html>", ": only a comment\n\n", "no events"] {
            check(body, Shape::Neither, None, None);
        }
        check("\u{feff} {\"a\":1}", Shape::Document, None, None);
        check("\n\u{feff}\u{feff}{\"a\":1}", Shape::Document, None, None);
        check("{\"a\":", Shape::Document, None, None);
        check("data: {}\n\n", Shape::Events, None, None);
        check(": first a comment\n\ndata: [DONE]", Shape::Events, None, None);
    }

    #[test]
    fn each_vendor_has_its_word_for_the_end() {
        let events = |json: &str| format!("data: {json}\n\n");
        let check = |json: &str, stop: Option<&str>| {
            check(&events(json), Shape::Events, None, stop);
            check(json, Shape::Document, None, stop);
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
            assert_eq!(Signs::of(&body(text)).stop.as_deref(), Some("end_turn"));
        }
    }

    #[test]
    fn only_the_first_error_counts() {
        let error = r#"data: {"type":"error","message":"m"}"#;
        let failed = r#"data: {"type":"response.failed","response":{"status":"failed","error":{}}}"#;
        check(&format!("{error}\n\n{failed}\n\n"), Shape::Events, Some(Said::Error), None);
        check(&format!("{failed}\n\n{error}\n\n"), Shape::Events, Some(Said::Failed), Some("failed"));
        check(r#"{"error":"no"}"#, Shape::Document, Some(Said::Error), None);
    }

    #[test]
    fn a_wrong_content_type_is_told() {
        let check = |said: &'static str, shape: Shape, told: bool| {
            let headers =
                HeaderMap::from_iter([(header::CONTENT_TYPE, http::HeaderValue::from_static(said))]);
            assert_eq!(contradiction(&headers, shape).is_some(), told, "{said} {shape:?}");
        };
        check("text/event-stream; charset=utf-8", Shape::Events, false);
        check("application/json", Shape::Document, false);
        check("application/json", Shape::Events, true);
        check("text/event-stream", Shape::Document, true);
        check("text/html", Shape::Neither, false);
        assert_eq!(contradiction(&HeaderMap::new(), Shape::Events), None);
    }
}
