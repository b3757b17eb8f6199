//! Parses and checks `chat_completions` requests. The order of roles is checked in `conversation.rs`.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use crate::rehearsal::{
    BorrowedText, Conversation, RawContent, RequestMessage, ThinkingMode,
    wire::{
        AnswerOptions, CachePolicy, CachePrefix, ParsedRequest, RequestRefusal,
        fields::{TextOrList, text_or_list},
        image,
        openai::{is_function_name, refuse_image},
    },
};

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    model: BorrowedText<'a>,
    #[serde(borrow)]
    messages: Vec<WireMessage<'a>>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
    #[serde(borrow, default)]
    tools: Vec<WireTool<'a>>,
    #[serde(borrow)]
    tool_choice: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Deserialize)]
struct WireMessage<'a> {
    role: Role,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_call_id: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<WireCall<'a>>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    System,
    Developer,
    User,
    Assistant,
    Tool,
}

#[derive(Deserialize)]
struct WireCall<'a> {
    #[serde(borrow)]
    id: BorrowedText<'a>,
    #[serde(rename = "type")]
    _type: FunctionType,
    #[serde(borrow)]
    function: CalledFunction<'a>,
}

#[derive(Deserialize)]
enum FunctionType {
    #[serde(rename = "function")]
    Function,
}

#[derive(Deserialize)]
struct CalledFunction<'a> {
    #[serde(borrow)]
    name: BorrowedText<'a>,
    #[serde(borrow)]
    arguments: &'a RawValue,
}

#[derive(Deserialize)]
struct WireTool<'a> {
    #[serde(rename = "type")]
    _type: FunctionType,
    #[serde(borrow)]
    function: OfferedFunction<'a>,
}

#[derive(Deserialize)]
struct OfferedFunction<'a> {
    #[serde(borrow)]
    name: BorrowedText<'a>,
    #[serde(borrow)]
    description: Option<&'a RawValue>,
    #[serde(borrow)]
    parameters: Option<&'a RawValue>,
}

/// Parses a request by the rules of a strict provider.
pub fn read(body: &[u8]) -> Result<ParsedRequest<'_>, RequestRefusal> {
    let request: Request<'_> = serde_json::from_slice(body).map_err(|error| {
        RequestRefusal::bad_request(None, format!("the body is no chat completion request: {error}"))
    })?;
    if request.model.0.is_empty() {
        return Err(RequestRefusal::bad_request(Some("model"), "`model` is empty: name a model"));
    }
    if request.stream_options.is_some() && !request.stream {
        let message = "`stream_options` is only allowed when `stream` is true";
        return Err(RequestRefusal::bad_request(Some("stream_options"), message));
    }
    let usage = request.stream_options.as_ref().is_some_and(|options| options.include_usage);
    check_tools(&request.tools)?;
    let declined = request.tool_choice.is_some_and(|choice| choice.get() == "\"none\"");
    let offers_tools = !request.tools.is_empty() && !declined;
    let prefix = prefix(&request);
    let messages =
        request.messages.into_iter().enumerate().map(|(index, message)| to_message(index, message));
    let messages = messages.collect::<Result<_, _>>()?;
    let conversation =
        Conversation { messages, offers_tools, thinking: ThinkingMode::Scripted, bytes: prefix.bytes };
    conversation.check()?;
    Ok(ParsedRequest {
        conversation,
        model: request.model,
        is_stream: request.stream,
        include: AnswerOptions { usage, thoughts: true, sealed_thoughts: false },
        prefix,
    })
}

fn prefix(request: &Request<'_>) -> CachePrefix {
    let mut prefix = CachePrefix::new(CachePolicy::Automatic, &request.model.0);
    for OfferedFunction { name, description, parameters } in request.tools.iter().map(|tool| &tool.function) {
        prefix.value(&name.0);
        [description, parameters].into_iter().flatten().for_each(|raw| prefix.value(raw.get()));
    }
    for message in &request.messages {
        prefix.name(message.role.name());
        message.content.iter().for_each(|content| prefix.value(content.get()));
        message.tool_call_id.iter().for_each(|id| prefix.value(&id.0));
        for call in message.tool_calls.iter().flatten() {
            prefix.value(&call.id.0);
            prefix.value(&call.function.name.0);
            prefix.value(call.function.arguments.get());
        }
        prefix.add_breakpoint();
    }
    prefix
}

