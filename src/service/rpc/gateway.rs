//! Frames of OpenClaw's gateway protocol: `{type: req, id, method, params}`, `{type: res, id, ok, payload | error}` and
//! `{type: event, event, payload}`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use super::{
    client::CallResult,
    error::{ErrorCode, RpcError},
    message::{CallMessage, CallRequest, MAX_ID_BYTES, RejectedRequest, RequestId},
};
use crate::{clock, service::stream_event::StreamEvent};

/// The version of the protocol.
pub(super) const PROTOCOL: u64 = 4;
/// The id of an answer to what is no frame.
const NO_ID: &str = "invalid";
/// The events of this service, as a client is told.
pub(super) const EVENTS: [&str; 5] =
    ["connect.challenge", "tick", "chat", "hermod.event", "hermod.event.end"];

/// The frame of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestFrame<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    /// The trace of the client; nothing here continues it.
    #[serde(borrow, rename = "traceparent")]
    _trace: Option<&'a RawValue>,
}

/// Reads a frame; `None` for a frame that cancels a request, which ends by itself.
pub(super) fn parse(text: &str) -> Option<CallMessage> {
    match read(text) {
        Ok(None) => None,
        Ok(Some(request)) => Some(CallMessage::single(Ok(request))),
        Err((id, error)) => {
            let id = RequestId::of_text(&id);
            Some(CallMessage::single(Err(RejectedRequest { id, error })))
        }
    }
}

fn read(text: &str) -> Result<Option<CallRequest>, (String, RpcError)> {
    let frame: RequestFrame<'_> = serde_json::from_str(text).map_err(|error| {
        let reject = if error.is_data() { RpcError::invalid_request } else { RpcError::parse };
        (NO_ID.to_owned(), reject(error.to_string()))
    })?;
    let id = frame.id.filter(|id| (1..=MAX_ID_BYTES).contains(&id.len())).map(Cow::into_owned);
    match (&*frame.r#type, id, frame.method) {
        ("cancel", _, _) => Ok(None),
        ("req", Some(id), Some(method)) => Ok(Some(CallRequest {
            id: Some(RequestId::of_text(&id)),
            method: method.into_owned(),
            params: frame.params.map(ToOwned::to_owned),
        })),
        ("req", id, _) => {
            let error = RpcError::invalid_request(format!(
                "a request has a type, an id of at most {MAX_ID_BYTES} bytes and a method, all texts"
            ));
            Err((id.unwrap_or_else(|| NO_ID.to_owned()), error))
        }
        (other, id, _) => {
            let error = RpcError::invalid_request(format!(
                "type: `{other}` is no type of a client's frame; send `req`"
            ));
            Err((id.unwrap_or_else(|| NO_ID.to_owned()), error))
        }
    }
}

/// The frame of an answer.
#[derive(Serialize)]
struct ResponseFrame<'a> {
    r#type: &'static str,
    id: &'a RawValue,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

