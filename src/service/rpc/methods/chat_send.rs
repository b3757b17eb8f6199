//! `chat.send`: a message to a session. By default it steers the run that is under way, and begins a run if none is.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use hermod_actors::{
    MESSAGE_TAG_BITS, RunError, SteerReceipt,
    model::{AgentName, Body, Hash, RunId, SessionRow},
};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    Method,
    agent::{NewRun, submit},
    run,
};
use crate::{
    access::Scope,
    service::{
        authorization::require,
        events::EventSource,
        problem::Problem,
        reach::Reach,
        rpc::{
            client::{Call, Client},
            error::RpcError,
            params,
        },
    },
};

pub(super) const SEND_METHOD: Method =
    Method::new("chat.send", Scope::Submit, |call, params| run(call, params, send));

/// Messages of one session are sent one at a time, so that a repeat finds the first one.
static TURNS: [Mutex<()>; 64] = [const { Mutex::const_new(()) }; 64];
/// Newest runs of a session among whose steering messages a repeat is looked for.
const SEARCHED_RUNS: usize = 10;
/// Bits of a tag that say what was sent; the others say with which key.
const REQUEST_BITS: u32 = 40;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SendParams {
    session_key: String,
    message: String,
    agent_id: Option<String>,
    thinking: Option<String>,
    timeout_ms: Option<u64>,
    queue_mode: Option<QueueMode>,
    deliver: Option<bool>,
    idempotency_key: Option<String>,
}

/// What happens to a message while a run of its session is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum QueueMode {
    /// The run reads it before its next model call.
    Steer,
    /// It begins a run of its own after the others.
    Followup,
    Collect,
    Interrupt,
}

/// A message that is durable.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChatSent {
    /// The run that the message begins or steers.
    run_id: RunId,
    status: &'static str,
    /// The run that a steering message becomes if the steered run ends before a model has read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_run_id: Option<RunId>,
}

/// Sends a message: it is durable when this answers.
async fn send(call: Call, params: SendParams) -> Result<ChatSent, RpcError> {
    let reach = &call.client.reach;
    let agent = params::agent(reach, params.agent_id.as_deref())?;
    params::no_delivery(params.deliver)?;
    params::non_empty("sessionKey", Some(&params.session_key))?;
    params::thinking(params.thinking.as_deref())?;
    let key = params::key(reach.token(), params.idempotency_key.as_deref())?;
    let may_steer = may_steer(&call, params.queue_mode)?;
    reach.service().check_revived()?;
    let (client, answered) = (call.client.clone(), call.answered.clone());
    // To its end, even if the client is gone meanwhile: a repeat has to find what this call has done.
    let sent = reach.service().engine.clone().spawn(send_in_turn(call, params, agent, (key, may_steer)));
    let sent = sent.await.map_err(|_| Problem::stopping())??;
    if sent.next_run_id.is_none() {
        show_chat(&client, sent.run_id, answered).await?;
    }
    Ok(sent)
}

/// Sends the events of a run that a message has begun to its client, if that gets them and may read.
async fn show_chat(client: &Client, run: RunId, answered: CancellationToken) -> Result<(), RpcError> {
    let reach = &client.reach;
    let Some(subscriptions) = client.subscriptions.as_ref().filter(|_| reach.token().has(Scope::Read)) else {
        return Ok(());
    };
    let Some(row) = reach.run(run).await? else { return Ok(()) };
    let session = reach.service().runtime.session(row.session).await?;
    subscriptions.open_chat(EventSource::chat_of_run(reach.clone(), &row, &session.key), answered);
    Ok(())
}

/// Sends a message when those before it have been sent.
async fn send_in_turn(
    call: Call,
    params: SendParams,
    agent: Option<AgentName>,
    (key, may_steer): (Option<Arc<str>>, bool),
) -> Result<ChatSent, RpcError> {
    let reach = &call.client.reach;
    let session = reach.session(&params.session_key).await?;
    let _turn = turn(session.as_ref().map_or(&*params.session_key, |row| &row.key)).lock().await;
    if let Some(session) = session {
        params::check_agent(&session, agent.as_ref())?;
        let tag = key.as_deref().map(|key| MessageTag::new(key, call.request_hash));
        if let Some(first) = first_message(reach, &session, tag).await? {
            return Ok(first.into());
        }
        let is_repeat = has_run(reach, key.as_deref()).await?;
        if may_steer
            && !is_repeat
            && let Some(receipt) = steer(reach, &session, &params.message, tag).await?
        {
            return Ok(receipt.into());
        }
    }
    let new = NewRun {
        message: params.message,
        agent,
        session: Some(params.session_key),
        thinking: params.thinking,
        timeout: params.timeout_ms.map(Duration::from_millis),
        key,
        ..NewRun::default()
    };
    let accepted = submit(&call, new).await?;
    Ok(ChatSent { run_id: accepted.run, status: "started", next_run_id: None })
}

