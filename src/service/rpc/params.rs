//! Parameters of methods: objects whose unknown fields are refused, and fields that several methods have.

use std::{sync::Arc, time::Duration};

use axum::http::StatusCode;
use hermod_actors::model::{AgentName, SessionRow, ThinkingLevel};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::error::RpcError;
use crate::{
    access::TokenEntry,
    service::{
        fields::{own_key, thinking_level},
        problem::Problem,
        reach::Reach,
    },
};

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

/// The agent that a call names, which its token may use.
pub(super) fn agent(reach: &Reach, name: Option<&str>) -> Result<Option<AgentName>, RpcError> {
    let Some(name) = name else { return Ok(None) };
    let mut agents = reach.service().submitter.agents().into_iter();
    let Some(agent) = agents.find(|agent| agent.as_str() == name) else {
        let known: Vec<String> = reach.agents().iter().map(AgentName::to_string).collect();
        let reason = format!("there is no agent `{name}`; there are: {}", known.join(", "));
        return Err(RpcError::param("agentId", reason));
    };
    if reach.sees(&agent) {
        return Ok(Some(agent));
    }
    let detail = format!("agentId: the token `{}` may not use the agent `{name}`", reach.token().name);
    Err(Problem::new(StatusCode::FORBIDDEN, detail).with_field("agentId").into())
}

/// Refuses a session of another agent than the call names.
pub(super) fn check_agent(session: &SessionRow, agent: Option<&AgentName>) -> Result<(), RpcError> {
    match agent {
        Some(agent) if *agent != session.agent => {
            let reason = format!(
                "the session `{}` belongs to the agent `{}`; name that one or none, or another session",
                session.key, session.agent
            );
            Err(RpcError::param("agentId", reason))
        }
        Some(_) | None => Ok(()),
    }
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
pub(super) fn key(token: &TokenEntry, key: Option<&str>) -> Result<Option<Arc<str>>, RpcError> {
    let key = key.map(|key| own_key(token, key)).transpose();
    key.map_err(|rule| RpcError::param("idempotencyKey", rule))
}

/// The thinking level, by OpenClaw's names.
pub(super) fn thinking(level: Option<&str>) -> Result<Option<ThinkingLevel>, RpcError> {
    let Some(name) = level else { return Ok(None) };
    thinking_level(name).map(Some).ok_or_else(|| {
        let reason = format!("`{name}` is no level; use off, minimal, low, medium or high");
        RpcError::param("thinking", reason)
    })
}

/// The time after which a run ends as timed out; 0 is none of the caller.
pub(super) fn timeout(limit: Option<Duration>) -> Option<Duration> {
    limit.filter(|limit| !limit.is_zero())
}

/// The session that an id or a key names, of the agent that the call names.
pub(super) async fn session(
    reach: &Reach,
    name: &str,
    agent: Option<&AgentName>,
) -> Result<SessionRow, RpcError> {
    let missing =
        || Problem::not_found(format!("sessionKey: there is no session `{name}`; see sessions.list"));
    let session = reach.session(name).await?.ok_or_else(missing)?;
    check_agent(&session, agent)?;
    Ok(session)
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