/// Writes the answer to a request.
pub(super) fn write_answer(id: &RequestId, answer: &CallResult) -> String {
    let (payload, error) = match answer {
        Ok(payload) => (Some(&**payload), None),
        Err(error) => (None, Some(error_shape(error, None))),
    };
    let frame = ResponseFrame { r#type: "res", id: id.json(), ok: error.is_none(), payload, error };
    // An object of texts and JSON can always be written.
    serde_json::to_string(&frame).unwrap_or_default()
}

/// Writes the answer to a `connect` that is refused.
pub(super) fn write_refusal(id: &RequestId, error: &RpcError, detail: &str) -> String {
    json!({ "type": "res", "id": id.json(), "ok": false, "error": error_shape(error, Some(detail)) })
        .to_string()
}

/// Writes the second answer to a call of `agent`: that its run has failed.
pub(super) fn write_failed_run(id: &RequestId, reason: &str) -> String {
    let error = json!({ "code": "UNAVAILABLE", "message": reason });
    json!({ "type": "res", "id": id.json(), "ok": false, "error": error }).to_string()
}

/// An error as `{code, message, details, retryable?}`. `detail` is OpenClaw's name of the reason.
fn error_shape(error: &RpcError, detail: Option<&str>) -> Value {
    let (code, is_retryable) = match error.code() {
        ErrorCode::Forbidden => ("FORBIDDEN", false),
        ErrorCode::Unavailable => ("UNAVAILABLE", true),
        ErrorCode::Internal => ("UNAVAILABLE", false),
        ErrorCode::Parse
        | ErrorCode::InvalidRequest
        | ErrorCode::NoMethod
        | ErrorCode::InvalidParams
        | ErrorCode::NotFound
        | ErrorCode::Conflict => ("INVALID_REQUEST", false),
    };
    let mut details = json!(error)["data"].take();
    if let Some(detail) = detail {
        details["code"] = json!(detail);
    }
    let mut shape = json!({ "code": code, "message": error.problem().detail(), "details": details });
    if is_retryable {
        shape["retryable"] = json!(true);
    }
    shape
}

fn write(event: &str, payload: &Value) -> String {
    json!({ "type": "event", "event": event, "payload": payload }).to_string()
}

/// Writes the challenge with which a connection begins.
pub(super) fn write_challenge(nonce: &str) -> String {
    write("connect.challenge", &json!({ "nonce": nonce, "ts": clock::now().0 }))
}

/// Writes the event that tells a client that the connection lives.
pub(super) fn write_tick() -> String {
    write("tick", &json!({ "ts": clock::now().0 }))
}

/// Writes an event of a subscription.
pub(super) fn write_subscribed(subscription: &str, event: &StreamEvent) -> String {
    if let StreamEvent::Chat(payload) = event {
        return write("chat", payload);
    }
    let payload = event.subscribed(subscription);
    format!(r#"{{"type":"event","event":"hermod.event","payload":{payload}}}"#)
}

/// Writes the end of a subscription.
pub(super) fn write_end(subscription: &str) -> String {
    write("hermod.event.end", &json!({ "subscription": subscription }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_calls() {
        let check = |text: &str, expect: Option<Result<&str, &str>>| match (parse(text), expect) {
            (None, None) => {}
            (Some(message), Some(expect)) => match (&message.requests[0], expect) {
                (Ok(request), Ok(method)) => assert_eq!(request.method, method),
                (Err(rejected), Err(part)) => {
                    let answer = write_answer(&rejected.id, &Err(rejected.error.clone()));
                    let answer: Value = serde_json::from_str(&answer).unwrap();
                    assert!(answer["error"]["message"].as_str().unwrap().contains(part), "{answer}");
                    assert_eq!(
                        (&answer["ok"], &answer["error"]["code"]),
                        (&json!(false), &json!("INVALID_REQUEST"))
                    );
                }
                (found, expect) => panic!("{text}: expected {expect:?}, got {found:?}"),
            },
            (found, expect) => panic!("{text}: expected {expect:?}, got {found:?}"),
        };
        check(r#"{"type":"req","id":"1","method":"agent","params":{},"traceparent":"x"}"#, Some(Ok("agent")));
        check(r#"{"type":"cancel","id":"1"}"#, None);
        check(r#"{"type":"req","id":"","method":"agent"}"#, Some(Err("has a type")));
        check(r#"{"type":"req","id":"1"}"#, Some(Err("has a type")));
        let long = "x".repeat(2_000);
        check(&format!(r#"{{"type":"req","id":"{long}","method":"m"}}"#), Some(Err("at most 1024 bytes")));
        check(r#"{"type":"res","id":"1"}"#, Some(Err("`res` is no type")));
        check(
            r#"{"type":"req","id":"1","method":"m","expectedProfileId":"p"}"#,
            Some(Err("expectedProfileId")),
        );
        check("{", Some(Err("EOF")));
    }

    #[test]
    fn answers_are_frames() {
        let id = RequestId::of_text("a");
        let ok = write_answer(&id, &Ok(RawValue::TRUE.to_owned()));
        assert_eq!(ok, r#"{"type":"res","id":"a","ok":true,"payload":true}"#);
        let busy: Value = serde_json::from_str(&write_answer(&id, &Err(RpcError::unavailable("x")))).unwrap();
        assert_eq!(
            (&busy["error"]["code"], &busy["error"]["retryable"]),
            (&json!("UNAVAILABLE"), &json!(true))
        );
        let refused: Value =
            serde_json::from_str(&write_refusal(&id, &RpcError::unavailable("x"), "AUTH_TOKEN_MISSING"))
                .unwrap();
        assert_eq!(refused["error"]["details"]["code"], "AUTH_TOKEN_MISSING");
    }
}
