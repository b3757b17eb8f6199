//! The rehearsal model refuses what the vendor of `anthropic_messages` refuses.

use hermod::rehearsal::{Script, next_answer, wire::anthropic_messages as wire};
use serde_json::{Value, json};

#[track_caller]
fn check_body(body: &Value, expected: Option<&str>) {
    let text = body.to_string();
    let refusal = wire::read(text.as_bytes()).err();
    assert!(refusal.iter().all(|refusal| refusal.status == 400));
    assert_eq!(refusal.map(|refusal| refusal.message).as_deref(), expected, "{body}");
}

fn body(messages: &[Value]) -> Value {
    json!({ "model": "m", "max_tokens": 2048, "messages": messages })
}

fn with(field: &str, value: Value) -> Value {
    let mut body = body(&[user("a")]);
    body[field] = value;
    body
}

#[track_caller]
fn check(messages: &[Value], expected: Option<&str>) {
    check_body(&body(messages), expected);
}

fn user(content: impl Into<Value>) -> Value {
    json!({ "role": "user", "content": content.into() })
}

fn assistant(content: impl Into<Value>) -> Value {
    json!({ "role": "assistant", "content": content.into() })
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn call(id: &str) -> Value {
    json!({ "type": "tool_use", "id": id, "name": "shell", "input": {} })
}

fn result(id: &str) -> Value {
    json!({ "type": "tool_result", "tool_use_id": id, "content": "r" })
}

/// A block of thoughts as the model itself gives it to a request for `model`.
fn thinking(model: &str) -> Value {
    let script = br#"{ "name": "t", "scripts": [{ "steps": [{ "think": "hm", "say": "x" }] }] }"#;
    let mut body = with("thinking", json!({ "type": "adaptive" }));
    body["model"] = model.into();
    let body = body.to_string();
    let exchange = wire::read(body.as_bytes()).unwrap();
    let script = Script::parse(script).unwrap();
    let answer =
        wire::write(&next_answer(&script, &exchange.conversation), &exchange, "rehearsal/t").joined();
    serde_json::from_slice::<Value>(&answer).unwrap()["content"][0].clone()
}

#[test]
fn the_request_itself() {
    check_body(&body(&[user("a")]), None);
    let without = |field: &str| {
        let mut body = body(&[user("a")]);
        body.as_object_mut().unwrap().remove(field);
        body
    };
    check_body(&without("model"), Some("model: Field required"));
    check_body(&without("max_tokens"), Some("max_tokens: Field required"));
    check_body(&without("messages"), Some("messages: Field required"));
    check_body(&with("model", json!("")), Some("model: String should have at least 1 character"));
    check_body(&with("max_tokens", json!(0)), Some("max_tokens: Input should be greater than or equal to 1"));
    check_body(&with("max_tokens", json!("9")), Some("max_tokens: Input should be a valid integer"));
    check_body(&with("messages", json!([])), Some("messages: at least one message is required"));
    check_body(&with("stream_options", json!({})), Some("stream_options: Extra inputs are not permitted"));
    check_body(&with("stop_sequences", json!(["x"])), None);
    check_body(&with("stream", json!(1)), Some("stream: Input should be a valid boolean"));
    check_body(&with("temperature", json!(1.5)), Some("temperature: range: 0..1"));
    check_body(&with("system", json!("")), None);
    check_body(&with("system", json!([text("s")])), None);
    check_body(&with("system", json!([text("")])), Some("messages: text content blocks must be non-empty"));
    check_body(&json!([]), Some("The request body must be a JSON object"));
    let refusal = wire::read(b"{").unwrap_err();
    assert!(refusal.message.starts_with("The request body is not valid JSON: "), "{}", refusal.message);
}

#[test]
fn roles() {
    check(&[user("a"), user("b")], None);
    check(&[user("a"), assistant("b"), assistant("c"), user("d")], None);
    check(&[user("a"), assistant("b")], None);
    check(&[assistant("b")], Some("messages: first message must use the \"user\" role"));
    let role = "messages.1.role: Input should be a valid role: 'user' or 'assistant'";
    check(&[user("a"), json!({ "role": "system", "content": "s" })], Some(role));
    check(&[user("a"), json!({ "role": "tool", "content": "s" })], Some(role));
    check(&[json!({ "role": "user" })], Some("messages.0.content: Field required"));
    check(
        &[user("a"), json!({ "role": "assistant", "content": "b", "tool_calls": [] })],
        Some("messages.1.tool_calls: Extra inputs are not permitted"),
    );
}

#[test]
fn texts_are_not_empty() {
    let empty = |index: u64| {
        format!(
            "messages.{index}: all messages must have non-empty content except for the optional final assistant message"
        )
    };
    check(&[user("")], Some(&empty(0)));
    check(&[user(json!([]))], Some(&empty(0)));
    check(&[user("a"), assistant(""), user("b")], Some(&empty(1)));
    check(&[user("a"), assistant("")], None);
    check(&[user(json!([text("")]))], Some("messages: text content blocks must be non-empty"));
    let blank = "messages: text content blocks must contain non-whitespace text";
    check(&[user("a"), assistant(" \n"), user("b")], Some(blank));
    check(
        &[user("a"), assistant("b ")],
        Some("messages: final assistant content cannot end with trailing whitespace"),
    );
    check(&[user(7)], Some("messages.0.content: Input should be a valid string or list"));
}

#[test]
fn blocks_have_their_fields() {
    let tags = |holder: &str| {
        format!(
            "Input tag 'input_text' found using 'type' does not match any of the expected tags: '{holder}'"
        )
    };
    let unknown = json!({ "type": "input_text", "text": "a" });
    check(
        &[user(json!([unknown]))],
        Some(&format!(
            "messages.0.content.0: {}",
            tags("text', 'image', 'document', 'search_result', 'tool_result")
        )),
    );
    check(
        &[user("a"), assistant(json!([unknown]))],
        Some(&format!("messages.1.content.0: {}", tags("text', 'thinking', 'redacted_thinking', 'tool_use"))),
    );
    let mut extra = text("a");
    extra["annotations"] = json!([]);
    check(
        &[user(json!([text("b"), extra]))],
        Some("messages.0.content.1.text.annotations: Extra inputs are not permitted"),
    );
    let field = |block: Value, field: &str, value: Value, expected: &str| {
        let mut block = block;
        block[field] = value;
        check(
            &[user("a"), assistant(json!([block]))],
            Some(&format!("messages.1.content.0.tool_use.{expected}")),
        );
    };
    field(call("x"), "id", json!("functions.shell:0"), "id: String should match pattern '^[a-zA-Z0-9_-]+$'");
    field(call("x"), "name", json!("a.b"), "name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'");
    field(call("x"), "input", json!("{}"), "input: Input should be a valid dictionary");
    field(call("x"), "input", Value::Null, "input: Field required");
}

#[test]
fn calls_and_results_pair() {
    let results = |ids: &[&str]| user(ids.iter().map(|id| result(id)).collect::<Vec<_>>());
    let calls = |ids: &[&str]| assistant(ids.iter().map(|id| call(id)).collect::<Vec<_>>());
    let missing = |ids: &str| {
        format!(
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. Each \
             `tool_use` block must have a corresponding `tool_result` block in the next message."
        )
    };
    let unexpected = |at: &str, id: &str| {
        format!(
            "messages.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block \
             must have a corresponding `tool_use` block in the previous message."
        )
    };
    check(&[user("a"), calls(&["x", "y"]), results(&["y", "x"])], None);
    check(&[user("a"), calls(&["x", "y"]), results(&["y"]), results(&["x"])], None);
    check(&[user("a"), calls(&["x"]), user(json!([result("x"), text("more")]))], None);
    check(&[user("a"), calls(&["x"])], Some(&missing("x")));
    check(&[user("a"), calls(&["x", "y", "z"]), results(&["y"])], Some(&missing("x, z")));
    check(&[user("a"), calls(&["x"]), user("b")], Some(&missing("x")));
    check(&[user("a"), calls(&["x"]), user(json!([text("b"), result("x")]))], Some(&missing("x")));
    check(&[results(&["x"])], Some(&unexpected("0.content.0", "x")));
    check(&[user("a"), calls(&["x"]), results(&["x", "y"])], Some(&unexpected("2.content.1", "y")));
    check(
        &[user("a"), calls(&["x"]), results(&["x"]), assistant("b"), results(&["x"])],
        Some(&unexpected("4.content.0", "x")),
    );
    check(
        &[user("a"), calls(&["x"]), results(&["x", "x"])],
        Some(
            "messages.2.content.1: each tool_use must have a single result. Found multiple `tool_result` blocks with id: x",
        ),
    );
    check(
        &[user("a"), calls(&["x", "x"]), results(&["x"])],
        Some("messages.1.content.1: `tool_use` ids must be unique"),
    );
}

#[test]
fn results_have_their_content() {
    let check_result = |fields: Value, expected: Option<&str>| {
        let mut result = result("x");
        for (name, value) in fields.as_object().unwrap() {
            result[name] = value.clone();
        }
        let expected = expected.map(|expected| format!("messages.{expected}"));
        check(&[user("a"), assistant(json!([call("x")])), user(json!([result]))], expected.as_deref());
    };
    check_result(json!({ "content": "" }), None);
    check_result(json!({ "content": null }), None);
    check_result(json!({ "content": [text("b"), png()] }), None);
    check_result(json!({ "is_error": true }), None);
    check_result(
        json!({ "content": "", "is_error": true }),
        Some("2.content.0.tool_result: content cannot be empty if `is_error` is true"),
    );
    check_result(
        json!({ "content": [call("y")] }),
        Some(
            "2.content.0.tool_result.content.0: Input tag 'tool_use' found using 'type' does not match any of the \
             expected tags: 'text', 'image', 'document', 'search_result'",
        ),
    );
    check_result(
        json!({ "content": {} }),
        Some("2.content.0.tool_result.content: Input should be a valid string or array"),
    );
}

fn image(media_type: &str, data: &str) -> Value {
    json!({ "type": "image", "source": { "type": "base64", "media_type": media_type, "data": data } })
}

fn png() -> Value {
    image("image/png", "iVBORw0KGgo=")
}

#[test]
fn images_are_what_they_say() {
    let check_image = |image: Value, expected: Option<&str>| {
        let expected = expected.map(|expected| format!("messages.0.content.0.image.source{expected}"));
        check(&[user(json!([image]))], expected.as_deref());
    };
    check_image(png(), None);
    check_image(
        json!({ "type": "image", "source": { "type": "url", "url": "https://example.com/a" } }),
        None,
    );
    check_image(
        image("image/svg+xml", "aaaa"),
        Some(".base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"),
    );
    check_image(image("image/png", "iVBORw0KGgo"), Some(".base64.data: invalid base64 data"));
    check_image(image("image/png", "aGVsbG8="), Some(": Could not process image"));
    check_image(
        image("image/jpeg", "iVBORw0KGgo="),
        Some(
            ".base64.data: The image was specified using the image/jpeg media type, but the image appears to be a \
             image/png image",
        ),
    );
    check_image(
        json!({ "type": "image", "source": { "type": "data" } }),
        Some(
            ": Input tag 'data' found using 'type' does not match any of the expected tags: 'base64', 'file', 'url'",
        ),
    );
}

#[test]
fn tools_have_their_names_and_schemas() {
    let schema = json!({ "type": "object" });
    let tool = |name: &str, schema: Value| json!({ "name": name, "input_schema": schema });
    check_body(
        &with("tools", json!([tool("a", schema.clone()), tool(&"b".repeat(128), schema.clone())])),
        None,
    );
    check_body(
        &with("tools", json!([{ "type": "web_search_20250305", "name": "web_search", "max_uses": 1 }])),
        None,
    );
    check_body(
        &with("tools", json!([tool("a", schema.clone()), tool("a", schema.clone())])),
        Some("tools: Tool names must be unique."),
    );
    let check_tool = |tool: Value, expected: &str| {
        check_body(&with("tools", json!([tool])), Some(&format!("tools.0.{expected}")));
    };
    let pattern = "custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'";
    check_tool(tool("a.b", schema.clone()), pattern);
    check_tool(tool("", schema.clone()), pattern);
    check_tool(tool(&"b".repeat(129), schema.clone()), pattern);
    check_tool(json!({ "name": "a" }), "custom.input_schema: Field required");
    check_tool(tool("a", json!({})), "custom.input_schema.type: Field required");
    check_tool(tool("a", json!({ "type": "array" })), "custom.input_schema.type: Input should be 'object'");
    check_tool(
        tool("a", json!({ "type": "object", "anyOf": [] })),
        "custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level",
    );
    check_tool(
        tool("a", json!({ "type": "object", "properties": { "a b": {} } })),
        "custom.input_schema.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'",
    );
    let function = json!({ "type": "function", "function": { "name": "a" } });
    check_body(
        &with("tools", json!([function])),
        Some(
            "tools.0: Input tag 'function' found using 'type' does not match any of the expected tags: 'custom', or a \
             tool of the vendor with its date",
        ),
    );
    let choose = |choice: Value, expected: Option<&str>| {
        let mut body = with("tools", json!([tool("a", schema.clone())]));
        body["tool_choice"] = choice;
        check_body(&body, expected);
    };
    choose(json!({ "type": "tool", "name": "a" }), None);
    choose(json!({ "type": "tool", "name": "b" }), Some("tool_choice: Tool 'b' not found in provided tools"));
    choose(json!("auto"), Some("tool_choice: Input should be a valid dictionary"));
    check_body(
        &with("tool_choice", json!({ "type": "auto" })),
        Some("tool_choice: may only be specified while providing `tools`"),
    );
}

#[test]
fn marks_are_counted() {
    let marked = |ttl: Option<&str>| {
        let mut block = text("a");
        block["cache_control"] = json!({ "type": "ephemeral", "ttl": ttl });
        block
    };
    check(&[user(vec![marked(None); 4])], None);
    check(
        &[user(vec![marked(None); 5])],
        Some("A maximum of 4 blocks with cache_control may be provided. Found 5."),
    );
    check(&[user(json!([marked(Some("1h")), marked(Some("5m"))]))], None);
    let order = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks \
                 are processed in the following order: `tools`, `system`, `messages`.";
    check(&[user(json!([marked(None), marked(Some("1h"))]))], Some(order));
    check(
        &[user(json!([marked(Some("2h"))]))],
        Some("messages.0.content.0.text.cache_control.ttl: Input should be a valid string: '5m' or '1h'"),
    );
    check_body(
        &with("cache_control", json!({ "type": "lasting" })),
        Some("cache_control.type: Input should be 'ephemeral'"),
    );
    let mut thought = thinking("m");
    thought["cache_control"] = json!({ "type": "ephemeral" });
    check(
        &[user("a"), assistant(json!([thought, text("b")]))],
        Some("messages.1.content.0.thinking.cache_control: Extra inputs are not permitted"),
    );
}

#[test]
fn thinking_has_its_limits() {
    let enabled = |budget: u64| json!({ "type": "enabled", "budget_tokens": budget });
    let check_thinking = |thinking: Value, expected: Option<&str>| {
        check_body(&with("thinking", thinking), expected);
    };
    check_thinking(enabled(1024), None);
    check_thinking(json!({ "type": "disabled" }), None);
    check_thinking(
        enabled(1023),
        Some("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"),
    );
    check_thinking(enabled(2048), Some("`max_tokens` must be greater than `thinking.budget_tokens`."));
    check_thinking(json!({ "type": "enabled" }), Some("thinking.enabled.budget_tokens: Field required"));
    let beside = |field: &str, value: Value, expected: &str| {
        let mut body = with("thinking", enabled(1024));
        body["tools"] = json!([{ "name": "a", "input_schema": { "type": "object" } }]);
        body[field] = value;
        check_body(&body, Some(expected));
    };
    let forced = "Thinking may not be enabled when tool_choice forces tool use.";
    beside("tool_choice", json!({ "type": "any" }), forced);
    beside("temperature", json!(0.5), "`temperature` may only be set to 1 when thinking is enabled.");
    beside("top_k", json!(5), "`top_k` must be unset when thinking is enabled.");
}

#[test]
fn thoughts_come_back_unchanged() {
    let said = |thought: Value| [user("a"), assistant(json!([thought, text("b")])), user("c")];
    let invalid = "messages.1.content.0: Invalid `signature` in `thinking` block";
    check(&said(thinking("m")), None);
    check(&said(thinking("another model")), Some(invalid));
    let edited = |field: &str, value: &str| {
        let mut thought = thinking("m");
        thought[field] = value.into();
        thought
    };
    check(&said(edited("thinking", "hm!")), Some(invalid));
    check(&said(edited("thinking", "")), None);
    check(&said(edited("signature", "c2lnbmVk")), Some(invalid));
    let redacted = |data: &Value| json!({ "type": "redacted_thinking", "data": data });
    check(&said(redacted(&thinking("m")["signature"])), None);
    check(
        &said(redacted(&json!("c2VjcmV0"))),
        Some("messages.1.content.0: Invalid `data` in `redacted_thinking` block"),
    );
    check(
        &[user("a"), assistant(json!([thinking("m")])), user("c")],
        Some("messages.1: The final block in an assistant message cannot be `thinking`."),
    );
}

#[test]
fn a_tool_loop_with_thinking_begins_with_thoughts() {
    let check = |messages: &[Value], found: Option<&str>| {
        let mut body = body(messages);
        body["thinking"] = json!({ "type": "enabled", "budget_tokens": 1024 });
        let expected = found.map(|found| {
            format!(
                "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When \
                 `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the \
                 lastmost set of `tool_use` and `tool_result` blocks). To avoid this requirement, disable `thinking`."
            )
        });
        check_body(&body, expected.as_deref());
    };
    let results = user(json!([result("x")]));
    check(&[user("a"), assistant(json!([thinking("m"), call("x")])), results.clone()], None);
    check(&[user("a"), assistant(json!([call("x")])), results.clone()], Some("tool_use"));
    check(&[user("a"), assistant(json!([text("b"), call("x")])), results.clone()], Some("text"));
    check(&[user("a"), assistant(json!([call("x")])), results, assistant("b"), user("c")], None);
    check(&[user("a"), assistant("b"), user("c")], None);
    check(&[user("a"), assistant("b")], Some("text"));
}
