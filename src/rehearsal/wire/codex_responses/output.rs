//! The output items of a `codex_responses` answer, and their JSON. `write.rs` puts them into a response or a stream.

use hermod_actors::model::ToolCall;
use serde_json::{Value, json};

use crate::rehearsal::{
    ScriptedAnswer,
    wire::{ParsedRequest, seal::seal},
};

/// One item of an answer.
pub(super) enum OutputItem<'a> {
    Reasoning { id: String, summary: Option<&'a str>, sealed: Option<String> },
    Message { id: String, text: &'a str },
    Call { id: String, call: &'a ToolCall },
}

/// The stage of an item in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemStage {
    Begun,
    Done,
}

/// The items of an answer, in order.
pub(super) fn outputs<'a>(
    scripted: &'a ScriptedAnswer<'_>,
    request: &ParsedRequest<'_>,
) -> Vec<OutputItem<'a>> {
    let (reply, step) = (&scripted.answer.message, scripted.step);
    let mut outputs = Vec::new();
    if !reply.reasoning.is_empty() {
        let include = request.include;
        outputs.push(OutputItem::Reasoning {
            id: format!("rs_rehearsal_{step}"),
            summary: include.thoughts.then_some(reply.reasoning.as_str()),
            sealed: include.sealed_thoughts.then(|| seal(&request.model.0, &reply.reasoning)),
        });
    }
    if !reply.text.is_empty() {
        outputs.push(OutputItem::Message { id: format!("msg_rehearsal_{step}"), text: &reply.text });
    }
    for (n, call) in (1..).zip(&reply.calls) {
        outputs.push(OutputItem::Call { id: format!("fc_rehearsal_{step}_{n}"), call });
    }
    outputs
}

impl OutputItem<'_> {
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Reasoning { id, .. } | Self::Message { id, .. } | Self::Call { id, .. } => id,
        }
    }

    /// The item as JSON; without content at its start.
    pub(super) fn item(&self, stage: ItemStage) -> Value {
        let done = stage == ItemStage::Done;
        let status = if done { "completed" } else { "in_progress" };
        match self {
            Self::Reasoning { id, summary, sealed } => {
                let summary: Vec<_> =
                    summary.iter().filter(|_| done).map(|text| summary_part(text)).collect();
                let mut item = json!({ "id": id, "type": "reasoning", "summary": summary });
                if let Some(sealed) = sealed {
                    item["encrypted_content"] = sealed.as_str().into();
                }
                item
            }
            Self::Message { id, text } => {
                let content: Vec<_> = done.then(|| text_part(text)).into_iter().collect();
                json!({
                    "id": id, "type": "message", "status": status, "role": "assistant", "content": content,
                })
            }
            Self::Call { id, call } => json!({
                "id": id,
                "type": "function_call",
                "status": status,
                "arguments": if done { call.arguments.as_str() } else { "" },
                "call_id": call.id,
                "name": call.name,
            }),
        }
    }
}

pub(super) fn summary_part(text: &str) -> Value {
    json!({ "type": "summary_text", "text": text })
}

pub(super) fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "annotations": [], "logprobs": [], "text": text })
}
