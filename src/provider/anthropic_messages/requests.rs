//! The requests that the encoder writes.
#![allow(clippy::needless_pass_by_value)] // `json!` makes values, and references to them would only be noise

use std::{collections::BTreeMap, sync::Arc};

use hermod_actors::{
    model::{
        Artifact, AssistantMessage, CallId, Content, Image, ImageFormat, Message, ModelDeadlines, Opaque,
        Origin, RunId, SessionId, Thinking, ThinkingRequest, ThinkingStyle, ToolCall, ToolSpec,
    },
    port::{Encoder, ModelRequest, Segments},
};
use serde_json::{Value, json};

use super::{AnthropicMessages, MessagesEncoder, NAME};
use crate::provider::{
    Cache, Dialect,
    wire::{WireFormat, Writing},
};

fn origin(model: &str) -> Arc<Origin> {
    Arc::new(Origin { provider: "p".into(), wire: NAME.into(), model: model.into() })
}

fn encoder(sees: bool, cache: Cache) -> MessagesEncoder {
    MessagesEncoder::new(Writing { origin: origin("m"), sees }, cache)
}

fn request(system: &str, tools: &[ToolSpec], messages: Segments, cache: Cache) -> ModelRequest {
    ModelRequest {
        call: CallId { run: RunId::from_bits(1), iteration: 1, n: 0 },
        session: SessionId::from_bits(1),
        model: "m \"1\"".into(),
        credential: hermod_actors::model::CredentialId::default(),
        max_tokens: 8_192,
        thinking: None,
        deadlines: ModelDeadlines::default(),
        head: encoder(true, cache).head(system, tools),
        messages,
        pictures: BTreeMap::from([("p".to_owned(), "Base64".into())]),
    }
}

fn text_of(request: ModelRequest, cache: Cache) -> String {
    let wire = AnthropicMessages::of(&Dialect { host: String::new(), cache });
    String::from_utf8(wire.body(request).concat()).unwrap()
}

fn body(request: ModelRequest, cache: Cache) -> Value {
    serde_json::from_str(&text_of(request, cache)).unwrap()
}

fn encode(encoder: &MessagesEncoder, messages: &[Message]) -> Segments {
    let mut to = Segments::default();
    encoder.messages(messages, &mut to);
    to
}

/// The messages are written so, whole and one group after another.
fn check_messages(encoder: &MessagesEncoder, messages: &[Message], expected: Value) {
    let whole = text_of(request("", &[], encode(encoder, messages), Cache::Off), Cache::Off);
    let found: Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(found["messages"], expected, "{:#}", found["messages"]);
    let mut grown = Segments::default();
    let is_result = |message: &Message| matches!(message, Message::Tool { .. });
    for group in messages.chunk_by(|_, next| is_result(next)) {
        encoder.messages(group, &mut grown);
    }
    assert_eq!(text_of(request("", &[], grown, Cache::Off), Cache::Off), whole);
}

fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), name: "look".into(), arguments: arguments.into() }
}

fn answer(text: &str, calls: &[ToolCall]) -> AssistantMessage {
    AssistantMessage { text: text.into(), calls: calls.to_vec(), ..AssistantMessage::default() }
}

fn said(answer: AssistantMessage) -> Message {
    Message::Assistant(Arc::new(answer))
}

/// The answer with what `model` has made of it.
fn with_parts(answer: AssistantMessage, model: &str, parts: Value) -> Message {
    let parts = parts.as_array().unwrap().clone();
    said(AssistantMessage { opaque: Some(Arc::new(Opaque { origin: origin(model), parts })), ..answer })
}

fn result(id: &str, content: impl Into<Content>) -> Message {
    Message::Tool { call: id.into(), name: "look".into(), content: content.into() }
}

