//! Tests of how a request is encoded for the Responses API.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use hermod_actors::{
    model::{
        AnswerOrigin, Artifact, AssistantMessage, CallId, Image, ImageFormat, Message, MessageContent,
        ModelDeadlines, OpaqueState, RunId, SessionId, ThinkingLevel, ThinkingRequest, ThinkingStyle,
        ToolCall, ToolSpec,
    },
    port::{Encoder as _, MessageBuffer, ModelRequest, ToolChoice},
};
use serde_json::{Value, json};

use super::events::origin;
use crate::provider::{
    codex_responses::{ResponsesEncoder, body},
    wire::EncodeTarget,
};

pub(super) fn encoder(origin: Arc<AnswerOrigin>, sees: bool) -> ResponsesEncoder {
    ResponsesEncoder::new(EncodeTarget { origin, has_vision: sees })
}

pub(super) fn input(encoder: &ResponsesEncoder, messages: &[Message]) -> Vec<Value> {
    let mut segments = MessageBuffer::default();
    encoder.messages(messages, &mut segments);
    let request = request(encoder, "", &[], segments);
    let body: Value = serde_json::from_slice(&body::body(true, request).concat()).unwrap();
    body["input"].as_array().unwrap().clone()
}

fn request(
    encoder: &ResponsesEncoder,
    system: &str,
    tools: &[ToolSpec],
    messages: MessageBuffer,
) -> ModelRequest {
    ModelRequest {
        call: CallId { run: RunId::from_bits(1), iteration: 1, n: 0 },
        session: SessionId::from_bits(1),
        model: "m \"1\"".into(),
        credential: hermod_actors::model::CredentialId::default(),
        max_tokens: 700,
        thinking: None,
        deadlines: ModelDeadlines::default(),
        head: encoder.head(system, tools),
        tool_choice: ToolChoice::Auto,
        messages,
        images: BTreeMap::from([("p".to_owned(), Bytes::from_static(b"iVBORw0="))]),
    }
}

fn tool(name: &str) -> ToolSpec {
    let parameters = json!({"type": "object", "properties": {"z": {"type": "string"}, "a": {}}});
    ToolSpec { name: name.into(), description: "It \"does\".".into(), parameters }
}

pub(super) fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), name: "read".into(), arguments: arguments.into() }
}

fn says(text: &str, calls: Vec<ToolCall>) -> Message {
    Message::Assistant(Arc::new(AssistantMessage { text: text.into(), calls, ..AssistantMessage::default() }))
}

fn result(id: &str, content: impl Into<MessageContent>) -> Message {
    Message::Tool { call: id.into(), name: "read".into(), content: content.into() }
}

fn picture() -> Image {
    Image::new(ImageFormat::Png, Artifact { handle: "p".into(), bytes: 5, sha256: None })
}

