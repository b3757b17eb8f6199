//! The rehearsal model refuses what the vendor of `codex_responses` refuses.

use hermod::rehearsal::{
    Script, next_answer,
    wire::{RequestRefusal, codex_responses as wire},
};
use serde_json::{Value, json};

fn refusal(body: &Value) -> Option<RequestRefusal> {
    wire::read(body.to_string().as_bytes()).err()
}

/// Checks the refusal's message, and that its `param` is `param`.
#[track_caller]
fn refuses(body: &Value, param: &str, expected: &str) {
    let refusal = refusal(body).unwrap();
    assert_eq!((refusal.status, refusal.message.as_str()), (400, expected), "{body}");
    assert_eq!(refusal.param.unwrap_or_default(), param, "{body}");
}

#[track_caller]
fn accepts(body: &Value) {
    assert_eq!(refusal(body), None, "{body}");
}

fn body(input: &[Value]) -> Value {
    json!({ "model": "m", "input": input })
}

fn with(field: &str, value: Value) -> Value {
    let mut body = body(&[user("a")]);
    body[field] = value;
    body
}

fn user(content: impl Into<Value>) -> Value {
    json!({ "role": "user", "content": content.into() })
}

fn said(content: impl Into<Value>) -> Value {
    json!({ "type": "message", "role": "assistant", "content": content.into() })
}

fn call(id: &str) -> Value {
    json!({ "type": "function_call", "call_id": id, "name": "shell", "arguments": "{}" })
}

fn output(id: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": id, "output": "r" })
}

/// An item of thoughts as the model itself gives it to a request for `model`.
fn reasoning(model: &str) -> Value {
    let script = br#"{ "name": "t", "scripts": [{ "steps": [{ "think": "hm", "say": "x" }] }] }"#;
    let mut body = with("reasoning", json!({ "effort": "low", "summary": "auto" }));
    body["include"] = json!(["reasoning.encrypted_content"]);
    body["model"] = model.into();
    let body = body.to_string();
    let exchange = wire::read(body.as_bytes()).unwrap();
    let script = Script::parse(script).unwrap();
    let answer =
        wire::write(&next_answer(&script, &exchange.conversation), &exchange, "rehearsal/t").joined();
    serde_json::from_slice::<Value>(&answer).unwrap()["output"][0].clone()
}

#[test]
fn the_request_itself() {
    accepts(&body(&[user("a")]));
    accepts(&with("input", json!("a")));
    accepts(&with("instructions", json!("be brief")));
    accepts(&with("store", json!(false)));
    accepts(&with("max_output_tokens", json!(16)));
    let missing =
        "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation' must be provided.";
    refuses(&json!({ "model": "m" }), "input", missing);
    refuses(&body(&[]), "input", missing);
    refuses(&json!({ "input": "a" }), "model", "Missing required parameter: 'model'.");
    refuses(&with("model", json!("")), "model", "Invalid 'model': empty string: name a model.");
    refuses(&with("messages", json!([])), "messages", "Unknown parameter: 'messages'.");
    refuses(&with("input", json!(7)), "input", "Invalid type for 'input': expected string or array.");
    refuses(&with("stream", json!("yes")), "stream", "Invalid type for 'stream': expected a boolean.");
    refuses(
        &with("max_output_tokens", json!(1)),
        "max_output_tokens",
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 1 instead.",
    );
    refuses(
        &with("stream_options", json!({})),
        "stream_options",
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
    );
    refuses(
        &with("include", json!(["everything"])),
        "include[0]",
        "Invalid value: 'everything'. Supported values are: 'file_search_call.results', 'web_search_call.results', \
         'web_search_call.action.sources', 'message.input_image.image_url', 'computer_call_output.output.image_url', \
         'code_interpreter_call.outputs', 'reasoning.encrypted_content', 'message.output_text.logprobs'.",
    );
    refuses(
        &with("reasoning", json!({ "effort": "very" })),
        "reasoning.effort",
        "Invalid value: 'very'. Supported values are: 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'.",
    );
    refuses(
        &with("tool_choice", json!("any")),
        "tool_choice",
        "Invalid value: 'any'. Supported values are: 'none', 'auto', 'required'.",
    );
    refuses(&json!([]), "", "The body of your request must be a JSON object.");
}