fn check_tools(tools: &[WireTool<'_>]) -> Result<(), RequestRefusal> {
    let mut seen = HashSet::new();
    for (index, tool) in tools.iter().enumerate() {
        let name = tool.function.name.0.as_ref();
        let param = format!("tools[{index}].function.name");
        if !is_function_name(name) {
            let message = format!("`{name}` is no name of a function: 1 to 64 of a-z, A-Z, 0-9, `_` and `-`");
            return Err(RequestRefusal::bad_request(Some(&param), message));
        }
        if !seen.insert(name) {
            return Err(RequestRefusal::bad_request(Some(&param), format!("two tools are named `{name}`")));
        }
    }
    Ok(())
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }

    /// The part types that its content may have.
    ///
    /// Images in a tool message are an extension of many servers; OpenAI itself accepts them only from users.
    fn parts(self) -> &'static [&'static str] {
        match self {
            Self::System | Self::Developer => &["text"],
            Self::User => &["text", "image_url", "input_audio", "file"],
            Self::Assistant => &["text", "refusal"],
            Self::Tool => &["text", "image_url"],
        }
    }
}

fn check_parts(index: usize, role: Role, content: &RawValue) -> Result<(), RequestRefusal> {
    let Some(TextOrList::List(parts)) = text_or_list(content) else { return Ok(()) };
    for (part, raw) in parts.into_iter().enumerate() {
        let param = format!("messages[{index}].content[{part}]");
        let refuse =
            |problem: String| RequestRefusal::bad_request(Some(&param), format!("{param}: {problem}"));
        let part: Map<String, Value> =
            serde_json::from_str(raw.get()).map_err(|_| refuse("expected an object".into()))?;
        let text = |name: &str| part.get(name).and_then(Value::as_str);
        let kind = text("type").ok_or_else(|| refuse("`type` is missing".into()))?;
        if !role.parts().contains(&kind) {
            let (role, allowed) = (role.name(), role.parts().join("`, `"));
            return Err(refuse(format!("`{kind}` in a message of role `{role}`: it may have `{allowed}`")));
        }
        if kind == "text" && text("text").is_none() {
            return Err(refuse("`text` is no string".into()));
        }
        if kind == "image_url" {
            let url = part.get("image_url").and_then(|image| image.get("url")?.as_str());
            let url = url.ok_or_else(|| refuse("`image_url` must be an object with an `url`".into()))?;
            image::check_url(url).map_err(|problem| refuse_image(&format!("{param}.image_url"), &problem))?;
        }
    }
    Ok(())
}

fn to_message(index: usize, message: WireMessage<'_>) -> Result<RequestMessage<'_>, RequestRefusal> {
    let refuse = |field: &str, problem: &str| {
        let param = format!("messages[{index}].{field}");
        let message = format!("{param}: {problem}");
        RequestRefusal::bad_request(Some(&param), message)
    };
    let content = RawContent::of(message.content)
        .ok_or_else(|| refuse("content", "expected a string, a list of parts or null"))?;
    if content.is_null() && !matches!(message.role, Role::Assistant) {
        return Err(refuse("content", "is missing: only an assistant message may be without"));
    }
    if let Some(content) = message.content {
        check_parts(index, message.role, content)?;
    }
    if message.tool_calls.is_some() && !matches!(message.role, Role::Assistant) {
        return Err(refuse("tool_calls", "only an assistant message may have them"));
    }
    match message.role {
        Role::System | Role::Developer => Ok(RequestMessage::System(content)),
        Role::User => Ok(RequestMessage::User(content)),
        Role::Tool => {
            let id = message.tool_call_id.ok_or_else(|| refuse("tool_call_id", "is missing"))?;
            Ok(RequestMessage::Tool(id, content))
        }
        Role::Assistant => {
            let calls = message.tool_calls.unwrap_or_default();
            for call in &calls {
                if call.function.name.0.is_empty() {
                    return Err(refuse("tool_calls", "a function's name is empty"));
                }
                if !call.function.arguments.get().starts_with('"') {
                    return Err(refuse(
                        "tool_calls",
                        "a function's arguments must be JSON written into a string",
                    ));
                }
            }
            Ok(RequestMessage::Assistant(content, calls.into_iter().map(|call| call.id).collect()))
        }
    }
}