fn picture() -> Image {
    Image { format: ImageFormat::Png, artifact: Artifact { handle: "p".into(), bytes: 9 } }
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn shown() -> Value {
    json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Base64"}})
}

fn asked(id: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": "look", "input": input})
}

fn returned(id: &str, content: Value) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": content})
}

fn message(role: &str, content: Value) -> Value {
    json!({"role": role, "content": content})
}

fn tool(name: &str, parameters: Value) -> ToolSpec {
    ToolSpec { name: name.into(), description: "It \"does\".".into(), parameters }
}

fn thought(text: &str) -> Value {
    json!({"type": "thinking", "thinking": text, "signature": "s"})
}

#[test]
fn a_request_goes_where_the_vendor_takes_it() {
    let wire = AnthropicMessages::default();
    let (name, before) = wire.credential();
    assert_eq!((wire.path(), name.as_str(), before), (&["messages"][..], "x-api-key", ""));
    let headers: Vec<_> = wire.headers().iter().map(|(name, value)| (name.as_str(), *value)).collect();
    assert_eq!(headers, [("anthropic-version", "2023-06-01")]);
}

#[test]
fn messages_are_lists_of_blocks() {
    let calls = [call("toolu_a", r#"{"p":"ü\n"}"#), call("toolu_b", "{\"p\":"), call("toolu_c", "")];
    let noted = Content { note: Some("<n>".into()), ..Content::new("\0x\u{2028}", [picture()]) };
    let messages = [
        Message::User(Content { note: Some("And?".into()), ..Content::new("Say \"hi\" ß", [picture()]) }),
        said(answer("Look.", &calls)),
        result("toolu_a", "A"),
        result("toolu_b", noted),
        result("toolu_c", " \n"),
        said(answer("Done \u{1f600}", &[])),
        Message::User("".into()),
        said(answer("\n", &[])),
        Message::User(Content::new("", [picture()])),
    ];
    let expected = json!([
        message("user", json!([text("Say \"hi\" ß"), shown(), text("And?")])),
        message(
            "assistant",
            json!([
                text("Look."),
                asked("toolu_a", json!({"p": "ü\n"})),
                asked("toolu_b", json!({})),
                asked("toolu_c", json!({})),
            ])
        ),
        message(
            "user",
            json!([
                returned("toolu_a", json!([text("A")])),
                returned("toolu_b", json!([text("\0x\u{2028}"), shown()])),
                returned("toolu_c", json!([text("[No text.]")])),
                text("<n>"),
            ])
        ),
        message("assistant", json!([text("Done \u{1f600}")])),
        message("user", json!([text("[No text.]")])),
        message("assistant", json!([text("[No text.]")])),
        message("user", json!([shown()])),
    ]);
    check_messages(&encoder(true, Cache::Off), &messages, expected);
    let unseen = text("[A picture is here (image/png, 9 bytes); you cannot see it.]");
    let only = [Message::User(Content::new("a", [picture()]))];
    check_messages(&encoder(false, Cache::Off), &only, json!([message("user", json!([text("a"), unseen]))]));
}

#[test]
fn arguments_stand_as_they_came_if_they_are_an_object() {
    let check = |arguments: &str, expected: &str| {
        let messages = [said(answer("", &[call("toolu_a", arguments)]))];
        let body =
            text_of(request("", &[], encode(&encoder(true, Cache::Off), &messages), Cache::Off), Cache::Off);
        assert!(body.contains(&format!(r#""input":{expected}}}]"#)), "{body}");
    };
    check(" {\"b\": 1.10,\"a\":1e2} ", "{\"b\": 1.10,\"a\":1e2}");
    for none in ["[1]", "\"{}\"", "{\"a\":1}}", "null", "{\"a\":\"\\ud800\"}", &"{\"a\":".repeat(200)] {
        check(none, "{}");
    }
}

#[test]
fn ids_fit_and_never_come_twice() {
    let ids = ["call_0", "functions.look:0", "", "toolu_1", "toolu_1|fc_2", &"x".repeat(99)];
    let round = |_| {
        let asks = said(answer("", &ids.map(|id| call(id, "{}"))));
        std::iter::once(asks).chain(ids.map(|id| result(id, "r")))
    };
    // Two answers in a row with the same ids, as vendors make them that number from 0.
    let messages: Vec<Message> = (0..2).flat_map(round).collect();
    let body = body(request("", &[], encode(&encoder(true, Cache::Off), &messages), Cache::Off), Cache::Off);
    let found = |at: usize, field: &str| -> Vec<String> {
        let blocks = body["messages"][at]["content"].as_array().unwrap();
        blocks.iter().map(|block| block[field].as_str().unwrap().to_owned()).collect()
    };
    let mut all = Vec::new();
    for at in [0, 2] {
        assert_eq!(found(at, "id"), found(at + 1, "tool_use_id"));
        all.extend(found(at, "id"));
    }
    for id in &all {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        assert!((1..=64).contains(&id.len()) && id.chars().all(fits), "{id}");
    }
    // The vendor's own ids are its own business.
    all.retain(|id| id != "toolu_1");
    let unique: std::collections::BTreeSet<&String> = all.iter().collect();
    assert_eq!((unique.len(), all.len()), (10, 10));
}

#[test]
fn what_only_its_maker_reads_goes_back_to_it_alone() {
    let calls = [call("toolu_a", "{}"), call("toolu_b", "{}")];
    let place = |bytes: usize| json!({"type": "text", "bytes": bytes});
    let called = json!({"type": "tool_use"});
    let redacted = json!({"type": "redacted_thinking", "data": "r"});
    let parts = json!([thought("x"), place(3), called, redacted, place(1), thought("")]);
    let check = |answer: AssistantMessage, model: &str, expected: Value| {
        let messages = [with_parts(answer, model, parts.clone())];
        check_messages(&encoder(true, Cache::Off), &messages, json!([message("assistant", expected)]));
    };
    let (a, b) = (asked("toolu_a", json!({})), asked("toolu_b", json!({})));
    let whole = json!([thought("x"), text("aü"), a, redacted, text("b"), thought(""), text("c"), b]);
    check(answer("aübc", &calls), "m", whole);
    check(answer("aübc", &calls), "another", json!([text("aübc"), a, b]));
    // What was changed since: calls that were never run, and a text of other length, also within a character.
    check(
        answer("aüb", &[]),
        "m",
        json!([thought("x"), text("aü"), redacted, text("b"), thought(""), text("[No text.]"),]),
    );
    let early = json!([thought("x"), text("aa€"), a, redacted, thought(""), b]);
    check(answer("aa€", &calls), "m", early);
}

#[test]
fn a_turn_that_began_without_thinking_goes_on_without() {
    let asks = |id: &str| answer("", &[call(id, "{}")]);
    let own = || [with_parts(asks("toolu_a"), "m", json!([thought("x")])), result("toolu_a", "r")];
    let bare = || [said(asks("toolu_b")), result("toolu_b", "r")];
    let user = || [Message::User("hi".into())];
    let final_answer = || [said(answer("done", &[]))];
    let check = |groups: &[&[Message]], expected: bool| {
        let mut messages = Segments::default();
        groups.iter().for_each(|group| encoder(true, Cache::Off).messages(group, &mut messages));
        assert_eq!(messages.is_foreign(), expected);
        for (style, thinks) in [(ThinkingStyle::Budget, !expected), (ThinkingStyle::Adaptive, true)] {
            let thinking = Some(ThinkingRequest { level: Thinking::High, style });
            let request = ModelRequest { thinking, ..request("", &[], messages.clone(), Cache::Off) };
            assert_eq!(body(request, Cache::Off).get("thinking").is_some(), thinks, "{style:?}");
        }
    };
    check(&[&user()], false);
    check(&[&user(), &own()], false);
    // A model that thinks once a turn.
    check(&[&user(), &own(), &bare()], false);
    check(&[&user(), &bare()], true);
    check(&[&user(), &bare(), &own()], true);
    check(&[&user(), &bare(), &final_answer(), &user()], false);
    check(&[&[&user()[..], &bare(), &final_answer(), &user(), &own()].concat()], false);
}

#[test]
fn thinking_never_takes_more_than_is_reserved() {
    use ThinkingStyle::{Adaptive, Budget, Effort};
    let check = |style, level, max_tokens, expected: Value| {
        let request = request("", &[], Segments::default(), Cache::Off);
        let thinking = Some(ThinkingRequest { level, style });
        let found = body(ModelRequest { thinking, max_tokens, ..request }, Cache::Off);
        assert_eq!(found["max_tokens"], max_tokens);
        let fields = ["thinking", "output_config"].map(|field| found.get(field).cloned().unwrap_or_default());
        assert_eq!(json!(fields), expected, "{style:?} {level:?} {max_tokens}");
    };
    let budget = |tokens: u64| json!([{"type": "enabled", "budget_tokens": tokens}, null]);
    check(Budget, Thinking::Off, 64_000, json!([null, null]));
    check(Budget, Thinking::Minimal, 64_000, budget(1_024));
    check(Budget, Thinking::Low, 64_000, budget(4_096));
    check(Budget, Thinking::Medium, 64_000, budget(10_000));
    check(Budget, Thinking::High, 64_000, budget(24_000));
    check(Budget, Thinking::High, 16_000, budget(12_000));
    check(Budget, Thinking::High, 1_025, budget(1_024));
    check(Budget, Thinking::High, 1_024, json!([null, null]));
    check(Budget, Thinking::High, 1, json!([null, null]));
    check(Adaptive, Thinking::Off, 9, json!([null, null]));
    check(Adaptive, Thinking::Minimal, 9, json!([{"type": "adaptive"}, {"effort": "low"}]));
    check(Adaptive, Thinking::Medium, 9, json!([{"type": "adaptive"}, {"effort": "medium"}]));
    check(Effort, Thinking::High, 9, json!([null, {"effort": "high"}]));
    check(ThinkingStyle::None, Thinking::High, 9, json!([null, null]));
}

#[test]
fn tools_are_sorted_and_schemas_are_of_objects() {
    let plain = json!({"type": "object", "properties": {"z": {"type": "string"}, "a": {}}});
    let check = |parameters: Value, expected: Value| {
        let tools = [tool("b", parameters), tool("a.b", plain.clone())];
        let found = body(request("", &tools, Segments::default(), Cache::Off), Cache::Off);
        let (first, second) = (&found["tools"][0], &found["tools"][1]);
        assert_eq!((first["name"].as_str().unwrap().split_at(4).0, &second["name"]), ("a_b_", &json!("b")));
        assert_eq!((&first["input_schema"], &second["input_schema"]), (&plain, &expected));
    };
    check(plain.clone(), plain.clone());
    check(json!(null), json!({"type": "object", "properties": {}}));
    check(json!({"type": "dict", "properties": {}}), json!({"type": "object", "properties": {}}));
    let one_of =
        json!([{"properties": {"x": {"const": 1}}}, {"properties": {"x": {"const": 2}, "y": {}}}, true]);
    let all = json!({"properties": {"x": {"const": 1}, "y": {}}, "title": "t", "type": "object"});
    check(json!({"oneOf": one_of, "title": "t"}), all);
    let names = encoder(true, Cache::Off).head("", &[tool("a.b", plain.clone())]).names;
    assert_eq!(names.values().collect::<Vec<_>>(), ["a.b"]);
}

/// The texts of the blocks with a marker, and where in the request they are.
fn marked(value: &Value, to: &mut Vec<String>) {
    match value {
        Value::Object(fields) if fields.contains_key("cache_control") => to.push(value.to_string()),
        Value::Object(fields) => fields.values().for_each(|value| marked(value, to)),
        Value::Array(list) => list.iter().for_each(|value| marked(value, to)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_system_prompt_and_the_last_three_messages_are_marked() {
    let check = |cache, (system, tools): (&str, &[ToolSpec]), messages: &[Message], expected: &[&str]| {
        let messages = encode(&encoder(true, cache), messages);
        let mut found = Vec::new();
        marked(&body(request(system, tools, messages, cache), cache), &mut found);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found} {expected}");
        }
    };
    let tools = [tool("b", json!({})), tool("a", json!({}))];
    let user = |text: &str| Message::User(text.into());
    let note = Content { note: Some("noted".into()), ..Content::from("r") };
    let messages = [
        user("one"),
        said(answer("two", &[])),
        Message::User(Content::new("three", [picture()])),
        said(answer("four", &[call("toolu_a", "{}"), call("toolu_b", "{}")])),
        result("toolu_a", "r"),
        result("toolu_b", note),
    ];
    check(Cache::Short, ("sys", &tools), &[], &["sys"]);
    check(Cache::Short, (" ", &tools), &[], &["\"b\""]);
    check(Cache::Short, ("", &[]), &[], &[]);
    check(Cache::Short, ("sys", &[]), &messages[..1], &["sys", "one"]);
    check(Cache::Long, ("sys", &[]), &messages, &["\"1h\"", "Base64", "toolu_b", "noted"]);
    check(Cache::Off, ("sys", &tools), &messages, &[]);
    check(Cache::Short, ("", &tools), &messages[..5], &["\"b\"", "Base64", "toolu_b", "toolu_a"]);
    // An answer that ends in a block of the vendor's cannot be marked.
    let kept = json!([{"type": "web_search_tool_result", "tool_use_id": "x", "content": []}]);
    let ends_so = [user("one"), with_parts(answer("", &[]), "m", kept), user("three")];
    check(Cache::Short, ("", &[]), &ends_so, &["one", "three"]);
}

#[test]
fn fifty_requests_begin_as_the_ones_before() {
    const MARKER: &str = r#","cache_control":{"type":"ephemeral"}"#;
    let tools = [tool("b.c", json!({"type": "object"})), tool("a", json!({"type": "object"}))];
    let encoder = encoder(true, Cache::Short);
    let mut messages = Segments::default();
    let mut before: Option<(String, Vec<usize>)> = None;
    for n in 0..50 {
        let id = format!("call_{}", n % 3);
        let mut group = match n % 5 {
            0 => vec![Message::User(Content::new(format!("task {n}"), [picture()]))],
            1 => vec![with_parts(answer("ab", &[call(&id, "{\"x\": 1}")]), "m", json!([thought("x")]))],
            4 => vec![said(answer("done", &[]))],
            _ => vec![said(answer("", &[call(&id, "{")]))],
        };
        if (1..4).contains(&(n % 5)) {
            group.push(result(&id, Content { note: Some("n".into()), ..Content::new("r", [picture()]) }));
        }
        encoder.messages(&group, &mut messages);
        let body = text_of(request("sys", &tools, messages.clone(), Cache::Short), Cache::Short);
        let markers: Vec<usize> = body.match_indices(MARKER).map(|(at, _)| at).collect();
        assert!(markers.len() <= 4, "the vendor takes four markers");
        let bare = body.replace(MARKER, "");
        // The places of the markers in the request without them.
        let places: Vec<usize> = markers.iter().enumerate().map(|(n, at)| at - n * MARKER.len()).collect();
        if let Some((earlier, marked)) = &before {
            let same = earlier.strip_suffix("]}").unwrap();
            assert!(bare.starts_with(same), "request {n} begins otherwise");
            let last = marked.last().unwrap();
            assert!(places.contains(last), "request {n} does not mark what the one before has cached");
        }
        before = Some((bare, places));
    }
}