#[test]
fn nothing_is_stored() {
    refuses(
        &with("previous_response_id", json!("resp_1")),
        "previous_response_id",
        "Previous response with id 'resp_1' not found.",
    );
    let background = "A rehearsal stores nothing, so that it cannot answer in the background.";
    refuses(&with("background", json!(true)), "background", background);
    let mut bare = reasoning("m");
    bare.as_object_mut().unwrap().remove("encrypted_content");
    for (id, item) in [("rs_rehearsal_1", bare), ("rs_2", json!({ "type": "item_reference", "id": "rs_2" }))]
    {
        let refusal = refusal(&body(&[user("a"), item, said("b")])).unwrap();
        let message = format!(
            "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with \
             `store` set to true, or remove this item from your input."
        );
        assert_eq!((refusal.status, refusal.message), (404, message));
    }
}

#[test]
fn calls_and_outputs_pair() {
    accepts(&body(&[user("a"), call("x"), call("y"), output("y"), output("x")]));
    accepts(&body(&[user("a"), call("x"), output("x"), said("b"), user("c"), call("x"), output("x")]));
    let no_output = "No tool output found for function call x.";
    refuses(&body(&[user("a"), call("x")]), "input", no_output);
    refuses(&body(&[user("a"), call("x"), call("x"), output("x")]), "input", no_output);
    let no_call = "No tool call found for function call output with call_id x.";
    refuses(&body(&[user("a"), output("x")]), "input", no_call);
    refuses(&body(&[user("a"), output("x"), call("x")]), "input", no_call);
    refuses(&body(&[user("a"), call("x"), output("x"), output("x")]), "input", no_call);
}

#[test]
fn thoughts_come_back_unchanged_and_before_what_they_led_to() {
    accepts(&body(&[user("a"), reasoning("m"), said("b"), user("c")]));
    accepts(&body(&[user("a"), reasoning("m"), call("x"), output("x")]));
    let alone = "Item 'rs_rehearsal_1' of type 'reasoning' was provided without its required following item.";
    refuses(&body(&[user("a"), reasoning("m")]), "input", alone);
    refuses(&body(&[user("a"), reasoning("m"), user("b")]), "input", alone);
    let unverified = |start: &str| {
        format!(
            "The encrypted content {start}... could not be verified. Reason: Encrypted content could not be decrypted \
             or parsed."
        )
    };
    let other = reasoning("another model");
    let start: String = other["encrypted_content"].as_str().unwrap().chars().take(4).collect();
    refuses(&body(&[user("a"), other, said("b")]), "", &unverified(&start));
    let mut forged = reasoning("m");
    forged["encrypted_content"] = "gAAAAABo".into();
    refuses(&body(&[user("a"), forged, said("b")]), "", &unverified("gAAA"));
    let mut short = reasoning("m");
    short.as_object_mut().unwrap().remove("summary");
    refuses(
        &body(&[user("a"), short, said("b")]),
        "input[1].summary",
        "Missing required parameter: 'input[1].summary'.",
    );
}

#[test]
fn items_have_their_fields() {
    let edited = |item: Value, field: &str, value: Value| {
        let mut item = item;
        item[field] = value;
        body(&[user("a"), item])
    };
    refuses(
        &edited(call("x"), "type", json!("tool_call")),
        "input[1].type",
        "Invalid value: 'tool_call'. Supported values are: 'message', 'function_call', 'function_call_output', \
         'reasoning', 'item_reference'.",
    );
    refuses(
        &edited(said("b"), "role", json!("tool")),
        "input[1].role",
        "Invalid value: 'tool'. Supported values are: 'assistant', 'system', 'developer', 'user'.",
    );
    refuses(
        &edited(said("b"), "tool_calls", json!([])),
        "input[1].tool_calls",
        "Unknown parameter: 'input[1].tool_calls'.",
    );
    for (item, start) in [(call("x"), "fc"), (said("b"), "msg"), (reasoning("m"), "rs")] {
        refuses(
            &edited(item, "id", json!("toolu_1")),
            "input[1].id",
            &format!("Invalid 'input[1].id': 'toolu_1'. Expected an ID that begins with '{start}'."),
        );
    }
    refuses(
        &edited(call("x"), "call_id", json!("y".repeat(65))),
        "input[1].call_id",
        "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64, but got a string with \
         length 65 instead.",
    );
    refuses(
        &edited(call("x"), "call_id", json!("")),
        "input[1].call_id",
        "Invalid 'input[1].call_id': empty string. Expected a string with minimum length 1, but got an empty string \
         instead.",
    );
    refuses(
        &edited(call("x"), "name", json!("a.b")),
        "input[1].name",
        "Invalid 'input[1].name': string does not match pattern. Expected a string that matches the pattern \
         '^[a-zA-Z0-9_-]+$', with 1 to 64 characters.",
    );
    refuses(
        &edited(call("x"), "arguments", json!({})),
        "input[1].arguments",
        "Invalid type for 'input[1].arguments': expected string.",
    );
    let none = edited(output("x"), "output", Value::Null);
    refuses(&none, "input[1].output", "Missing required parameter: 'input[1].output'.");
    accepts(&body(&[user("a"), json!({ "type": "web_search_call", "id": "ws_1", "status": "completed" })]));
}

