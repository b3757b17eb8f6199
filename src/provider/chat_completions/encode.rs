use bytes::Bytes;
use hermod_actors::{
    model::{Message, ToolCall, ToolSpec},
    port::{Encoder, ModelRequest},
};
use serde::Serialize;

use super::chunk::is_object;

/// What the vendor calls the limit of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MaxTokens {
    /// `max_tokens`, which nearly all understand.
    #[default]
    Plain,
    /// `max_completion_tokens`, which OpenAI's newer models ask for.
    Completion,
}

impl MaxTokens {
    const fn field(self) -> &'static str {
        match self {
            Self::Plain => "max_tokens",
            Self::Completion => "max_completion_tokens",
        }
    }
}

/// Writes messages and tools.
#[derive(Debug, Clone, Copy)]
pub struct ChatEncoder;

impl Encoder for ChatEncoder {
    /// `"tools":[…],"messages":[{system}`: tools by name, none of the two if there is none.
    fn head(&self, system: &str, tools: &[ToolSpec]) -> Bytes {
        let mut out = Vec::with_capacity(system.len() + 1_024 * tools.len() + 64);
        if !tools.is_empty() {
            let mut tools: Vec<&ToolSpec> = tools.iter().collect();
            tools.sort_by(|a, b| a.name.cmp(&b.name));
            out.extend_from_slice(br#""tools":"#);
            write_json(&mut out, &tools.into_iter().map(WireTool::of).collect::<Vec<_>>());
            out.push(b',');
        }
        out.extend_from_slice(br#""messages":["#);
        if !system.is_empty() {
            write_json(&mut out, &WireMessage::said("system", system));
        }
        out.into()
    }

    fn message(&self, message: &Message) -> Bytes {
        let mut out = vec![b','];
        let message = match message {
            Message::System(text) => WireMessage::said("system", text),
            Message::User(text) => WireMessage::said("user", text),
            Message::Assistant(answer) => WireMessage {
                // Only an answer without text that calls tools may be null.
                content: (!answer.text.is_empty() || answer.calls.is_empty()).then_some(&answer.text),
                tool_calls: answer.calls.iter().map(WireCall::of).collect(),
                ..WireMessage::said("assistant", "")
            },
            Message::Tool { call, name: _, content } => {
                WireMessage { tool_call_id: Some(call), ..WireMessage::said("tool", content) }
            }
        };
        write_json(&mut out, &message);
        out.into()
    }
}

/// The whole body, in pieces.
pub(super) fn body(max_tokens: MaxTokens, request: ModelRequest) -> Vec<Bytes> {
    let mut begin = br#"{"model":"#.to_vec();
    write_json(&mut begin, &*request.model);
    let limit = format!(
        r#","{}":{},"stream":true,"stream_options":{{"include_usage":true}},"#,
        max_tokens.field(),
        request.max_tokens
    );
    begin.extend_from_slice(limit.as_bytes());
    let headless = request.head.ends_with(b"[");
    let mut messages = request.messages.pieces.into_iter().filter(|piece| !piece.is_empty());
    // Every message brings its comma; the first of a list must not.
    let first = messages
        .next()
        .map(|piece| if headless && piece.starts_with(b",") { piece.slice(1..) } else { piece });
    let mut pieces = vec![begin.into(), request.head];
    pieces.extend(first);
    pieces.extend(messages);
    pieces.push(Bytes::from_static(b"]}"));
    pieces
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

impl<'a> WireMessage<'a> {
    fn said(role: &'static str, content: &'a str) -> Self {
        Self { role, content: Some(content), tool_calls: Vec::new(), tool_call_id: None }
    }
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: WireFunction<'a>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl<'a> WireCall<'a> {
    fn of(call: &'a ToolCall) -> Self {
        // Servers parse the arguments of earlier calls and refuse the request if they are no object.
        let arguments = if is_object(&call.arguments) { &call.arguments } else { "{}" };
        Self { id: &call.id, r#type: "function", function: WireFunction { name: &call.name, arguments } }
    }
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    function: &'a ToolSpec,
}

impl<'a> WireTool<'a> {
    fn of(function: &'a ToolSpec) -> Self {
        Self { r#type: "function", function }
    }
}

fn write_json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Infallible: texts, lists and objects with string keys, written to memory.
    serde_json::to_writer(out, value).expect("plain values are always JSON");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hermod_actors::{
        model::{AssistantMessage, CallId, CredentialId, RunId},
        port::Segments,
    };
    use serde_json::{Value, json};

    use super::*;

    fn tool(name: &str) -> ToolSpec {
        let parameters = json!({"type": "object", "properties": {"z": {"type": "string"}, "a": {}}});
        ToolSpec { name: name.into(), description: "It \"does\".".into(), parameters }
    }

    fn conversation() -> Vec<Message> {
        let call = |id: &str, arguments: &str| ToolCall {
            id: id.into(),
            name: "read".into(),
            arguments: arguments.into(),
        };
        let calls = vec![call("a", r#"{"p":"ü\n"}"#), call("b", r#"{"p":"#), call("c", "")];
        let asks = AssistantMessage { calls, ..AssistantMessage::default() };
        let says = AssistantMessage { text: "Done \u{1f600}".into(), ..AssistantMessage::default() };
        let tool =
            |id: &str| Message::Tool { call: id.into(), name: "read".into(), content: "\0\u{2028}".into() };
        vec![
            Message::User("Say \"hi\" \\ \u{7f} \u{1} ß".into()),
            Message::Assistant(Arc::new(asks)),
            tool("a"),
            tool("b"),
            tool("c"),
            Message::Assistant(Arc::new(says)),
            Message::User("".into()),
        ]
    }

    fn reference(system: Option<&str>, tools: &Value) -> Value {
        let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "read", "arguments": arguments}});
        let tool = |id: &str| json!({"role": "tool", "content": "\0\u{2028}", "tool_call_id": id});
        let calls = [call("a", r#"{"p":"ü\n"}"#), call("b", "{}"), call("c", "{}")];
        let mut messages = vec![
            json!({"role": "user", "content": "Say \"hi\" \\ \u{7f} \u{1} ß"}),
            json!({"role": "assistant", "content": null, "tool_calls": calls}),
            tool("a"),
            tool("b"),
            tool("c"),
            json!({"role": "assistant", "content": "Done \u{1f600}"}),
            json!({"role": "user", "content": ""}),
        ];
        messages.splice(0..0, system.map(|system| json!({"role": "system", "content": system})));
        let mut body = json!({"model": "m \"1\"", "max_tokens": 7, "stream": true,
            "stream_options": {"include_usage": true}, "tools": tools, "messages": messages});
        if tools.is_null() {
            body.as_object_mut().unwrap().remove("tools");
        }
        body
    }

    fn assemble(max_tokens: MaxTokens, system: &str, tools: &[ToolSpec], pieces: Vec<Bytes>) -> Vec<u8> {
        let request = ModelRequest {
            credential: CredentialId::default(),
            call: CallId { run: RunId::from_bits(1), iteration: 1, n: 0 },
            model: "m \"1\"".into(),
            max_tokens: 7,
            head: ChatEncoder.head(system, tools),
            messages: Segments { pieces },
        };
        body(max_tokens, request).concat()
    }

    /// However the encoded messages are put into pieces, the body is the reference.
    fn check(system: &str, tools: &[ToolSpec], reference: &Value) {
        let each: Vec<Bytes> = conversation().iter().map(|message| ChatEncoder.message(message)).collect();
        let one = vec![Bytes::from(each.concat())];
        let gaps = each.iter().flat_map(|piece| [Bytes::new(), piece.clone()]).collect();
        for pieces in [each, one, gaps] {
            let body = assemble(MaxTokens::Plain, system, tools, pieces);
            let found: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(&found, reference);
            // The order of keys is that of the reference, too.
            assert_eq!(found.to_string(), reference.to_string());
        }
    }

    #[test]
    fn a_body_is_what_its_parts_say() {
        let spec = |name: &str| json!({"type": "function", "function": tool(name)});
        check("", &[], &reference(None, &Value::Null));
        check("Be \"kind\".\nü", &[], &reference(Some("Be \"kind\".\nü"), &Value::Null));
        let tools = json!([spec("a"), spec("b"), spec("c")]);
        check("", &[tool("b"), tool("c"), tool("a")], &reference(None, &tools));
        check("s", &[tool("c"), tool("a"), tool("b")], &reference(Some("s"), &tools));
    }

    #[test]
    fn a_body_without_messages_is_json() {
        for system in ["", "s"] {
            let body = assemble(MaxTokens::Plain, system, &[], Vec::new());
            assert!(serde_json::from_slice::<Value>(&body).is_ok());
        }
    }

    #[test]
    fn the_limit_has_the_vendors_name() {
        let body = assemble(MaxTokens::Completion, "", &[], Vec::new());
        let found: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&found["max_completion_tokens"], found.get("max_tokens")), (&json!(7), None));
    }
}
