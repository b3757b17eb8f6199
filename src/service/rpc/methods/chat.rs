//! `chat.abort` and `chat.history`: stop the runs of a session, and read its conversation.

use hermod_actors::model::{Message, RunId, RunRow};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Method,
    agent::{is_open, run_row},
    run,
};
use crate::{
    access::Scope,
    service::rpc::{client::Call, error::RpcError, params},
};

pub(super) const ABORT_METHOD: Method =
    Method::new("chat.abort", Scope::Steer, |call, params| run(call, params, abort));
pub(super) const HISTORY_METHOD: Method =
    Method::new("chat.history", Scope::Read, |call, params| run(call, params, history))
        .with_answers(MAX_HISTORY_BYTES);

/// Messages of a history whose call names no limit, and of the longest one.
const DEFAULT_MESSAGES: usize = 200;
const MAX_MESSAGES: usize = 1_000;
/// Characters of a text in a history whose call names no limit, and of the longest one.
const DEFAULT_CHARS: usize = 8_000;
const MAX_CHARS: usize = 500_000;
/// Most bytes of the messages in a history; the oldest messages are left out.
const MAX_HISTORY_BYTES: usize = 2 << 20;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AbortParams {
    session_key: String,
    agent_id: Option<String>,
    run_id: Option<String>,
}

/// The runs that were stopped.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChatAborted {
    ok: bool,
    aborted: bool,
    run_ids: Vec<RunId>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct HistoryParams {
    session_key: String,
    agent_id: Option<String>,
    limit: Option<usize>,
    max_chars: Option<usize>,
}

/// The newest messages of a conversation, in its order.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChatHistory {
    session_key: String,
    session_id: String,
    messages: Vec<Value>,
    total_messages: usize,
    has_more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight_run: Option<Value>,
}

/// Stops one run of a session, or all that have not ended.
async fn abort(call: Call, params: AbortParams) -> Result<ChatAborted, RpcError> {
    let reach = &call.client.reach;
    let agent = params::agent(reach, params.agent_id.as_deref())?;
    let session = params::session(reach, &params.session_key, agent.as_ref()).await?;
    let rows = match &params.run_id {
        Some(id) => {
            let row = run_row(reach, id).await?;
            if row.session != session.id {
                let reason = format!("`{id}` is a run of another session; name the run's own session");
                return Err(RpcError::param("runId", reason));
            }
            vec![row]
        }
        None => reach.unfinished_runs_of(&session).await?,
    };
    let open: Vec<RunRow> = rows.into_iter().filter(is_open).collect();
    let run_ids: Vec<RunId> = open.iter().map(|row| row.id).collect();
    crate::control::stop(&reach.service().runtime, open).await?;
    Ok(ChatAborted { ok: true, aborted: !run_ids.is_empty(), run_ids })
}

/// Reads the newest messages of a session.
async fn history(call: Call, params: HistoryParams) -> Result<ChatHistory, RpcError> {
    let reach = &call.client.reach;
    let agent = params::agent(reach, params.agent_id.as_deref())?;
    let limit = within("limit", params.limit, DEFAULT_MESSAGES, MAX_MESSAGES)?;
    let max_chars = within("maxChars", params.max_chars, DEFAULT_CHARS, MAX_CHARS)?;
    let session = params::session(reach, &params.session_key, agent.as_ref()).await?;
    let newest = reach.service().runtime.newest_messages(session.id, limit).await?;
    let total_messages = newest.total;
    let messages = newest_messages(&newest.messages, limit, max_chars);
    let open = reach.unfinished_runs_of(&session).await?;
    let in_flight = open.iter().min_by_key(|row| row.id);
    Ok(ChatHistory {
        session_key: session.key.to_string(),
        session_id: session.id.to_string(),
        has_more: messages.len() < total_messages,
        messages,
        total_messages,
        in_flight_run: in_flight.map(|row| json!({ "runId": row.id, "text": "" })),
    })
}

