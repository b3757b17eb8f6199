//! Parses and checks a whole `anthropic_messages` request, and its thinking options. Messages are in `turn.rs` and
//! `block.rs`, tools in `tools.rs`, cache marks in `cache.rs`.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    block::{BlockOwner, blocks},
    cache::{CacheableParts, Ttl, prefix},
    object, refuse,
    tools::{ToolChoiceMode, choice, tools},
    turn,
};
use crate::rehearsal::{
    Conversation, RawContent, RequestMessage, ThinkingMode,
    wire::{
        AnswerOptions, ParsedRequest, RequestRefusal,
        fields::{JsonFields, ObjectShape},
    },
};

/// The smallest accepted thinking budget.
const MIN_BUDGET_TOKENS: u64 = 1024;

const REQUEST: ObjectShape = ObjectShape {
    required: "model max_tokens messages",
    optional: "system stream tools tool_choice thinking temperature top_k top_p stop_sequences metadata \
        service_tier cache_control container context_management compaction diagnostics fallbacks \
        inference_geo mcp_servers output_config output_format speed",
};

/// Parses a request by the vendor's rules.
pub fn read(body: &[u8]) -> Result<ParsedRequest<'_>, RequestRefusal> {
    let raw = serde_json::from_slice::<&RawValue>(body);
    let raw = raw.map_err(|error| {
        RequestRefusal::bad_request(None, format!("The request body is not valid JSON: {error}"))
    })?;
    let fields = object(raw, "")
        .map_err(|_| RequestRefusal::bad_request(None, "The request body must be a JSON object"))?;
    fields.check(&REQUEST)?;
    let model = fields.text("model")?;
    if model.0.is_empty() {
        return Err(refuse("model", "String should have at least 1 character"));
    }
    let tools = tools(&fields)?;
    let choice = choice(&fields, &tools)?;
    let (thinking, include) = thinking_options(&fields, choice)?;
    let system = fields.get("system");
    let system_blocks =
        system.map_or(Ok(Vec::new()), |raw| blocks(raw, "system", BlockOwner::System, &model.0))?;
    let messages = fields.require("messages", "list")?;
    let turns = turn::turns(messages, &model.0)?;
    turn::check(&turns, thinking)?;
    let prefix = prefix(&CacheableParts {
        model: &model.0,
        tools: &tools,
        system: &system_blocks,
        blocks: turns
            .iter()
            .flat_map(|turn| turn.blocks.iter().map(|block| (turn.role_name(), block)))
            .collect(),
        last: Ttl::of(&fields)?,
    })?;
    let mut messages = Vec::with_capacity(turns.len() + 1);
    let system = system.filter(|_| !system_blocks.is_empty());
    messages.extend(system.and_then(|raw| RawContent::of(Some(raw))).map(RequestMessage::System));
    turns.iter().for_each(|turn| turn.append_messages(&mut messages));
    let offers_tools = !tools.is_empty() && choice != ToolChoiceMode::None;
    let is_stream = fields.read("stream", "boolean")?.unwrap_or(false);
    Ok(ParsedRequest {
        conversation: Conversation { messages, offers_tools, thinking, bytes: prefix.bytes },
        model,
        is_stream,
        include,
        prefix,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ThinkingType {
    Enabled,
    Disabled,
    Adaptive,
    BetweenTools,
}

#[derive(PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ThoughtDisplay {
    Summarized,
    Omitted,
}

/// Parses `thinking`, and checks the options that conflict with it.
fn thinking_options(
    request: &JsonFields<'_>,
    choice: ToolChoiceMode,
) -> Result<(ThinkingMode, AnswerOptions), RequestRefusal> {
    let max_tokens = request.require::<u64>("max_tokens", "integer")?;
    if max_tokens == 0 {
        return Err(refuse("max_tokens", "Input should be greater than or equal to 1"));
    }
    let temperature = request.read::<f64>("temperature", "number")?;
    if temperature.is_some_and(|temperature| !(0.0..=1.0).contains(&temperature)) {
        return Err(refuse("temperature", "range: 0..1"));
    }
    let none = AnswerOptions::default();
    let Some(fields) = request.object("thinking", "dictionary")? else {
        return Ok((ThinkingMode::Off, none));
    };
    let mode = fields.require("type", "mode: 'adaptive', 'between_tools', 'disabled' or 'enabled'")?;
    let display = fields.read("display", "display: 'omitted' or 'summarized'")?;
    let thoughts = display != Some(ThoughtDisplay::Omitted);
    let include = AnswerOptions { thoughts, sealed_thoughts: true, ..none };
    match mode {
        ThinkingType::Disabled => return Ok((ThinkingMode::Off, none)),
        ThinkingType::Adaptive | ThinkingType::BetweenTools => return Ok((ThinkingMode::Scripted, include)),
        ThinkingType::Enabled => {}
    }
    let budget = fields.at("thinking.enabled").require::<u64>("budget_tokens", "integer")?;
    if budget < MIN_BUDGET_TOKENS {
        let problem = format!("Input should be greater than or equal to {MIN_BUDGET_TOKENS}");
        return Err(refuse("thinking.enabled.budget_tokens", problem));
    }
    let conflict = if budget >= max_tokens {
        "`max_tokens` must be greater than `thinking.budget_tokens`."
    } else if choice == ToolChoiceMode::Forced {
        "Thinking may not be enabled when tool_choice forces tool use."
    } else if temperature.is_some_and(|temperature| temperature < 1.0) {
        "`temperature` may only be set to 1 when thinking is enabled."
    } else if request.get("top_k").is_some() {
        "`top_k` must be unset when thinking is enabled."
    } else {
        return Ok((ThinkingMode::Always, include));
    };
    Err(RequestRefusal::bad_request(None, conflict))
}
