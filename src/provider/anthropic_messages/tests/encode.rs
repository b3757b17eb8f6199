//! Encoding of messages and tools.

use hermod_actors::{
    model::{Message, MessageContent, ToolSpec},
    port::{Encoder, MessageBuffer, ModelRequest, ToolChoice},
};
use serde_json::{Value, json};

use super::requests::*;
use crate::provider::{CacheTtl, WIRES, anthropic_messages::NAME};

#[test]
fn a_request_goes_where_the_vendor_takes_it() {
    let wire = WIRES.iter().find(|wire| wire.name == NAME).unwrap();
    assert_eq!((wire.path, wire.credential), (&["messages"][..], ("x-api-key", "")));
    assert_eq!(wire.headers, [("anthropic-version", "2023-06-01")]);
}

#[test]
fn messages_are_lists_of_blocks() {
    let calls = [call("toolu_a", r#"{"p":"ü\n"}"#), call("toolu_b", "{\"p\":"), call("toolu_c", "")];
    let noted =
        MessageContent { note: Some("<n>".into()), ..MessageContent::new("\0x\u{2028}", [picture()]) };
    let messages = [
        Message::User(MessageContent {
            note: Some("And?".into()),
            ..MessageContent::new("Say \"hi\" ß", [picture()])
        }),
        said(answer("Look.", &calls)),
        result("toolu_a", "A"),
        result("toolu_b", noted),
        result("toolu_c", " \n"),
        said(answer("Done \u{1f600}", &[])),
        Message::User("".into()),
        said(answer("\n", &[])),
        Message::User(MessageContent::new("", [picture()])),
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
    check_messages(&encoder(true, CacheTtl::Off), &messages, expected);
    let unseen = text("[A picture is here (image/png, 9 bytes); you cannot see it.]");
    let only = [Message::User(MessageContent::new("a", [picture()]))];
    check_messages(
        &encoder(false, CacheTtl::Off),
        &only,
        json!([message("user", json!([text("a"), unseen]))]),
    );
}

#[test]
fn arguments_stand_as_they_came_if_they_are_an_object() {
    let check = |arguments: &str, expected: &str| {
        let messages = [said(answer("", &[call("toolu_a", arguments)]))];
        let body = text_of(
            request("", &[], encode(&encoder(true, CacheTtl::Off), &messages), CacheTtl::Off),
            CacheTtl::Off,
        );
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
    // Two answers with the same call ids, as from vendors that number the calls of each answer from 0.
    let messages: Vec<Message> = (0..2).flat_map(round).collect();
    let body = body(
        request("", &[], encode(&encoder(true, CacheTtl::Off), &messages), CacheTtl::Off),
        CacheTtl::Off,
    );
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
    // The vendor's own ids stay unchanged, so they may repeat.
    all.retain(|id| id != "toolu_1");
    let unique: std::collections::BTreeSet<&String> = all.iter().collect();
    assert_eq!((unique.len(), all.len()), (10, 10));
}

#[test]
fn tools_are_sorted_and_schemas_are_of_objects() {
    let plain = json!({"type": "object", "properties": {"z": {"type": "string"}, "a": {}}});
    let check = |parameters: Value, expected: Value| {
        let tools = [tool("b", parameters), tool("a.b", plain.clone())];
        let found = body(request("", &tools, MessageBuffer::default(), CacheTtl::Off), CacheTtl::Off);
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
    let names = encoder(true, CacheTtl::Off).head("", &[tool("a.b", plain.clone())]).renamed_tools;
    assert_eq!(names.values().collect::<Vec<_>>(), ["a.b"]);
}

#[test]
fn calls_are_forbidden_where_there_are_tools() {
    let choice = |tools: &[ToolSpec], tool_choice| {
        let request = request("", tools, MessageBuffer::default(), CacheTtl::Off);
        body(ModelRequest { tool_choice, ..request }, CacheTtl::Off).get("tool_choice").cloned()
    };
    let tools = [tool("t", json!({}))];
    assert_eq!(choice(&tools, ToolChoice::NoCalls), Some(json!({"type": "none"})));
    assert_eq!(choice(&tools, ToolChoice::Auto), None);
    assert_eq!(choice(&[], ToolChoice::NoCalls), None, "refused without tools");
}