fn conversation() -> Vec<Message> {
    vec![
        Message::User("Say \"hi\" \\ \u{7f} \u{1} ß".into()),
        says("", vec![call("a", r#"{"p":"ü\n"}"#), call("b", r#"{"p":"#), call("c", "")]),
        result("a", "\0\u{2028}"),
        result("b", "2"),
        result("c", ""),
        says("", vec![]),
        says("Done \u{1f600}", vec![]),
        Message::User("".into()),
    ]
}

fn reference() -> Value {
    let said = |role: &str, content: &str| json!({"type": "message", "role": role, "content": content});
    let place = format!(",{}", said("user", "Say \"hi\" \\ \u{7f} \u{1} ß")).len();
    let call = |id: &str, arguments: &str| json!({"type": "function_call", "call_id": format!("{id}_{place}"), "name": "read", "arguments": arguments});
    let result = |id: &str, output: &str| json!({"type": "function_call_output", "call_id": format!("{id}_{place}"), "output": output});
    json!([
        said("user", "Say \"hi\" \\ \u{7f} \u{1} ß"),
        call("a", r#"{"p":"ü\n"}"#),
        call("b", "{}"),
        call("c", "{}"),
        result("a", "\0\u{2028}"),
        result("b", "2"),
        result("c", ""),
        said("assistant", "Done \u{1f600}"),
        said("user", ""),
    ])
}

/// Checks that the body equals the reference with the same order of keys, also for messages that are encoded one by
/// one.
fn check(system: Option<&str>, tools: &[ToolSpec], reference_tools: &Value) {
    let mut reference = json!({"model": "m \"1\"", "max_output_tokens": 700, "stream": true, "store": false,
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": SessionId::from_bits(1).to_string(),
        "instructions": system, "tools": reference_tools, "input": reference()});
    let fields = reference.as_object_mut().unwrap();
    fields.retain(|_, value| !value.is_null());
    let encoder = encoder(origin(), true);
    let all = conversation();
    for parts in [vec![&all[..]], vec![&all[..1], &all[1..5], &all[5..6], &all[6..]]] {
        let mut messages = MessageBuffer::default();
        parts.into_iter().for_each(|part| encoder.messages(part, &mut messages));
        let request = request(&encoder, system.unwrap_or_default(), tools, messages);
        let body = body::body(true, request).concat();
        assert_eq!(String::from_utf8(body).unwrap(), reference.to_string());
    }
}

#[test]
fn a_body_is_what_its_parts_say() {
    let spec = |name: &str| {
        let ToolSpec { name, description, parameters } = tool(name);
        json!({"type": "function", "name": name, "description": description, "parameters": parameters, "strict": false})
    };
    check(None, &[], &Value::Null);
    check(Some("Be \"kind\".\nü"), &[], &Value::Null);
    let bare = ToolSpec { parameters: Value::Null, ..tool("d") };
    let mut fit = spec("d");
    fit["parameters"] = json!({"type": "object", "properties": {}});
    check(None, &[bare], &json!([fit]));
    check(Some("s"), &[tool("b"), tool("c"), tool("a")], &json!([spec("a"), spec("b"), spec("c")]));
}

#[test]
fn a_body_without_messages_is_json() {
    assert_eq!(input(&encoder(origin(), true), &[]), [] as [Value; 0]);
    assert_eq!(input(&encoder(origin(), true), &[says("", vec![])]), [] as [Value; 0]);
}

#[test]
fn fields_that_a_server_refuses_are_left_out() {
    let encoder = encoder(origin(), true);
    let fields = |limit, change: fn(&mut ModelRequest)| -> Value {
        let mut request = request(&encoder, "", &[], MessageBuffer::default());
        change(&mut request);
        serde_json::from_slice(&body::body(limit, request).concat()).unwrap()
    };
    assert_eq!(fields(true, |request| request.max_tokens = 3)["max_output_tokens"], 16);
    assert_eq!(fields(false, |_| ()).get("max_output_tokens"), None);
    assert_eq!(fields(true, |request| request.model = "gpt-4o".into()).get("include"), None);
    let high = |request: &mut ModelRequest| {
        request.thinking = Some(ThinkingRequest { level: ThinkingLevel::High, style: ThinkingStyle::Effort });
    };
    assert_eq!(fields(true, high)["reasoning"], json!({"effort": "high", "summary": "auto"}));
}

#[test]
fn names_and_ids_that_the_vendor_refuses_are_changed() {
    let encoder = encoder(origin(), true);
    let head = encoder.head("", &[tool("math.sin")]);
    let (wire, own) = head.renamed_tools.iter().next().unwrap();
    assert_eq!(own, "math.sin");
    let asks = ToolCall { name: "math.sin".into(), ..call(&"x".repeat(65), "{}") };
    let items = input(&encoder, &[says("", vec![asks]), result(&"x".repeat(65), "1")]);
    assert_eq!(items[0]["name"], wire.as_str());
    assert_eq!(items[0]["call_id"], items[1]["call_id"]);
    assert!(items[0]["call_id"].as_str().unwrap().len() <= 64);
    let fits = "functions.read:0";
    assert_eq!(input(&encoder, &[result(fits, "1")])[0]["call_id"], fits);
    // The ids that `make_distinct` makes, in two answers.
    let asks = || [says("", vec![call("call_0", "{}")]), result("call_0", "1")];
    let items = input(&encoder, &[asks(), asks()].concat());
    let ids: Vec<_> = items.iter().map(|item| item["call_id"].as_str().unwrap()).collect();
    assert_eq!((ids[0], ids[2]), (ids[1], ids[3]));
    assert_ne!(ids[0], ids[2]);
}

#[test]
fn pictures_stand_where_they_were_shown() {
    let url = "data:image/png;base64,iVBORw0=";
    let (text, image) = (
        |text: &str| json!({"type": "input_text", "text": text}),
        json!({"type": "input_image", "detail": "auto", "image_url": url}),
    );
    let noted =
        MessageContent { note: Some(" (late)".into()), ..MessageContent::new("see", [picture(), picture()]) };
    let bare = MessageContent::new("", [picture()]);
    let messages = [Message::User(bare.clone()), says("", vec![call("a", "{}")]), result("a", noted.clone())];
    let seen = input(&encoder(origin(), true), &messages);
    assert_eq!(seen[0]["content"], json!([image]));
    assert_eq!(seen[2]["output"], json!([text("see"), image, image, text(" (late)")]));
    let unseen = input(&encoder(origin(), false), &messages);
    let words = "[A picture is here (image/png, 5 bytes); you cannot see it.]";
    assert_eq!(unseen[0]["content"], words);
    assert_eq!(unseen[2]["output"], format!("see\n{words}\n{words} (late)"));
    let plain = MessageContent { images: [].into(), ..noted };
    assert_eq!(input(&encoder(origin(), true), &[result("a", plain)])[0]["output"], "see (late)");
}

/// Checks the items of an answer with opaque parts. They are written in short: `r1` reasoning, `t:…` text, `c:…` a
/// call.
fn check_order(text: &str, calls: &[&str], parts: Value, expected: &[&str]) {
    let opaque = OpaqueState::new(origin(), parts.as_array().unwrap().clone()).unwrap();
    let calls = calls.iter().map(|id| call(id, "{}")).collect();
    let answer = AssistantMessage {
        text: text.into(),
        calls,
        opaque: Some(Arc::new(opaque)),
        ..AssistantMessage::default()
    };
    let items = input(&encoder(origin(), true), &[Message::Assistant(Arc::new(answer))]);
    let short = |item: &Value| {
        let field = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        match item["type"].as_str().unwrap() {
            "reasoning" => field("id"),
            "message" => format!(
                "{}:{}",
                if item["phase"].is_null() { "t".into() } else { field("phase") },
                field("content")
            ),
            _ => format!("c:{}", field("call_id").strip_suffix("_0").unwrap()),
        }
    };
    assert_eq!(items.iter().map(short).collect::<Vec<_>>(), expected, "{text} {parts}");
}

#[test]
fn reasoning_goes_back_with_what_it_led_to() {
    let r = |id: &str| json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "x"});
    let t = |bytes: usize| json!({"type": "message", "bytes": bytes});
    let c = || json!({"type": "function_call"});
    let usual = json!([r("r1"), t(2), r("r2"), c(), c()]);
    check_order("ab", &["a", "b"], usual.clone(), &["r1", "t:ab", "r2", "c:a", "c:b"]);
    // Calls were removed or added since.
    check_order("ab", &[], usual.clone(), &["r1", "t:ab"]);
    check_order("ab", &["a"], usual.clone(), &["r1", "t:ab", "c:a"]);
    check_order("ab", &["a", "b", "d"], usual.clone(), &["r1", "t:ab", "c:a", "c:b", "c:d"]);
    // The text was removed or replaced since.
    check_order("", &["a", "b"], usual.clone(), &["r2", "c:a", "c:b"]);
    check_order("other", &["a", "b"], usual, &["r1", "t:other", "r2", "c:a", "c:b"]);
    check_order("ab", &["a"], json!([r("r1"), c()]), &["t:ab", "r1", "c:a"]);
    // Several texts, each at its position; the whole text at the last position if the lengths do not fit.
    let p = |bytes: usize, phase: &str| json!({"type": "message", "bytes": bytes, "phase": phase});
    let two = json!([p(1, "commentary"), r("r1"), p(2, "final_answer")]);
    check_order("abc", &[], two.clone(), &["commentary:a", "r1", "final_answer:bc"]);
    check_order("äbc", &[], two.clone(), &["r1", "final_answer:äbc"]);
    check_order("abcd", &[], two, &["r1", "final_answer:abcd"]);
    // No item is between calls and their results.
    check_order(
        "ab",
        &["a", "b"],
        json!([r("r1"), c(), r("r2"), t(2), r("r3"), c()]),
        &["t:ab", "r1", "c:a", "r3", "c:b"],
    );
    // Reasoning without a next item, and parts of an unknown type.
    check_order("", &[], json!([r("r1")]), &[]);
    check_order("ab", &[], json!([r("r1"), {"type": "new"}, t(2), 7, r("r2")]), &["t:ab"]);
}

#[test]
fn what_others_have_made_is_not_sent() {
    let parts =
        vec![json!({"type": "reasoning", "id": "r", "summary": []}), json!({"type": "message", "bytes": 1})];
    for change in [
        |origin: &mut AnswerOrigin| origin.provider = "q".into(),
        |origin: &mut AnswerOrigin| origin.wire = "anthropic_messages".into(),
        |origin: &mut AnswerOrigin| origin.model = "n".into(),
    ] {
        let mut other = (*origin()).clone();
        change(&mut other);
        let opaque = Some(Arc::new(OpaqueState::new(other.into(), parts.clone()).unwrap()));
        let answer = AssistantMessage {
            text: "a".into(),
            reasoning: "why".into(),
            opaque,
            ..AssistantMessage::default()
        };
        let items = input(&encoder(origin(), true), &[Message::Assistant(Arc::new(answer))]);
        assert_eq!(items, [json!({"type": "message", "role": "assistant", "content": "a"})]);
    }
}

#[test]
fn calls_are_forbidden_where_there_are_tools() {
    let choice = |tools: &[ToolSpec], tool_choice| {
        let request = request(&encoder(origin(), true), "", tools, MessageBuffer::default());
        let request = ModelRequest { tool_choice, ..request };
        let body: Value = serde_json::from_slice(&body::body(true, request).concat()).unwrap();
        body.get("tool_choice").cloned()
    };
    assert_eq!(choice(&[tool("t")], ToolChoice::NoCalls), Some(json!("none")));
    assert_eq!(choice(&[tool("t")], ToolChoice::Auto), None);
    assert_eq!(choice(&[], ToolChoice::NoCalls), None, "refused without tools");
}
