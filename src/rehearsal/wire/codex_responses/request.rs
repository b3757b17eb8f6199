//! Parses and checks a whole `codex_responses` request, and its options. Input items are in `item.rs` and `history.rs`,
//! tools in `tools.rs`.

use serde_json::value::RawValue;

use super::{
    history,
    item::InputItem,
    item_path, refuse, refuse_field, refuse_value,
    tools::{may_call, tools},
};
use crate::rehearsal::{
    BorrowedText, Conversation, RawContent, RequestMessage, ThinkingMode,
    wire::{
        AnswerOptions, CachePolicy, CachePrefix, ParsedRequest, RequestRefusal,
        fields::{JsonFields, ObjectShape, TextOrList},
    },
};

/// The smallest accepted `max_output_tokens`.
const MIN_OUTPUT_TOKENS: u64 = 16;
const SEALED_REASONING: &str = "reasoning.encrypted_content";

const REQUEST: ObjectShape = ObjectShape {
    required: "model",
    optional: "input instructions stream stream_options tools tool_choice parallel_tool_calls max_tool_calls \
        reasoning include store previous_response_id conversation background max_output_tokens temperature \
        top_p top_logprobs text truncation metadata prompt prompt_cache_key prompt_cache_options \
        prompt_cache_retention context_management moderation safety_identifier service_tier user \
        client_metadata",
};

const INCLUDABLE: &[&str] = &[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    SEALED_REASONING,
    "message.output_text.logprobs",
];

/// Parses a request by the vendor's rules.
pub fn read(body: &[u8]) -> Result<ParsedRequest<'_>, RequestRefusal> {
    let raw = serde_json::from_slice::<&RawValue>(body).map_err(|error| {
        RequestRefusal::bad_request(
            None,
            format!("We could not parse the JSON body of your request: {error}"),
        )
    })?;
    let fields = JsonFields::of(raw, "", "an object", refuse_field)
        .map_err(|_| RequestRefusal::bad_request(None, "The body of your request must be a JSON object."))?;
    fields.check(&REQUEST)?;
    check_stored(&fields)?;
    let is_stream = check_output(&fields)?;
    let model = fields.text("model")?;
    if model.0.is_empty() {
        return Err(refuse("model", "empty_string", "Invalid 'model': empty string: name a model."));
    }
    let (thinking, include) = thinking_options(&fields)?;
    let tools = tools(&fields)?;
    let may_call = may_call(&fields)?;
    let offers_tools = may_call && !tools.is_empty();
    let mut messages = Vec::new();
    let mut prefix = CachePrefix::new(CachePolicy::Automatic, &model.0);
    for (name, value) in tools.iter().flat_map(JsonFields::iter) {
        prefix.name(name);
        prefix.value(value.get());
    }
    if let Some(raw) = fields.get("instructions") {
        fields.text("instructions")?;
        prefix.value(raw.get());
        messages.extend(RawContent::of(Some(raw)).map(RequestMessage::System));
    }
    prefix.add_breakpoint();
    match fields.text_or_list("input")? {
        Some(TextOrList::List(list)) if !list.is_empty() => {
            let items = list.iter().enumerate();
            let items = items.map(|(n, raw)| InputItem::read(raw, item_path("input", n), &model.0));
            let items = items.collect::<Result<Vec<_>, _>>()?;
            list.iter().for_each(|raw| {
                prefix.value(raw.get());
                prefix.add_breakpoint();
            });
            history::check(&items)?;
            history::append_messages(items, &mut messages);
        }
        Some(TextOrList::Text(_)) => {
            let raw = fields.get("input");
            raw.into_iter().for_each(|raw| prefix.value(raw.get()));
            prefix.add_breakpoint();
            messages.extend(RawContent::of(raw).map(RequestMessage::User));
        }
        None | Some(TextOrList::List(_)) => {
            let message = "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation' must be provided.";
            return Err(refuse("input", "missing_required_parameter", message));
        }
    }
    let conversation = Conversation { messages, offers_tools, thinking, bytes: prefix.bytes };
    Ok(ParsedRequest { conversation, model, is_stream, include, prefix })
}

/// Refuses options that need stored responses.
fn check_stored(request: &JsonFields<'_>) -> Result<(), RequestRefusal> {
    request.read::<bool>("store", "a boolean")?;
    if let Some(BorrowedText(id)) = request.read("previous_response_id", "a string")? {
        let message = format!("Previous response with id '{id}' not found.");
        return Err(refuse("previous_response_id", "previous_response_not_found", message));
    }
    for field in ["conversation", "prompt"] {
        if request.get(field).is_some() {
            let message = format!("The {field} was not found: a rehearsal stores nothing.");
            return Err(RequestRefusal { param: Some(field.into()), ..RequestRefusal::new(404, message) });
        }
    }
    if request.read("background", "a boolean")? == Some(true) {
        let message = "A rehearsal stores nothing, so that it cannot answer in the background.";
        return Err(refuse("background", "unsupported_value", message));
    }
    Ok(())
}

/// Checks the output options; true if the answer is streamed.
fn check_output(request: &JsonFields<'_>) -> Result<bool, RequestRefusal> {
    let max = request.read::<u64>("max_output_tokens", "an integer")?;
    if let Some(max) = max.filter(|max| *max < MIN_OUTPUT_TOKENS) {
        let message = format!(
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {MIN_OUTPUT_TOKENS}, but got \
             {max} instead."
        );
        return Err(refuse("max_output_tokens", "integer_below_min_value", message));
    }
    let is_stream = request.read("stream", "a boolean")?.unwrap_or(false);
    if !is_stream && request.get("stream_options").is_some() {
        let message = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
        return Err(refuse("stream_options", "invalid_value", message));
    }
    Ok(is_stream)
}

/// Parses `reasoning` and `include`.
fn thinking_options(request: &JsonFields<'_>) -> Result<(ThinkingMode, AnswerOptions), RequestRefusal> {
    let included = request.read::<Vec<BorrowedText<'_>>>("include", "an array of strings")?;
    let included = included.unwrap_or_default();
    for (index, BorrowedText(name)) in included.iter().enumerate() {
        if !INCLUDABLE.contains(&name.as_ref()) {
            return Err(refuse_value(&item_path("include", index), name, INCLUDABLE));
        }
    }
    let sealed_thoughts = included.iter().any(|BorrowedText(name)| name == SEALED_REASONING);
    let none = AnswerOptions { usage: true, ..AnswerOptions::default() };
    let Some(fields) = request.object("reasoning", "an object")? else {
        return Ok((ThinkingMode::Off, none));
    };
    let word = |name: &str, supported: &[&str]| -> Result<Option<BorrowedText<'_>>, RequestRefusal> {
        match fields.read(name, "a string")? {
            Some(BorrowedText(word)) if !supported.contains(&word.as_ref()) => {
                Err(refuse_value(&fields.path(name), &word, supported))
            }
            word => Ok(word),
        }
    };
    let effort = word("effort", &["none", "minimal", "low", "medium", "high", "xhigh", "max"])?;
    let summary = word("summary", &["auto", "concise", "detailed"])?;
    let summary = summary.or(word("generate_summary", &["auto", "concise", "detailed"])?);
    if effort.is_some_and(|BorrowedText(effort)| effort == "none") {
        return Ok((ThinkingMode::Off, none));
    }
    Ok((ThinkingMode::Always, AnswerOptions { thoughts: summary.is_some(), sealed_thoughts, ..none }))
}
