//! The request body of `anthropic_messages`: writes model, limits, thinking and tool choice, and selects the messages
//! with a cache marker. Joins all with the encoded head and messages (`encode.rs`).

use bytes::Bytes;
use hermod_actors::{
    model::{ThinkingLevel, ThinkingStyle},
    port::{ModelRequest, ToolChoice},
};

use crate::provider::{
    CacheTtl,
    wire::{join_body, write_json},
};

/// Most messages with a cache marker. Three suffice to include the last marked message of the previous request.
const MAX_MARKED_MESSAGES: usize = 3;
/// The vendor's minimum budget for thinking, in tokens.
const MIN_BUDGET_TOKENS: u64 = 1_024;

/// The field that marks the last block of a cached prefix.
pub(super) const fn cache_marker(cache: CacheTtl) -> Option<&'static str> {
    match cache {
        CacheTtl::Off => None,
        CacheTtl::Short => Some(r#","cache_control":{"type":"ephemeral"}"#),
        CacheTtl::Long => Some(r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#),
    }
}

/// The whole body, in pieces.
pub(super) fn body(cache: CacheTtl, request: ModelRequest) -> Vec<Bytes> {
    let mut begin = br#"{"model":"#.to_vec();
    write_json(&mut begin, &*request.model);
    let limit = format!(r#","max_tokens":{},"stream":true,"#, request.max_tokens);
    begin.extend_from_slice(limit.as_bytes());
    begin.extend_from_slice(thinking_fields(&request).as_bytes());
    if request.head.has_tools && request.tool_choice == ToolChoice::NoCalls {
        begin.extend_from_slice(br#""tool_choice":{"type":"none"},"#);
    }
    let marks = request.messages.marks();
    let marks = &marks[marks.len().saturating_sub(MAX_MARKED_MESSAGES)..];
    let marker = cache_marker(cache).map(|marker| Bytes::from_static(marker.as_bytes()));
    let markers: Vec<_> = marks.iter().filter_map(|position| Some((*position, marker.clone()?))).collect();
    join_body(begin, request, &markers)
}

/// The fields that configure thinking, with a final comma.
fn thinking_fields(request: &ModelRequest) -> String {
    let Some(thinking) = request.thinking else { return String::new() };
    // Omitting the fields is the only form of `off` that no model refuses.
    let Some((effort, budget)) = effort_and_budget(thinking.level) else { return String::new() };
    match thinking.style {
        ThinkingStyle::None => String::new(),
        ThinkingStyle::Effort => format!(r#""output_config":{{"effort":"{effort}"}},"#),
        ThinkingStyle::Adaptive => {
            format!(r#""thinking":{{"type":"adaptive"}},"output_config":{{"effort":"{effort}"}},"#)
        }
        // The vendor refuses a thinking budget in a turn that began without thinking.
        ThinkingStyle::Budget if request.messages.has_foreign_reasoning() => String::new(),
        // Thinking counts as output: a quarter remains for the answer.
        ThinkingStyle::Budget => match budget.min(request.max_tokens / 4 * 3).max(MIN_BUDGET_TOKENS) {
            budget if budget < request.max_tokens => {
                format!(r#""thinking":{{"type":"enabled","budget_tokens":{budget}}},"#)
            }
            _ => String::new(),
        },
    }
}

/// The vendor's name of a level's effort, and its budget in tokens.
const fn effort_and_budget(level: ThinkingLevel) -> Option<(&'static str, u64)> {
    match level {
        ThinkingLevel::Off => None,
        ThinkingLevel::Minimal => Some(("low", MIN_BUDGET_TOKENS)),
        ThinkingLevel::Low => Some(("low", 4_096)),
        ThinkingLevel::Medium => Some(("medium", 10_000)),
        ThinkingLevel::High => Some(("high", 24_000)),
    }
}
