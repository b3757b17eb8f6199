//! Tests of how a request is encoded for the Chat Completions API.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use hermod_actors::{
    model::{
        AnswerOrigin, Artifact, AssistantMessage, CallId, CredentialId, Image, ImageFormat, Message,
        MessageContent, ModelDeadlines, OpaqueState, RunId, SessionId, ThinkingLevel, ThinkingRequest,
        ThinkingStyle, ToolCall, ToolSpec,
    },
    port::{Encoder as _, MessageBuffer, ModelRequest, ToolChoice},
};
use serde_json::{Value, json};

use super::{
    ChatDialect,
    encode::{ChatEncoder, body},
};
use crate::provider::wire::EncodeTarget;

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

fn origin(model: &str) -> Arc<AnswerOrigin> {
    Arc::new(AnswerOrigin { provider: "p".into(), wire: "chat_completions".into(), model: model.into() })
}

fn encoder() -> ChatEncoder {
    ChatEncoder::new(ChatDialect::Any, EncodeTarget { origin: origin("m"), has_vision: true })
}

fn assemble(vendor: ChatDialect, system: &str, tools: &[ToolSpec], messages: MessageBuffer) -> Vec<u8> {
    let head = encoder().head(system, tools);
    let request = ModelRequest { model: "m \"1\"".into(), head, messages, ..request() };
    body(vendor, request).concat()
}

/// Checks that the body equals the reference, also for messages that are encoded one by one.
fn check(system: &str, tools: &[ToolSpec], reference: &Value) {
    let all = conversation();
    for parts in [vec![&all[..]], vec![&all[..1], &all[1..5], &all[5..]]] {
        let mut messages = MessageBuffer::default();
        parts.into_iter().for_each(|part| encoder().messages(part, &mut messages));
        let body = assemble(ChatDialect::Any, system, tools, messages);
        let found: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(&found, reference);
        // The order of keys equals that of the reference, too.
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
        let body = assemble(ChatDialect::Any, system, &[], MessageBuffer::default());
        assert!(serde_json::from_slice::<Value>(&body).is_ok());
    }
}

#[test]
fn the_limit_has_the_vendors_name() {
    let check = |host: &str, field: &str| {
        let body = assemble(ChatDialect::of(host), "", &[], MessageBuffer::default());
        let found: Value = serde_json::from_slice(&body).unwrap();
        let names = ["max_completion_tokens", "max_tokens"];
        assert_eq!(found[field], 7, "{host}");
        assert_eq!(names.iter().filter(|name| found.get(**name).is_some()).count(), 1, "{host}");
    };
    for host in ["api.openai.com", "eu.api.openai.com", "my.openai.azure.com"] {
        check(host, "max_completion_tokens");
    }
    for host in ["", "notapi.openai.com", "api.mistral.ai", "localhost"] {
        check(host, "max_tokens");
    }
}

/// The encoding of these messages.
fn written(messages: &[Message], sees: bool) -> Value {
    written_by(
        &ChatEncoder::new(ChatDialect::Any, EncodeTarget { origin: origin("m"), has_vision: sees }),
        messages,
    )
}

fn written_by(encoder: &ChatEncoder, messages: &[Message]) -> Value {
    let mut segments = MessageBuffer::default();
    encoder.messages(messages, &mut segments);
    let pictures = BTreeMap::from([("p".to_owned(), Bytes::from_static(b"UElD"))]);
    let request = ModelRequest { messages: segments, images: pictures, ..request() };
    let body: Value = serde_json::from_slice(&body(ChatDialect::Any, request).concat()).unwrap();
    body["messages"].clone()
}

fn request() -> ModelRequest {
    ModelRequest {
        call: CallId { run: RunId::from_bits(1), iteration: 1, n: 0 },
        session: SessionId::from_bits(1),
        model: "m".into(),
        credential: CredentialId::default(),
        max_tokens: 7,
        thinking: None,
        deadlines: ModelDeadlines::default(),
        head: encoder().head("", &[]),
        tool_choice: ToolChoice::Auto,
        messages: MessageBuffer::default(),
        images: BTreeMap::new(),
    }
}