#[test]
fn contents_have_their_parts() {
    let part = |kind: &str| json!([{ "type": kind, "text": "b" }]);
    accepts(&body(&[user(part("input_text")), said(part("output_text"))]));
    accepts(&body(&[user("a"), said(json!([{ "type": "refusal", "refusal": "no" }]))]));
    refuses(
        &body(&[user(part("text"))]),
        "input[0].content[0]",
        "Invalid value: 'text'. Supported values are: 'input_text', 'input_image', 'input_file'.",
    );
    refuses(
        &body(&[user("a"), said(part("input_text"))]),
        "input[1].content[0]",
        "Invalid value: 'input_text'. Supported values are: 'output_text', 'refusal'.",
    );
    let mut marked = part("input_text");
    marked[0]["cache_control"] = json!({ "type": "ephemeral" });
    refuses(
        &body(&[user(marked)]),
        "input[0].content[0].cache_control",
        "Unknown parameter: 'input[0].content[0].cache_control'.",
    );
    let image = |url: Value| json!([{ "type": "input_image", "image_url": url }]);
    let png = "data:image/png;base64,iVBORw0KGgo=";
    accepts(&body(&[user(image(json!(png)))]));
    let mut seen = output("x");
    seen["output"] = image(json!(png));
    accepts(&body(&[user("a"), call("x"), seen]));
    let at = "input[0].content[0].image_url";
    refuses(
        &body(&[user(image(json!({ "url": png })))]),
        at,
        &format!("Invalid type for '{at}': expected string."),
    );
    let format = "You uploaded an unsupported image. Please make sure your image is valid and has one of the following \
                  formats: png, jpeg, gif, webp.";
    refuses(&body(&[user(image(json!("data:image/bmp;base64,Qk0=")))]), at, format);
    refuses(
        &body(&[user(image(json!("data:image/png;base64,?")))]),
        at,
        &format!("Invalid '{at}'. Expected a base64-encoded data URL with an image MIME type."),
    );
}

#[test]
fn tools_have_their_names_and_schemas() {
    let tool = |name: &str| json!({ "type": "function", "name": name, "parameters": { "type": "object" } });
    accepts(&with(
        "tools",
        json!([tool("a"), { "type": "web_search" }, { "type": "function", "name": "b" }]),
    ));
    let check = |tool: Value, param: &str, expected: &str| {
        refuses(&with("tools", json!([tool])), &format!("tools[0].{param}"), expected);
    };
    for name in ["a.b", "", &"b".repeat(65)] {
        check(
            tool(name),
            "name",
            "Invalid 'tools[0].name': string does not match pattern. Expected a string that matches the pattern \
             '^[a-zA-Z0-9_-]{1,64}$'.",
        );
    }
    check(
        json!({ "type": "function", "function": { "name": "a" } }),
        "name",
        "Missing required parameter: 'tools[0].name'.",
    );
    let schema = |schema: Value| json!({ "type": "function", "name": "a", "parameters": schema });
    check(
        schema(json!({})),
        "parameters",
        "Invalid schema for function 'a': schema must be a JSON Schema of 'type: \"object\"', got 'type: \"None\"'.",
    );
    check(
        schema(json!({ "type": "object", "oneOf": [] })),
        "parameters",
        "Invalid schema for function 'a': schema must have type 'object' and not have \
         'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level.",
    );
    refuses(&with("tools", json!([tool("a"), tool("a")])), "tools[1].name", "Two tools are named 'a'.");
}