/// Whether the message may steer a run. A token that may not, and does not ask for it, sends it as a run of its own.
fn may_steer(call: &Call, mode: Option<QueueMode>) -> Result<bool, RpcError> {
    match mode {
        None => Ok(call.client.reach.token().has(Scope::Steer)),
        Some(QueueMode::Steer) => Ok(require(call.client.reach.token(), Scope::Steer).map(|()| true)?),
        Some(QueueMode::Followup) => Ok(false),
        Some(QueueMode::Collect | QueueMode::Interrupt) => {
            let reason = "`collect` and `interrupt` are not supported; use `steer` or `followup`, after chat.abort \
                          to interrupt";
            Err(RpcError::param("queueMode", reason))
        }
    }
}

/// The turn of the messages of a session.
fn turn(session_key: &str) -> &'static Mutex<()> {
    let mut hasher = DefaultHasher::new();
    session_key.hash(&mut hasher);
    let count = TURNS.len() as u64;
    let index = usize::try_from(hasher.finish() % count).unwrap_or_default();
    &TURNS[index]
}

/// Whether the key stands for a run.
async fn has_run(reach: &Reach, key: Option<&str>) -> Result<bool, RpcError> {
    let Some(key) = key else { return Ok(false) };
    Ok(reach.run_of_key(key).await?.is_some())
}

/// Steers the run of a session that is under way; `None` if none is.
async fn steer(
    reach: &Reach,
    session: &SessionRow,
    text: &str,
    tag: Option<MessageTag>,
) -> Result<Option<SteerReceipt>, RpcError> {
    let open = reach.unfinished_runs_of(session).await?;
    // The earliest one is under way; the others wait for it.
    let Some(row) = open.into_iter().min_by_key(|row| row.id) else { return Ok(None) };
    let (runtime, text): (_, Arc<str>) = (&reach.service().runtime, text.into());
    let steered = match tag {
        Some(tag) => runtime.steer_tagged(row.id, text, tag.0).await,
        None => runtime.steer(row.id, text).await,
    };
    match steered {
        Ok(receipt) => Ok(Some(receipt)),
        // It ended meanwhile, or is being stopped: the message begins a run.
        Err(RunError::Ended(_)) => Ok(None),
        Err(RunError::Invalid { field: "text", error }) => Err(RpcError::param("message", error)),
        Err(error) => Err(error.into()),
    }
}

/// The lower bits of a steering message's id, made of its idempotency key and its request: a repeat of the call finds the
/// message in the session's records, also after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MessageTag(u128);

impl MessageTag {
    fn new(key: &str, request: Hash) -> Self {
        let bits = |hash: Hash| u128::from_le_bytes(*hash.as_bytes()) & ((1 << REQUEST_BITS) - 1);
        Self(bits(Hash::of(key.as_bytes())) << REQUEST_BITS | bits(request))
    }

    /// Whether a message's id has the key of this tag.
    const fn has_key_of(self, id: RunId) -> bool {
        ((self.0 ^ id.bits()) & MESSAGE_TAG_BITS) >> REQUEST_BITS == 0
    }

    /// Whether a message's id has the key and the request of this tag.
    const fn is_of(self, id: RunId) -> bool {
        (self.0 ^ id.bits()) & MESSAGE_TAG_BITS == 0
    }
}

/// The steering message that an earlier call with the same key has sent. Another request with that key is an error.
async fn first_message(
    reach: &Reach,
    session: &SessionRow,
    tag: Option<MessageTag>,
) -> Result<Option<SteerReceipt>, RpcError> {
    let Some(tag) = tag else { return Ok(None) };
    let runs = reach.runs_of(session, SEARCHED_RUNS).await?;
    let Some(first) = runs.iter().map(|row| row.first).min() else { return Ok(None) };
    let mut found = None;
    let visited = reach.visit_records(session, first, |_, record| {
        if let Body::MessageSteered(message) = &record.body
            && tag.has_key_of(message.followup_run)
        {
            found = Some(SteerReceipt { run: message.run, session: session.id, next: message.followup_run });
        }
    });
    visited.await?;
    match found {
        Some(receipt) if !tag.is_of(receipt.next) => {
            let text = "idempotencyKey: stands for another message of this session; repeat that call as it was, or give \
                        this one another key";
            Err(Problem::unprocessable(text).with_field("idempotencyKey").into())
        }
        found => Ok(found),
    }
}

impl From<SteerReceipt> for ChatSent {
    fn from(receipt: SteerReceipt) -> Self {
        Self { run_id: receipt.run, status: "steered", next_run_id: Some(receipt.next) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_tells_the_key_and_the_request_of_a_message() {
        let tag = |key: &str, request: &str| MessageTag::new(key, Hash::of(request.as_bytes()));
        let message = |tag: MessageTag| RunId::from_bits(123 << 80 | tag.0);
        let sent = message(tag("t:1", "a"));
        let check = |key: &str, request: &str, has_key: bool, is_it: bool| {
            let tag = tag(key, request);
            assert_eq!((tag.has_key_of(sent), tag.is_of(sent)), (has_key, is_it), "{key} {request}");
        };
        check("t:1", "a", true, true);
        check("t:1", "b", true, false);
        check("t:2", "a", false, false);
        assert!(tag("t:1", "a").0 <= MESSAGE_TAG_BITS);
    }
}
