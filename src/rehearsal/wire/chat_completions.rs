//! The `chat_completions` wire format: `POST /v1/chat/completions` of OpenAI and of everybody who copied it.

use std::collections::HashSet;

use hermod_actors::model::{Answer, Finish, ToolCall, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};

use super::{Events, Exchange, Refusal, Reply, events::pieces};
use crate::rehearsal::{Content, Conversation, Id, Message, Scripted};

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    model: Id<'a>,
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
    tool_call_id: Option<Id<'a>>,
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
    id: Id<'a>,
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
    name: Id<'a>,
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
    name: Id<'a>,
}

/// Reads a request as a strict provider would.
pub fn read(body: &[u8]) -> Result<Exchange<'_>, Refusal> {
    let request: Request<'_> = serde_json::from_slice(body).map_err(|error| {
        Refusal::bad_request(None, format!("the body is no chat completion request: {error}"))
    })?;
    if request.model.0.is_empty() {
        return Err(Refusal::bad_request(Some("model"), "`model` is empty: name a model"));
    }
    let reply = match (request.stream, request.stream_options) {
        (false, None) => Reply::Whole,
        (false, Some(_)) => {
            let message = "`stream_options` is only allowed when `stream` is true";
            return Err(Refusal::bad_request(Some("stream_options"), message));
        }
        (true, Some(StreamOptions { include_usage: true })) => Reply::StreamWithUsage,
        (true, Some(_) | None) => Reply::Stream,
    };
    check_tools(&request.tools)?;
    let declined = request.tool_choice.is_some_and(|choice| choice.get() == "\"none\"");
    let offers_tools = !request.tools.is_empty() && !declined;
    let messages = request.messages.into_iter().enumerate().map(|(index, message)| neutral(index, message));
    let messages = messages.collect::<Result<_, _>>()?;
    let conversation = Conversation { messages, offers_tools, bytes: body.len() };
    conversation.check().map_err(|violation| {
        Refusal::bad_request(Some(&format!("messages[{}]", violation.index)), violation.to_string())
    })?;
    Ok(Exchange { conversation, reply })
}

fn check_tools(tools: &[WireTool<'_>]) -> Result<(), Refusal> {
    let mut seen = HashSet::new();
    for (index, tool) in tools.iter().enumerate() {
        let name = tool.function.name.0.as_ref();
        let param = format!("tools[{index}].function.name");
        if !is_function_name(name) {
            let message = format!("`{name}` is no name of a function: 1 to 64 of a-z, A-Z, 0-9, `_` and `-`");
            return Err(Refusal::bad_request(Some(&param), message));
        }
        if !seen.insert(name) {
            return Err(Refusal::bad_request(Some(&param), format!("two tools are named `{name}`")));
        }
    }
    Ok(())
}

fn is_function_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

fn neutral(index: usize, message: WireMessage<'_>) -> Result<Message<'_>, Refusal> {
    let refuse = |field: &str, problem: &str| {
        let param = format!("messages[{index}].{field}");
        let message = format!("{param}: {problem}");
        Refusal::bad_request(Some(&param), message)
    };
    let content = Content::of(message.content)
        .ok_or_else(|| refuse("content", "expected a string, a list of parts or null"))?;
    if content.is_null() && !matches!(message.role, Role::Assistant) {
        return Err(refuse("content", "is missing: only an assistant message may be without"));
    }
    if message.tool_calls.is_some() && !matches!(message.role, Role::Assistant) {
        return Err(refuse("tool_calls", "only an assistant message may have them"));
    }
    match message.role {
        Role::System | Role::Developer => Ok(Message::System(content)),
        Role::User => Ok(Message::User(content)),
        Role::Tool => {
            let id = message.tool_call_id.ok_or_else(|| refuse("tool_call_id", "is missing"))?;
            Ok(Message::Tool(id, content))
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
            Ok(Message::Assistant(content, calls.into_iter().map(|call| call.id).collect()))
        }
    }
}

#[derive(Serialize)]
struct Chunk<'a, D: Serialize> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [Choice<'a, D>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<WireUsage>,
}

#[derive(Serialize)]
struct Choice<'a, D: Serialize> {
    index: u64,
    delta: &'a D,
    finish_reason: Option<&'static str>,
}

#[derive(Default, Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[CallDelta<'a>; 1]>,
}

#[derive(Serialize)]
struct CallDelta<'a> {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: FunctionDelta<'a>,
}

#[derive(Serialize)]
struct FunctionDelta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

#[derive(Serialize)]
struct WireUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: PromptDetails,
}

