//! Messages of JSON-RPC 2.0: what a text asks for, and how an answer is written. Of a request only its members are read;
//! the parameters stay a text until their method reads them, so that a deep or large one costs nothing.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, SeqAccess, Visitor},
};
use serde_json::{json, value::RawValue};

use super::error::RpcError;
use crate::service::stream_event::StreamEvent;

/// Most requests of a batch.
pub(super) const MAX_BATCH: usize = 50;
/// Most bytes of an id, as it is written.
const MAX_ID_BYTES: usize = 1_024;
/// The only value of the member `jsonrpc`.
const VERSION: &str = "2.0";

/// The id of a request as the client wrote it: a text, a number, or `null`.
#[derive(Debug, Clone)]
pub(super) struct RequestId(Box<RawValue>);

impl RequestId {
    /// The id of an answer to what has no id.
    pub(super) fn null() -> Self {
        Self(RawValue::NULL.to_owned())
    }

    /// The id as JSON.
    pub(super) const fn json(&self) -> &RawValue {
        &self.0
    }

    pub(super) fn of_text(text: &str) -> Self {
        serde_json::value::to_raw_value(text).map_or_else(|_| Self::null(), Self)
    }

    fn new(json: &RawValue) -> Result<Self, RpcError> {
        let text = json.get();
        let is_allowed =
            text.starts_with(['"', '-']) || text == "null" || text.starts_with(|c: char| c.is_ascii_digit());
        if is_allowed && text.len() <= MAX_ID_BYTES {
            return Ok(Self(json.to_owned()));
        }
        let excerpt: String = text.chars().take(40).collect();
        let detail = format!("id: `{excerpt}` is no text or number of at most {MAX_ID_BYTES} bytes");
        Err(RpcError::invalid_request(detail))
    }
}

/// A request to call a method.
#[derive(Debug)]
pub(super) struct CallRequest {
    /// `None` for a notification, which gets no answer.
    pub(super) id: Option<RequestId>,
    pub(super) method: String,
    pub(super) params: Option<Box<RawValue>>,
}

/// A request that is none, and the id of the answer that says so.
#[derive(Debug)]
pub(super) struct RejectedRequest {
    pub(super) id: RequestId,
    pub(super) error: RpcError,
}

/// A request, or why it is none.
pub(super) type ParsedRequest = Result<CallRequest, RejectedRequest>;

/// What a message asks for.
#[derive(Debug)]
pub(super) struct CallMessage {
    /// At least one.
    pub(super) requests: Vec<ParsedRequest>,
    /// Whether the answers are in a list.
    pub(super) is_batch: bool,
}

impl CallMessage {
    pub(super) fn single(request: ParsedRequest) -> Self {
        Self { requests: vec![request], is_batch: false }
    }

    /// Reads a message. What is no message at all is one rejected request.
    pub(super) fn parse(text: &[u8]) -> Self {
        match Self::read(text) {
            Ok(message) => message,
            Err(error) => Self::single(Err(RejectedRequest { id: RequestId::null(), error })),
        }
    }

    fn read(text: &[u8]) -> Result<Self, RpcError> {
        let text =
            std::str::from_utf8(text).map_err(|error| RpcError::parse(format!("no UTF-8: {error}")))?;
        if !text.trim_ascii_start().starts_with('[') {
            let request: &RawValue = serde_json::from_str(text).map_err(|error| not_json(&error))?;
            return Ok(Self::single(read_request(request)));
        }
        let batch: Batch<'_> = serde_json::from_str(text).map_err(|error| not_json(&error))?;
        if batch.0.is_empty() {
            return Err(RpcError::invalid_request("the batch is empty; send at least one request"));
        }
        Ok(Self { requests: batch.0.into_iter().map(read_request).collect(), is_batch: true })
    }
}

fn not_json(error: &serde_json::Error) -> RpcError {
    match error.is_data() {
        true => RpcError::invalid_request(error.to_string()),
        false => RpcError::parse(error.to_string()),
    }
}

/// The requests of a batch. Reading stops at the first one too many.
struct Batch<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Batch<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Requests;

        impl<'de> Visitor<'de> for Requests {
            type Value = Batch<'de>;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a list of requests")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Batch<'de>, A::Error> {
                let mut requests = Vec::new();
                while let Some(request) = from.next_element()? {
                    if requests.len() == MAX_BATCH {
                        let text =
                            format!("a batch has more than {MAX_BATCH} requests; send several batches");
                        return Err(A::Error::custom(text));
                    }
                    requests.push(request);
                }
                Ok(Batch(requests))
            }
        }

        from.deserialize_seq(Requests)
    }
}

/// The members of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// A member that is there, also if it is `null`.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

fn read_request(json: &RawValue) -> ParsedRequest {
    let reject =
        |id: RequestId, detail: String| Err(RejectedRequest { id, error: RpcError::invalid_request(detail) });
    if !json.get().starts_with('{') {
        return reject(RequestId::null(), "a request is an object with `jsonrpc`, `id` and `method`".into());
    }
    let members: Members<'_> = match serde_json::from_str(json.get()) {
        Ok(members) => members,
        Err(error) => return reject(RequestId::null(), error.to_string()),
    };
    let id = match members.id.map(RequestId::new).transpose() {
        Ok(id) => id,
        Err(error) => return Err(RejectedRequest { id: RequestId::null(), error }),
    };
    let answer_id = || id.clone().unwrap_or_else(RequestId::null);
    if members.jsonrpc.as_deref() != Some(VERSION) {
        return reject(answer_id(), "jsonrpc: must be \"2.0\"".into());
    }
    let Some(method) = members.method else {
        return reject(answer_id(), "method: is missing; name the method as a text".into());
    };
    Ok(CallRequest { id, method: method.into_owned(), params: members.params.map(ToOwned::to_owned) })
}

