//! `chat.send`: a message to a session. By default it steers the run that is under way, and begins a run if none is.

use std::time::Duration;

use hermod_actors::model::{MessageFate, MessageState, QueueMode, RunId};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{
    Method,
    agent::{NewRun, submit},
    run,
};
use crate::{
    access::Scope,
    host::MessageOptions,
    service::{
        authorization::require,
        events::EventSource,
        rpc::{
            client::{Call, Client},
            error::RpcError,
            params,
        },
    },
};

pub(super) const SEND_METHOD: Method =
    Method::new("chat.send", Scope::Submit, |call, params| run(call, params, send));

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

/// A message that is durable.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChatSent {
    /// The run that the message begins or joins; its own id if it was dropped.
    run_id: RunId,
    status: &'static str,
    /// The message, if it is no run of its own: `agent.wait` takes it. It becomes a run with this id if the run that it has
    /// joined ends before a model has read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_run_id: Option<RunId>,
}

/// Sends a message: it is durable when this answers.
async fn send(call: Call, params: SendParams) -> Result<ChatSent, RpcError> {
    let reach = &call.client.reach;
    let agent = params::agent(reach, params.agent_id.as_deref())?;
    params::no_delivery(params.deliver)?;
    params::non_empty("sessionKey", Some(&params.session_key))?;
    if matches!(params.queue_mode, Some(QueueMode::Steer | QueueMode::Interrupt)) {
        require(reach.token(), Scope::Steer)?;
    }
    if let Some(row) = reach.session(&params.session_key).await? {
        params::check_agent(&row, agent.as_ref())?;
    }
    let may_steer = reach.token().has(Scope::Steer);
    let new = NewRun {
        message: params.message,
        agent,
        session: Some(params.session_key),
        thinking: params.thinking,
        timeout: params.timeout_ms.map(Duration::from_millis),
        key: params::key(reach.token(), params.idempotency_key.as_deref())?,
        options: Some(MessageOptions { mode: params.queue_mode, may_steer }),
        ..NewRun::default()
    };
    let message = submit(&call, new).await?.run;
    let fate = reach.message(&message.to_string()).await?;
    let sent = ChatSent::new(message, fate.as_ref());
    if sent.status == "started" {
        show_chat(&call.client, message, call.answered).await?;
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

impl ChatSent {
    fn new(message: RunId, fate: Option<&MessageFate>) -> Self {
        let run = fate.and_then(|fate| fate.run);
        let is_dropped = fate.is_some_and(|fate| fate.state == MessageState::Dropped);
        match run.filter(|run| *run != message) {
            Some(run) if !is_dropped => Self { run_id: run, status: "steered", next_run_id: Some(message) },
            None if run.is_some() => Self { run_id: message, status: "started", next_run_id: None },
            Some(_) | None => Self { run_id: message, status: "dropped", next_run_id: None },
        }
    }
}