#[derive(Serialize)]
struct PromptDetails {
    cached_tokens: u64,
}

impl From<&Usage> for WireUsage {
    fn from(usage: &Usage) -> Self {
        Self {
            prompt_tokens: usage.input_tokens,
            completion_tokens: usage.output_tokens,
            total_tokens: usage.total(),
            prompt_tokens_details: PromptDetails { cached_tokens: usage.cached_tokens },
        }
    }
}

/// Writes an answer as it is wanted. The answer's id and time say nothing but its step: the same request gets the
/// same bytes.
pub fn write(scripted: &Scripted<'_>, model: &str, reply: Reply) -> Events {
    let id = format!("chatcmpl-rehearsal-{}", scripted.step);
    match reply {
        Reply::Whole => whole(&scripted.answer, &id, model),
        Reply::Stream => stream(scripted, &id, model, None),
        Reply::StreamWithUsage => stream(scripted, &id, model, scripted.answer.usage.as_ref()),
    }
}

struct Writer<'a> {
    events: Events,
    id: &'a str,
    model: &'a str,
}

impl Writer<'_> {
    fn chunk(&mut self, delta: &Delta<'_>, finish_reason: Option<&'static str>) {
        self.event(&[Choice { index: 0, delta, finish_reason }], None);
    }

    fn call(&mut self, call: CallDelta<'_>) {
        self.chunk(&Delta { tool_calls: Some([call]), ..Delta::default() }, None);
    }

    fn event(&mut self, choices: &[Choice<'_, Delta<'_>>], usage: Option<WireUsage>) {
        let (id, model) = (self.id, self.model);
        self.events.data(&Chunk { id, object: "chat.completion.chunk", created: 0, model, choices, usage });
    }
}

fn stream(scripted: &Scripted<'_>, id: &str, model: &str, usage: Option<&Usage>) -> Events {
    let mut writer = Writer { events: Events::default(), id, model };
    let (message, chunk) = (&scripted.answer.message, scripted.pace.chunk);
    writer.chunk(&Delta { role: Some("assistant"), content: Some(""), ..Delta::default() }, None);
    for piece in pieces(&message.reasoning, chunk) {
        writer.chunk(&Delta { reasoning_content: Some(piece), ..Delta::default() }, None);
    }
    for piece in pieces(&message.text, chunk) {
        writer.chunk(&Delta { content: Some(piece), ..Delta::default() }, None);
    }
    for (index, call) in message.calls.iter().enumerate() {
        let function = FunctionDelta { name: Some(&call.name), arguments: "" };
        writer.call(CallDelta { index, id: Some(&call.id), kind: Some("function"), function });
        for arguments in pieces(&call.arguments, chunk) {
            let function = FunctionDelta { name: None, arguments };
            writer.call(CallDelta { index, id: None, kind: None, function });
        }
    }
    writer.chunk(&Delta::default(), Some(finish(scripted.answer.finish)));
    if let Some(usage) = usage {
        writer.event(&[], Some(usage.into()));
    }
    writer.events.mark("[DONE]");
    writer.events
}

fn whole(answer: &Answer, id: &str, model: &str) -> Events {
    let call = |call: &ToolCall| {
        let function = json!({ "name": call.name, "arguments": call.arguments });
        json!({ "id": call.id, "type": "function", "function": function })
    };
    let said = &answer.message;
    let mut message = json!({ "role": "assistant", "content": said.text });
    if !said.reasoning.is_empty() {
        message["reasoning_content"] = said.reasoning.as_str().into();
    }
    if !said.calls.is_empty() {
        message["tool_calls"] = said.calls.iter().map(call).collect();
    }
    Events::whole(&json!({
        "id": id,
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{ "index": 0, "message": message, "finish_reason": finish(answer.finish) }],
        "usage": answer.usage.as_ref().map(WireUsage::from),
    }))
}

fn finish(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length => "length",
        Finish::Refused => "content_filter",
    }
}

/// The body of an error response.
pub fn error(refusal: &Refusal) -> String {
    let kind = match refusal.status {
        401 | 403 => "authentication_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    let code = (refusal.status == 429).then_some("rate_limit_exceeded");
    let error = json!({ "message": refusal.message, "type": kind, "param": refusal.param, "code": code });
    json!({ "error": error }).to_string()
}

/// The body of `GET /v1/models`.
pub fn models(model: &str) -> String {
    let model = json!({ "id": model, "object": "model", "created": 0, "owned_by": "rehearsal" });
    json!({ "object": "list", "data": [model] }).to_string()
}
