//! Tests of the cache markers in requests.

use hermod_actors::{
    model::{Message, MessageContent, ToolSpec},
    port::{Encoder, MessageBuffer},
};
use serde_json::{Value, json};

use super::requests::*;
use crate::provider::CacheTtl;

/// Collects the blocks with a cache marker, as JSON.
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
    let note = MessageContent { note: Some("noted".into()), ..MessageContent::from("r") };
    let messages = [
        user("one"),
        said(answer("two", &[])),
        Message::User(MessageContent::new("three", [picture()])),
        said(answer("four", &[call("toolu_a", "{}"), call("toolu_b", "{}")])),
        result("toolu_a", "r"),
        result("toolu_b", note),
    ];
    check(CacheTtl::Short, ("sys", &tools), &[], &["sys"]);
    check(CacheTtl::Short, (" ", &tools), &[], &["\"b\""]);
    check(CacheTtl::Short, ("", &[]), &[], &[]);
    check(CacheTtl::Short, ("sys", &[]), &messages[..1], &["sys", "one"]);
    check(CacheTtl::Long, ("sys", &[]), &messages, &["\"1h\"", "Base64", "toolu_b", "\"r\""]);
    check(CacheTtl::Off, ("sys", &tools), &messages, &[]);
    check(CacheTtl::Short, ("", &tools), &messages[..5], &["\"b\"", "Base64", "toolu_b", "toolu_a"]);
    // The next request may lack the note, so the marker precedes it, unless the message has nothing else.
    let note = |text: &str| {
        Message::User(MessageContent { note: Some("noted".into()), ..MessageContent::from(text) })
    };
    check(CacheTtl::Short, ("", &[]), &[note("one")], &["one"]);
    check(CacheTtl::Short, ("", &[]), &[note("")], &["noted"]);
    // An answer that ends in a block of the server's own tools gets no marker.
    let kept = json!([{"type": "web_search_tool_result", "tool_use_id": "x", "content": []}]);
    let ends_so = [user("one"), with_parts(answer("", &[]), "m", kept), user("three")];
    check(CacheTtl::Short, ("", &[]), &ends_so, &["one", "three"]);
}

#[test]
fn fifty_requests_begin_as_the_ones_before() {
    const MARKER: &str = r#","cache_control":{"type":"ephemeral"}"#;
    let tools = [tool("b.c", json!({"type": "object"})), tool("a", json!({"type": "object"}))];
    let encoder = encoder(true, CacheTtl::Short);
    let mut messages = MessageBuffer::default();
    let mut before: Option<(String, Vec<usize>)> = None;
    for n in 0..50 {
        let id = format!("call_{}", n % 3);
        let mut group = match n % 5 {
            0 => vec![Message::User(MessageContent::new(format!("task {n}"), [picture()]))],
            1 => vec![with_parts(answer("ab", &[call(&id, "{\"x\": 1}")]), "m", json!([thought("x")]))],
            4 => vec![said(answer("done", &[]))],
            _ => vec![said(answer("", &[call(&id, "{")]))],
        };
        if (1..4).contains(&(n % 5)) {
            group.push(result(
                &id,
                MessageContent { note: Some("n".into()), ..MessageContent::new("r", [picture()]) },
            ));
        }
        encoder.messages(&group, &mut messages);
        let body = text_of(request("sys", &tools, messages.clone(), CacheTtl::Short), CacheTtl::Short);
        let markers: Vec<usize> = body.match_indices(MARKER).map(|(at, _)| at).collect();
        assert!(markers.len() <= 4, "the vendor takes four markers");
        let bare = body.replace(MARKER, "");
        // The positions of the markers in the request without markers.
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