fn picture() -> Image {
    Image::new(ImageFormat::Png, Artifact { handle: "p".into(), bytes: 3, sha256: None })
}

fn asks(id: &str, opaque: Option<OpaqueState>) -> Message {
    let calls = vec![ToolCall { id: id.into(), name: "math.sin".into(), arguments: "{}".into() }];
    let (reasoning, opaque) = ("thought".into(), opaque.map(Arc::new));
    Message::Assistant(Arc::new(AssistantMessage { calls, reasoning, opaque, ..AssistantMessage::default() }))
}

fn result(id: &str, content: MessageContent) -> Message {
    Message::Tool { call: id.into(), name: "math.sin".into(), content }
}

#[test]
fn pictures_stand_where_they_belong() {
    let shown = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,UElD"}});
    let user = [Message::User(MessageContent::new("what?", [picture()]))];
    let text = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(written(&user, true), json!([{"role": "user", "content": [text("what?"), shown]}]));
    let told = "[A picture is here (image/png, 3 bytes); you cannot see it.]";
    assert_eq!(written(&user, false), json!([{"role": "user", "content": [text("what?"), text(told)]}]));
    // After all results, because no server accepts images within one.
    let acted = [asks("a", None), result("a", MessageContent::new("r", [picture()]))];
    let behind = json!({"role": "user", "content": [text("[The pictures that the tools returned:]"), shown]});
    let seen = written(&acted, true);
    assert_eq!((seen[1]["content"].clone(), seen[2].clone()), (json!("r"), behind));
    let unseen = written(&acted, false);
    assert_eq!((&unseen[1]["content"], unseen.get(2)), (&json!(format!("r\n{told}")), None));
}

#[test]
fn what_the_runtime_says_stands_behind_a_result() {
    let noted = MessageContent { note: Some(" [note]".into()), ..MessageContent::from("r") };
    assert_eq!(written(&[asks("a", None), result("a", noted)], true)[1]["content"], "r [note]");
}

#[test]
fn reasoning_goes_back_to_its_maker_in_the_field_that_it_came_in() {
    let details = json!([{"type": "reasoning.encrypted", "data": "x"}]);
    let extra = json!({"google": {"thought_signature": "s"}});
    let parts = vec![
        json!({"field": "reasoning_content"}),
        json!({"reasoning_details": details}),
        json!({"call": 0, "extra_content": extra}),
    ];
    let from = |model: &str| OpaqueState::new(origin(model), parts.clone()).unwrap();
    let message = written(&[asks("a", Some(from("m"))), result("a", "r".into())], true)[0].clone();
    assert_eq!((&message["reasoning_content"], &message["reasoning_details"]), (&json!("thought"), &details));
    assert_eq!(message["tool_calls"][0]["extra_content"], extra);
    let plain = written(&[asks("a", None), result("a", "r".into())], true);
    assert_eq!(written(&[asks("a", Some(from("other"))), result("a", "r".into())], true), plain);
    assert_eq!(plain[0].get("reasoning_content"), None);
}

#[test]
fn a_name_that_no_vendor_takes_is_the_same_in_tools_and_calls() {
    let head = encoder().head("", &[tool("math.sin")]);
    let (name, own) = head.renamed_tools.first_key_value().unwrap();
    assert_eq!(own, "math.sin");
    assert!(String::from_utf8_lossy(&head.bytes).contains(&format!("\"name\":\"{name}\"")));
    let called = written(&[asks("a", None), result("a", "r".into())], true);
    assert_eq!(called[0]["tool_calls"][0]["function"]["name"], **name);
}

#[test]
fn a_level_of_thinking_is_told_as_effort() {
    let thinking = |level| Some(ThinkingRequest { level, style: ThinkingStyle::Effort });
    for (level, effort) in
        [(ThinkingLevel::Off, "none"), (ThinkingLevel::Minimal, "minimal"), (ThinkingLevel::High, "high")]
    {
        let body = body(ChatDialect::Any, ModelRequest { thinking: thinking(level), ..request() }).concat();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["reasoning_effort"], effort);
    }
    for thinking in [None, Some(ThinkingRequest { level: ThinkingLevel::High, style: ThinkingStyle::None })] {
        let body = body(ChatDialect::Any, ModelRequest { thinking, ..request() }).concat();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body.get("reasoning_effort"), None);
    }
}

