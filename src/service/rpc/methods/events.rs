//! `events.subscribe` and `events.unsubscribe`: the events of a run, of a session, or of all, as notifications. OpenClaw
//! has no method like these: its clients get the events of all runs.

use std::{fmt, str::FromStr, sync::Arc};

use hermod_actors::{
    model::Seq,
    port::FeedCursor,
    shaping::{BlockBreak, ReasoningMode, Verbosity},
};
use serde::{Deserialize, Serialize};

use super::{Method, agent::run_row, run};
use crate::{
    access::Scope,
    service::{
        events::EventSource,
        reach::Reach,
        reply::{ReplyQuery, ShapeName},
        rpc::{
            client::{Call, Client},
            error::RpcError,
            params,
            subscription::Subscriptions,
        },
    },
};

pub(super) const SUBSCRIBE_METHOD: Method =
    Method::new("events.subscribe", Scope::Read, |call, params| run(call, params, subscribe));
pub(super) const UNSUBSCRIBE_METHOD: Method =
    Method::new("events.unsubscribe", Scope::Read, |call, params| run(call, params, unsubscribe));

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SubscribeParams {
    run_id: Option<String>,
    session_key: Option<String>,
    #[serde(default)]
    all: bool,
    /// The id of the last event that the client has seen.
    after: Option<EventId>,
    /// The reply of the run in this shape, in place of its events.
    shape: Option<ReplyShapeName>,
    block_break: Option<BlockBreak>,
    reasoning: Option<ReasoningMode>,
    verbose: Option<Verbosity>,
}

/// The shape of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReplyShapeName {
    Deltas,
    Blocks,
    /// OpenClaw's.
    Chat,
}

/// The id of an event: a text, or a number of a record.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum EventId {
    Number(Seq),
    Text(String),
}

#[derive(Debug, Serialize)]
pub(super) struct Subscribed {
    subscription: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UnsubscribeParams {
    subscription: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Unsubscribed {
    ok: bool,
}

/// Subscribes to events, which follow the answer.
async fn subscribe(call: Call, params: SubscribeParams) -> Result<Subscribed, RpcError> {
    let subscriptions = Arc::clone(subscriptions(&call.client)?);
    let reach = call.client.reach.clone();
    if let Some(shape) = params.shape {
        let source = reply(&reach, shape, &params).await?;
        return Ok(Subscribed { subscription: subscriptions.open(source, call.answered)? });
    }
    check_no_shape(&params)?;
    let after = params.after;
    let source = match (params.run_id, params.session_key, params.all) {
        (Some(run), None, false) => {
            let row = run_row(&reach, &run).await?;
            EventSource::of_run(reach, &row, parse_after(after.as_ref())?)
        }
        (None, Some(session), false) => {
            let row = params::session(&reach, &session, None).await?;
            EventSource::of_session(reach, row.id, parse_after(after.as_ref())?)
        }
        (None, None, true) => EventSource::of_all(reach, parse_after::<FeedCursor>(after.as_ref())?).await?,
        _ => {
            let reason = "name one of runId, sessionKey and all";
            return Err(RpcError::param("params", reason));
        }
    };
    Ok(Subscribed { subscription: subscriptions.open(source, call.answered)? })
}

/// The reply of a run.
async fn reply(
    reach: &Reach,
    shape: ReplyShapeName,
    params: &SubscribeParams,
) -> Result<EventSource, RpcError> {
    let (Some(run), None, false) = (&params.run_id, &params.session_key, params.all) else {
        return Err(RpcError::param("shape", "is that of the reply of a run; name it in runId"));
    };
    let row = run_row(reach, run).await?;
    let seen = parse_after(params.after.as_ref())?;
    let shape = match shape {
        ReplyShapeName::Chat if seen.is_some() => {
            return Err(RpcError::param("after", "a chat has no ids; leave it out"));
        }
        ReplyShapeName::Chat => {
            let session = reach.service().runtime.session(row.session).await?;
            return Ok(EventSource::chat_of_run(reach.clone(), &row, &session.key));
        }
        ReplyShapeName::Deltas => ShapeName::Deltas,
        ReplyShapeName::Blocks => ShapeName::Blocks,
    };
    let SubscribeParams { block_break, reasoning, verbose, .. } = *params;
    let query = ReplyQuery { shape: Some(shape), block_break, reasoning, verbose };
    Ok(EventSource::reply_of_run(reach.clone(), &row, query, seen))
}

/// Refuses what belongs to a shape without one.
fn check_no_shape(params: &SubscribeParams) -> Result<(), RpcError> {
    let given = [
        ("blockBreak", params.block_break.is_some()),
        ("reasoning", params.reasoning.is_some()),
        ("verbose", params.verbose.is_some()),
    ];
    let refused = given.into_iter().find(|(_, is_given)| *is_given);
    refused.map_or(Ok(()), |(field, _)| Err(RpcError::param(field, "belongs to a reply; name its shape")))
}

async fn unsubscribe(call: Call, params: UnsubscribeParams) -> Result<Unsubscribed, RpcError> {
    Ok(Unsubscribed { ok: subscriptions(&call.client)?.end(&params.subscription) })
}

fn subscriptions(client: &Client) -> Result<&Arc<Subscriptions>, RpcError> {
    client.subscriptions.as_ref().ok_or_else(|| {
        let text = "events come over a WebSocket at /rpc; over HTTP, see /v1/runs/{run}/events";
        RpcError::invalid_request(text)
    })
}

fn parse_after<T: FromStr>(after: Option<&EventId>) -> Result<Option<T>, RpcError> {
    let Some(after) = after else { return Ok(None) };
    let text = after.to_string();
    text.parse()
        .map(Some)
        .map_err(|_| RpcError::param("after", format!("`{text}` is not the id of an event before")))
}

impl fmt::Display for EventId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(to),
            Self::Text(text) => text.fmt(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_names_the_last_event_as_it_got_it() {
        let check = |json: &str, expect: Option<Seq>| {
            let id: EventId = serde_json::from_str(json).unwrap();
            assert_eq!(parse_after(Some(&id)).ok().flatten(), expect, "{json}");
        };
        check("17", Some(17));
        check(r#""17""#, Some(17));
        check(r#""x""#, None);
        let id: EventId = serde_json::from_str(r#""3.5""#).unwrap();
        assert!(parse_after::<FeedCursor>(Some(&id)).is_ok());
    }
}