/// A number of the caller between 1 and `max`.
pub(super) fn within(
    field: &str,
    value: Option<usize>,
    default: usize,
    max: usize,
) -> Result<usize, RpcError> {
    match value {
        None => Ok(default),
        Some(value) if (1..=max).contains(&value) => Ok(value),
        Some(value) => Err(RpcError::param(field, format!("`{value}` is not between 1 and {max}"))),
    }
}

/// The newest messages that fit, in their order.
fn newest_messages(messages: &[Message], limit: usize, max_chars: usize) -> Vec<Value> {
    let (mut shown, mut bytes) = (Vec::new(), 0);
    for message in messages.iter().rev().take(limit) {
        let message = message_view(message, max_chars);
        bytes += message.to_string().len();
        if bytes > MAX_HISTORY_BYTES {
            break;
        }
        shown.push(message);
    }
    shown.reverse();
    shown
}

/// A message in OpenClaw's form: `{role: user | assistant | toolResult, content: […]}`.
fn message_view(message: &Message, max_chars: usize) -> Value {
    let text = |text: &str| json!({ "type": "text", "text": shorten(text, max_chars) });
    match message {
        Message::System(content) => json!({ "role": "system", "content": [text(content)] }),
        Message::User(content) => json!({ "role": "user", "content": [text(&content.text_with_note())] }),
        Message::Tool { call, name, content } => json!({
            "role": "toolResult",
            "toolCallId": call,
            "toolName": name,
            "content": [text(&content.text_with_note())],
        }),
        Message::Assistant(answer) => {
            let mut content = Vec::new();
            if !answer.reasoning.is_empty() {
                content
                    .push(json!({ "type": "thinking", "thinking": shorten(&answer.reasoning, max_chars) }));
            }
            if !answer.text.is_empty() {
                content.push(text(&answer.text));
            }
            content.extend(answer.calls.iter().map(|call| {
                let arguments = shorten(&call.arguments, max_chars);
                let arguments = serde_json::from_str(&arguments).unwrap_or(Value::String(arguments));
                json!({ "type": "toolCall", "id": call.id, "name": call.name, "arguments": arguments })
            }));
            json!({ "role": "assistant", "content": content })
        }
    }
}

/// The beginning of a text, with a mark if something is missing.
fn shorten(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{AssistantMessage, ToolCall};

    use super::*;

    #[test]
    fn messages_have_openclaws_form() {
        let check = |message: &Message, expect: Value| assert_eq!(message_view(message, 5), expect);
        check(
            &Message::User("hello".into()),
            json!({ "role": "user", "content": [{ "type": "text", "text": "hello" }] }),
        );
        check(
            &Message::User("hällo!".into()),
            json!({ "role": "user", "content": [{ "type": "text", "text": "hällo…" }] }),
        );
        let call = ToolCall { id: "c".into(), name: "t".into(), arguments: "{}".into() };
        let answer = AssistantMessage { calls: vec![call], ..AssistantMessage::default() };
        let shown = json!({ "type": "toolCall", "id": "c", "name": "t", "arguments": {} });
        check(&Message::Assistant(answer.into()), json!({ "role": "assistant", "content": [shown] }));
        let result = Message::Tool { call: "c".into(), name: "t".into(), content: "ok".into() };
        check(
            &result,
            json!({ "role": "toolResult", "toolCallId": "c", "toolName": "t", "content": [{ "type": "text", "text": "ok" }] }),
        );
    }

    #[test]
    fn a_history_has_the_newest_messages_that_fit() {
        let messages: Vec<Message> =
            (0..30).map(|n| Message::User(format!("{n} {}", "x".repeat(200_000)).into())).collect();
        let check = |limit: usize, max_chars: usize, expect: usize| {
            let shown = newest_messages(&messages, limit, max_chars);
            assert_eq!(shown.len(), expect);
            let last = shown.last().unwrap()["content"][0]["text"].as_str().unwrap();
            assert!(last.starts_with("29 "), "{last:.20}");
        };
        check(5, 100, 5);
        check(100, 100, 30);
        check(100, MAX_CHARS, 10);
        assert!(within("limit", Some(0), 1, 5).is_err() && within("limit", Some(6), 1, 5).is_err());
        assert_eq!(within("limit", None, 3, 5), Ok(3));
    }
}