/// The answer to a request.
#[derive(Serialize)]
struct Answer<'a> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RpcError>,
    id: &'a RawValue,
}

/// Writes the answer to a request.
pub(super) fn write_answer(id: &RequestId, answer: &Result<Box<RawValue>, RpcError>) -> String {
    let (result, error) = match answer {
        Ok(result) => (Some(&**result), None),
        Err(error) => (None, Some(error)),
    };
    let answer = Answer { jsonrpc: VERSION, result, error, id: id.json() };
    // An object of texts and JSON can always be written.
    serde_json::to_string(&answer).unwrap_or_default()
}

/// Writes an event of a subscription as a notification.
pub(super) fn write_event(subscription: &str, event: &StreamEvent) -> String {
    let method = if matches!(event, StreamEvent::Failed(_)) { "event.error" } else { "event" };
    let params = event.subscribed(subscription);
    format!(r#"{{"jsonrpc":"{VERSION}","method":"{method}","params":{params}}}"#)
}

/// Writes the end of a subscription as a notification.
pub(super) fn write_end(subscription: &str) -> String {
    json!({ "jsonrpc": VERSION, "method": "event.end", "params": { "subscription": subscription } })
        .to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// The answers of a server whose only method returns its parameters.
    fn answers(text: &str) -> Vec<Value> {
        let message = CallMessage::parse(text.as_bytes());
        let answers = message.requests.into_iter().filter_map(|request| match request {
            Ok(CallRequest { id, params, .. }) => {
                Some(write_answer(&id?, &Ok(params.unwrap_or_else(|| RawValue::NULL.to_owned()))))
            }
            Err(RejectedRequest { id, error }) => Some(write_answer(&id, &Err(error))),
        });
        answers.map(|answer| serde_json::from_str(&answer).unwrap()).collect()
    }

    #[test]
    fn requests_have_ids_of_all_allowed_types() {
        let check = |id: &str, expect: Value| {
            let text = format!(r#"{{"jsonrpc":"2.0","method":"m","params":{{"a":1}},"id":{id}}}"#);
            let expect = json!([{ "jsonrpc": "2.0", "result": { "a": 1 }, "id": expect }]);
            assert_eq!(json!(answers(&text)), expect);
        };
        check("1", json!(1));
        check("-1", json!(-1));
        check("1.5", json!(1.5));
        check(r#""x\n""#, json!("x\n"));
        check("null", json!(null));
        assert_eq!(answers(r#"{"jsonrpc":"2.0","method":"m"}"#), [Value::Null; 0], "a notification");
    }

    #[test]
    fn what_is_no_request_is_answered_with_the_reason() {
        let check = |text: &str, code: i32, id: Value, part: &str| {
            let answers = answers(text);
            let [answer] = &*answers else { panic!("{text}: {answers:?}") };
            assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), &id), "{answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains(part), "{answer}");
        };
        check("{", -32700, json!(null), "EOF");
        check("", -32700, json!(null), "EOF");
        check("{} x", -32700, json!(null), "trailing");
        check(&"[".repeat(100_000), -32700, json!(null), "EOF");
        check(
            &format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)),
            -32600,
            json!(null),
            "is an object",
        );
        check("1", -32600, json!(null), "is an object");
        check("[]", -32600, json!(null), "empty");
        check(&format!("[{}1]", "1,".repeat(10_000)), -32600, json!(null), "more than 50");
        check(r#"{"jsonrpc":"2.0","id":[1],"method":"m"}"#, -32600, json!(null), "id: `[1]`");
        check(r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, -32600, json!(null), "id: `true`");
        check(r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#, -32600, json!(1), "jsonrpc");
        check(r#"{"id":1,"method":"m"}"#, -32600, json!(1), "jsonrpc");
        check(r#"{"jsonrpc":"2.0","id":1}"#, -32600, json!(1), "method: is missing");
        check(r#"{"jsonrpc":"2.0","id":1,"method":1}"#, -32600, json!(null), "expected");
        check(r#"{"jsonrpc":"2.0","id":1,"method":"m","parms":{}}"#, -32600, json!(null), "`parms`");
        let id = "x".repeat(2_000);
        check(&format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"m"}}"#), -32600, json!(null), "at most");
        let invalid = CallMessage::parse(b"\xff{}");
        assert!(invalid.requests[0].as_ref().is_err_and(|rejected| json!(rejected.error)["code"] == -32700));
    }

    #[test]
    fn a_batch_is_answered_in_its_order() {
        let text = r#" [{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","method":"m"},5]"#;
        let message = CallMessage::parse(text.as_bytes());
        assert!(message.is_batch && message.requests.len() == 3);
        let found = answers(text);
        assert_eq!((&found[0]["id"], &found[1]["error"]["code"]), (&json!(1), &json!(-32600)));
        let full = format!("[{}1]", "1,".repeat(MAX_BATCH - 1));
        assert_eq!(answers(&full).len(), MAX_BATCH);
    }
}
