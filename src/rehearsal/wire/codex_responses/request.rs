use serde_json::value::RawValue;

use super::{
    history,
    item::Item,
    refuse, refuse_field, refuse_value,
    tools::{may_call, tools},
};
use crate::rehearsal::{
    Content, Conversation, Id, Message, Thinking,
    wire::{
        Caching, Exchange, Include, Prefix, Refusal,
        fields::{FieldProblem, Fields, Shape, TextOrList},
        reply,
    },
};

/// The smallest `max_output_tokens`.
const LEAST_OUTPUT: u64 = 16;
const SEALED: &str = "reasoning.encrypted_content";

const REQUEST: Shape = Shape {
    required: &["model"],
    optional: &[
        "input",
        "instructions",
        "stream",
        "stream_options",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_tool_calls",
        "reasoning",
        "include",
        "store",
        "previous_response_id",
        "conversation",
        "background",
        "max_output_tokens",
        "temperature",
        "top_p",
        "top_logprobs",
        "text",
        "truncation",
        "metadata",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "context_management",
        "moderation",
        "safety_identifier",
        "service_tier",
        "user",
        "client_metadata",
    ],
};

const INCLUDABLE: &[&str] = &[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    SEALED,
    "message.output_text.logprobs",
];

/// Reads a request as the vendor would.
pub fn read(body: &[u8]) -> Result<Exchange<'_>, Refusal> {
    let raw = serde_json::from_slice::<&RawValue>(body).map_err(|error| {
        Refusal::bad_request(None, format!("We could not parse the JSON body of your request: {error}"))
    })?;
    let fields = Fields::of(raw)
        .ok_or_else(|| Refusal::bad_request(None, "The body of your request must be a JSON object."))?;
    fields.check(&REQUEST).map_err(of_request)?;
    check_stored(&fields)?;
    let stream = check_output(&fields)?;
    let model = fields.text("model").map_err(of_request)?;
    if model.0.is_empty() {
        return Err(refuse("model", "empty_string", "Invalid 'model': empty string: name a model."));
    }
    let (thinking, include) = thoughts(&fields)?;
    let tools = tools(&fields)?;
    let may_call = may_call(&fields)?;
    let offers_tools = may_call && !tools.is_empty();
    let mut messages = Vec::new();
    let mut prefix = Prefix::new(Caching::Itself, &model.0);
    for (name, value) in tools.iter().flat_map(Fields::iter) {
        prefix.name(name);
        prefix.value(value.get());
    }
    if let Some(raw) = fields.get("instructions") {
        fields.text("instructions").map_err(of_request)?;
        prefix.value(raw.get());
        messages.extend(Content::of(Some(raw)).map(Message::System));
    }
    prefix.stop();
    match fields.text_or_list("input").map_err(of_request)? {
        Some(TextOrList::List(list)) if !list.is_empty() => {
            let items = items(&list, &model.0)?;
            list.iter().for_each(|raw| {
                prefix.value(raw.get());
                prefix.stop();
            });
            history::check(&items)?;
            history::tell(items, &mut messages);
        }
        Some(TextOrList::Text(_)) => {
            let raw = fields.get("input");
            raw.into_iter().for_each(|raw| prefix.value(raw.get()));
            prefix.stop();
            messages.extend(Content::of(raw).map(Message::User));
        }
        None | Some(TextOrList::List(_)) => {
            let message = "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation' must be provided.";
            return Err(refuse("input", "missing_required_parameter", message));
        }
    }
    let conversation = Conversation { messages, offers_tools, thinking, bytes: prefix.bytes() };
    Ok(Exchange { conversation, model, reply: reply(stream), include, prefix })
}

fn of_request(problem: FieldProblem) -> Refusal {
    refuse_field("", &problem)
}

fn items<'a>(list: &[&'a RawValue], model: &str) -> Result<Vec<Item<'a>>, Refusal> {
    let items = list.iter().enumerate();
    items.map(|(index, raw)| Item::read(raw, &format!("input[{index}]"), model)).collect()
}

/// Refuses what only a service that stores responses has.
fn check_stored(request: &Fields<'_>) -> Result<(), Refusal> {
    request.read::<bool>("store", "a boolean").map_err(of_request)?;
    if let Some(Id(id)) = request.read("previous_response_id", "a string").map_err(of_request)? {
        let message = format!("Previous response with id '{id}' not found.");
        return Err(refuse("previous_response_id", "previous_response_not_found", message));
    }
    for field in ["conversation", "prompt"] {
        if request.get(field).is_some() {
            let message = format!("The {field} was not found: a rehearsal stores nothing.");
            return Err(Refusal { param: Some(field.into()), ..Refusal::new(404, message) });
        }
    }
    if request.read("background", "a boolean").map_err(of_request)? == Some(true) {
        let message = "A rehearsal stores nothing, so that it cannot answer in the background.";
        return Err(refuse("background", "unsupported_value", message));
    }
    Ok(())
}

/// Reads what is said about the form of the output: whether it streams.
fn check_output(request: &Fields<'_>) -> Result<Option<bool>, Refusal> {
    let max = request.read::<u64>("max_output_tokens", "an integer").map_err(of_request)?;
    if let Some(max) = max.filter(|max| *max < LEAST_OUTPUT) {
        let message = format!(
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {LEAST_OUTPUT}, but got \
             {max} instead."
        );
        return Err(refuse("max_output_tokens", "integer_below_min_value", message));
    }
    let stream = request.read("stream", "a boolean").map_err(of_request)?;
    if stream != Some(true) && request.get("stream_options").is_some() {
        let message = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
        return Err(refuse("stream_options", "invalid_value", message));
    }
    Ok(stream)
}

/// Reads `reasoning` and `include`.
fn thoughts(request: &Fields<'_>) -> Result<(Thinking, Include), Refusal> {
    let wanted = request.read::<Vec<Id<'_>>>("include", "an array of strings").map_err(of_request)?;
    let wanted = wanted.unwrap_or_default();
    for (index, Id(name)) in wanted.iter().enumerate() {
        if !INCLUDABLE.contains(&name.as_ref()) {
            return Err(refuse_value(&format!("include[{index}]"), name, INCLUDABLE));
        }
    }
    let sealed_thoughts = wanted.iter().any(|Id(name)| name == SEALED);
    let none = Include { usage: true, ..Include::default() };
    let Some(fields) = request.read::<Fields<'_>>("reasoning", "an object").map_err(of_request)? else {
        return Ok((Thinking::Off, none));
    };
    let word = |name: &str, supported: &[&str]| -> Result<Option<Id<'_>>, Refusal> {
        let word = fields.read::<Id<'_>>(name, "a string");
        let word = word.map_err(|problem| refuse_field("reasoning", &problem))?;
        match word {
            Some(Id(word)) if !supported.contains(&word.as_ref()) => {
                Err(refuse_value(&format!("reasoning.{name}"), &word, supported))
            }
            word => Ok(word),
        }
    };
    let effort = word("effort", &["none", "minimal", "low", "medium", "high", "xhigh", "max"])?;
    let summary = word("summary", &["auto", "concise", "detailed"])?;
    let summary = summary.or(word("generate_summary", &["auto", "concise", "detailed"])?);
    if effort.is_some_and(|Id(effort)| effort == "none") {
        return Ok((Thinking::Off, none));
    }
    Ok((Thinking::Always, Include { thoughts: summary.is_some(), sealed_thoughts, ..none }))
}
