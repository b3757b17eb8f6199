//! Parameters of methods: objects whose unknown fields are refused, and fields that several methods have.

use std::time::Duration;

use hermod_actors::model::{SessionRow, ThinkingLevel};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::error::RpcError;
use crate::{
    access::TokenEntry,
    service::{Service, problem::Problem, routes::DEFAULT_AGENT},
};

/// Most characters of an idempotency key.
const MAX_KEY_CHARS: usize = 256;

/// The parameters of a call; an error names the field. Missing ones are an empty object.
pub(super) fn parse<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, RpcError> {
    let text = params.map_or("{}", RawValue::get);
    if !text.starts_with('{') {
        return Err(RpcError::param("params", "must be an object: name each parameter"));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let (field, inner) = (error.path().to_string(), error.inner());
        match field.as_str() {
            "." | "?" => Problem::unprocessable(inner.to_string()).into(),
            field => RpcError::param(field, inner.to_string()),
        }
    })
}

/// The agent of a call: without one, that which always exists.
pub(super) fn agent(token: &TokenEntry, agent: Option<&str>) -> Result<(), RpcError> {
    let agent = agent.unwrap_or(DEFAULT_AGENT);
    if agent != DEFAULT_AGENT {
        return Err(RpcError::param(
            "agentId",
            format!("there is no agent `{agent}`; there is: {DEFAULT_AGENT}"),
        ));
    }
    if token.may_use_agent(agent) {
        return Ok(());
    }
    let detail = format!("the token `{}` may not use the agent `{agent}`", token.name);
    Err(Problem::new(axum::http::StatusCode::FORBIDDEN, detail).into())
}

/// A field that may be left out, and not be empty.
pub(super) fn non_empty(field: &str, text: Option<&str>) -> Result<(), RpcError> {
    match text {
        Some(text) if text.trim().is_empty() => {
            Err(RpcError::param(field, "is empty; leave it out, or name one"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses a delivery to a channel.
pub(super) fn no_delivery(deliver: Option<bool>) -> Result<(), RpcError> {
    match deliver {
        Some(true) => Err(RpcError::param("deliver", "there is no channel to deliver to; leave it out")),
        Some(false) | None => Ok(()),
    }
}

/// The idempotency key, which is the token's own.
pub(super) fn key(token: &TokenEntry, key: Option<&str>) -> Result<Option<String>, RpcError> {
    let Some(key) = key else { return Ok(None) };
    let is_key = |key: &str| {
        !key.trim().is_empty()
            && key.len() <= MAX_KEY_CHARS
            && key.bytes().all(|byte| (b' '..=b'~').contains(&byte))
    };
    if is_key(key) {
        return Ok(Some(format!("{}:{key}", token.id)));
    }
    let reason = format!("must have 1 to {MAX_KEY_CHARS} visible ASCII characters");
    Err(RpcError::param("idempotencyKey", reason))
}

/// The thinking level, by OpenClaw's names.
pub(super) fn thinking(level: Option<&str>) -> Result<Option<ThinkingLevel>, RpcError> {
    match level {
        None => Ok(None),
        Some("xhigh" | "max") => Ok(Some(ThinkingLevel::High)),
        Some(name) => name.parse().map(Some).map_err(|_| {
            let reason = format!("`{name}` is no level; use off, minimal, low, medium or high");
            RpcError::param("thinking", reason)
        }),
    }
}

/// The time after which a run ends as timed out; 0 is none of the caller.
pub(super) fn timeout(limit: Option<Duration>) -> Option<Duration> {
    limit.filter(|limit| !limit.is_zero())
}

/// The session that an id or a key names; `None` if there is none.
pub(super) async fn find_session(service: &Service, name: &str) -> Result<Option<SessionRow>, RpcError> {
    Ok(service.handler.reader().session_of_id_or_key(name).await?)
}

/// The session that an id or a key names.
pub(super) async fn session(service: &Service, name: &str) -> Result<SessionRow, RpcError> {
    let missing =
        || Problem::not_found(format!("sessionKey: there is no session `{name}`; see sessions.list"));
    Ok(find_session(service, name).await?.ok_or_else(missing)?)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        limit: Option<u8>,
    }

    #[test]
    fn wrong_parameters_are_named() {
        let check = |text: &str, expect: Result<Option<u8>, (&str, Option<&str>)>| {
            let raw: Box<RawValue> = serde_json::from_str(text).unwrap();
            match (parse::<Sample>(Some(&raw)), expect) {
                (Ok(read), Ok(limit)) => assert_eq!(read.limit, limit),
                (Err(error), Err((part, field))) => {
                    let shown = json!(error);
                    assert_eq!(shown["code"], -32602);
                    assert!(shown["message"].as_str().unwrap().contains(part), "{shown}");
                    assert_eq!(shown["data"]["field"].as_str(), field, "{shown}");
                }
                (read, expect) => panic!("{text}: expected {expect:?}, got {read:?}"),
            }
        };
        check("{}", Ok(None));
        check(r#"{"limit":5}"#, Ok(Some(5)));
        check(r#"{"limit":500}"#, Err(("limit: invalid value: integer `500`", Some("limit"))));
        check(r#"{"limit":"5"}"#, Err(("string \"5\"", Some("limit"))));
        check(r#"{"limt":5}"#, Err(("unknown field `limt`, expected `limit`", Some("limt"))));
        check("[5]", Err(("must be an object", Some("params"))));
        check(
            &format!(r#"{{"limit":{}{}}}"#, "[".repeat(5_000), "]".repeat(5_000)),
            Err(("sequence", Some("limit"))),
        );
        assert_eq!(parse::<Sample>(None).unwrap().limit, None);
    }

    #[test]
    fn levels_have_openclaws_names() {
        let check = |name: &str, expect: Option<ThinkingLevel>| {
            assert_eq!(thinking(Some(name)).ok().flatten(), expect, "{name}");
        };
        check("off", Some(ThinkingLevel::Off));
        check("medium", Some(ThinkingLevel::Medium));
        check("xhigh", Some(ThinkingLevel::High));
        check("much", None);
        assert_eq!(thinking(None), Ok(None));
    }
}