#[test]
fn the_vendor_itself_is_told_the_session_for_its_cache() {
    let key = |vendor| {
        let body: Value = serde_json::from_slice(&body(vendor, request()).concat()).unwrap();
        body.get("prompt_cache_key").cloned()
    };
    assert_eq!(key(ChatDialect::OpenAi), Some(json!(SessionId::from_bits(1).to_string())));
    assert_eq!(key(ChatDialect::Any), None);
}

#[test]
fn an_id_is_one_that_the_vendor_takes_and_the_same_in_the_result() {
    let check = |host: &str, id: &str, is_right: &dyn Fn(&str) -> bool| {
        let encoder =
            ChatEncoder::new(ChatDialect::of(host), EncodeTarget { origin: origin("m"), has_vision: true });
        let written = written_by(&encoder, &[asks(id, None), result(id, "r".into())]);
        let called = written[0]["tool_calls"][0]["id"].as_str().unwrap();
        assert!(is_right(called), "{host}: {called}");
        assert_eq!(written[1]["tool_call_id"], called);
    };
    let longest = "x".repeat(40);
    for id in ["a", "call_0-B", &longest] {
        check("", id, &|called| called == id);
    }
    for id in ["x".repeat(41), "functions.read:0".into(), "ü".into()] {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_-".contains(&b);
        check("", &id, &|called| called.len() <= 40 && called.bytes().all(is_plain));
    }
    for id in ["a", "toolu_0123456789", "abcdefghi"] {
        check("api.mistral.ai", id, &|called| {
            called.len() == 9 && called.bytes().all(|b| b.is_ascii_alphanumeric())
        });
    }
}

#[test]
fn calls_of_another_model_have_what_a_thinking_model_wants_to_see() {
    let check = |model: &str, opaque: Option<OpaqueState>, expected: [Value; 2]| {
        let encoder =
            ChatEncoder::new(ChatDialect::Any, EncodeTarget { origin: origin(model), has_vision: true });
        let written = written_by(&encoder, &[asks("a", opaque), result("a", "r".into())]);
        let found = [&written[0]["reasoning_content"], &written[0]["tool_calls"][0]["extra_content"]];
        assert_eq!(found.map(Clone::clone), expected, "{model}");
    };
    let skipped = json!({"google": {"thought_signature": "skip_thought_signature_validator"}});
    let other = || Some(OpaqueState::new(origin("other"), vec![json!({"field": "reasoning"})]).unwrap());
    check("moonshotai/Kimi-K2-Thinking", None, [json!("."), Value::Null]);
    check("deepseek-chat", other(), [json!("."), Value::Null]);
    check("gemini-3-pro", other(), [Value::Null, skipped]);
    check("gemini-2.5-pro", other(), [Value::Null, Value::Null]);
    let own = |model: &str, part: Value| Some(OpaqueState::new(origin(model), vec![part]).unwrap());
    let thought = own("kimi-k2", json!({"field": "reasoning_content"}));
    check("kimi-k2", thought, [json!("thought"), Value::Null]);
    let signed = own("gemini-3", json!({"call": 0, "extra_content": 1}));
    check("gemini-3", signed, [Value::Null, json!(1)]);
}

#[test]
fn calls_are_forbidden_where_there_are_tools() {
    let choice = |tools: &[ToolSpec], tool_choice| {
        let request = ModelRequest { head: encoder().head("", tools), tool_choice, ..request() };
        let body: Value = serde_json::from_slice(&body(ChatDialect::Any, request).concat()).unwrap();
        body.get("tool_choice").cloned()
    };
    assert_eq!(choice(&[tool("t")], ToolChoice::NoCalls), Some(json!("none")));
    assert_eq!(choice(&[tool("t")], ToolChoice::Auto), None);
    assert_eq!(choice(&[], ToolChoice::NoCalls), None, "refused without tools");
}
