//! Decoding of complete streams: text, reasoning, calls and usage, with the variants of vendors.

use hermod_actors::model::{FinishReason, Usage};
use serde_json::{Value, json};

use super::events::*;
use crate::provider::wire::DecodeProgress;

const CALLS: [(&str, &str, &str); 2] = [("c2", "f", "{\"x\":1}"), ("c3", "g", "{}")];

/// The usual events without those whose type contains one of these names.
fn without(names: &[&str]) -> Vec<Value> {
    let named = |event: &Value| names.iter().any(|name| event["type"].as_str().unwrap().contains(name));
    usual().into_iter().filter(|event| !named(event)).collect()
}

#[test]
fn nothing_is_doubled_and_what_is_missing_is_taken_from_elsewhere() {
    for missing in [
        &[][..],
        &["delta"],
        &["_text.done", "part.done", "arguments.done", "item.done"],
        &["item.added"],
        &["created", "in_progress", "added", "done", "delta"],
        &["delta", "part", "item", "arguments"],
    ] {
        let events = without(missing);
        check(&events, "Hello", "hm", FinishReason::ToolCalls);
        check_calls(&events, &CALLS);
    }
    // The final response of some vendors has an empty output.
    for missing in [&["completed"][..], &["completed", "delta"], &["completed", "item.done"]] {
        let mut events = without(missing);
        events.push(completed(&[]));
        check(&events, "Hello", "hm", FinishReason::ToolCalls);
        check_calls(&events, &CALLS);
    }
}

#[test]
fn items_are_found_by_what_an_event_has() {
    for gone in [
        &["output_index"][..],
        &["item_id"],
        &["output_index", "item_id"],
        &["content_index", "summary_index"],
    ] {
        let mut events = usual();
        events.iter_mut().for_each(|event| {
            gone.iter().for_each(|key| {
                event.as_object_mut().unwrap().remove(*key);
            });
        });
        check(&events, "Hello", "hm", FinishReason::ToolCalls);
        check_calls(&events, &CALLS);
    }
    // A vendor that gives the same item another id with every event.
    let ids = |n: u64| json!({"type": "message", "id": format!("x{n}"), "content": [{"type": "output_text", "text": "ab"}]});
    let deltas = ["a", "b"].map(|text| event("output_text.delta", 0, text, json!({"delta": text})));
    check(
        &[&[item("added", 0, ids(1))], &deltas[..], &[item("done", 0, ids(2)), completed(&[ids(3)])]]
            .concat(),
        "ab",
        "",
        FinishReason::Stop,
    );
    // A vendor that sends neither position nor id, one item after the other.
    let plain = |name: &str, delta: &str| json!({"type": format!("response.{name}.delta"), "delta": delta});
    check(
        &[plain("reasoning_text", "a"), plain("output_text", "b"), plain("output_text", "c"), completed(&[])],
        "bc",
        "a",
        FinishReason::Stop,
    );
    let whole = |text: &str| {
        let content = [json!({"type": "output_text", "text": text})];
        json!({"type": "response.output_item.done", "item": {"type": "message", "content": content}})
    };
    check(
        &[plain("output_text", "a"), whole("ab"), whole("c"), completed(&[])],
        "abc",
        "",
        FinishReason::Stop,
    );
    // A vendor that sends only ids, and another id with every event.
    let mut renamed = vec![item("added", 0, message(1, ""))];
    renamed.extend(
        [("x2", "hel"), ("x3", "lo")]
            .map(|(id, text)| event("output_text.delta", 0, id, json!({"delta": text}))),
    );
    renamed.push(item("done", 0, message(4, "hello")));
    renamed.iter_mut().for_each(|event| drop(event.as_object_mut().unwrap().remove("output_index")));
    check(&[&renamed[..], &[completed(&[])]].concat(), "hello", "", FinishReason::Stop);
    // A vendor that gives all items the same position.
    let same = [item("done", 0, call(0, "f", "{}")), item("done", 0, call(1, "g", "{}"))];
    check_calls(&[&same[..], &[completed(&[])]].concat(), &[("c0", "f", "{}"), ("c1", "g", "{}")]);
}

#[test]
fn a_long_text_does_not_make_what_follows_slow() {
    let long = "x".repeat(4 << 20);
    let mut events = vec![delta("output_text", 0, &long)];
    events.extend(
        (1..=500).map(|n| event("output_text.done", 0, "i0", json!({"content_index": n, "text": "y"}))),
    );
    events.extend((0..500).map(|_| item("added", 0, message(0, ""))));
    events.push(completed(&[]));
    let shown = Shown::default();
    let text = decode([stream(&events).as_bytes()], &shown).unwrap().message.text;
    // `assert_eq` would print the long texts.
    assert!(text == long + &"y".repeat(500), "{} bytes", text.len());
}

#[test]
fn the_final_response_decides() {
    let streamed = [item("added", 0, message(0, "")), delta("output_text", 0, "Helo")];
    let found = |last: Value| {
        let (answer, shown) = decode_in_all_ways(stream(&[&streamed[..], &[last]].concat()).as_bytes());
        (answer.unwrap().message.text, shown.0)
    };
    assert_eq!(found(completed(&[message(0, "Hello")])), ("Hello".into(), "Helo".into()));
    assert_eq!(found(completed(&[message(0, "Helots")])), ("Helots".into(), "Helots".into()));
    assert_eq!(found(completed(&[message(0, "")])), ("Helo".into(), "Helo".into()));
    // An item that the final response does not contain.
    let gone = [item("done", 0, call(0, "f", "{}")), item("done", 1, call(1, "g", "{}"))];
    check_calls(&[&gone[..], &[completed(&[call(1, "g", "{}")])]].concat(), &[("c1", "g", "{}")]);
}

#[test]
fn paragraphs_part_pieces_of_reasoning() {
    let summary = |n: u64, text: &str| {
        event("reasoning_summary_text.delta", 0, "i0", json!({"summary_index": n, "delta": text}))
    };
    let whole = json!({"type": "reasoning", "id": "i0", "summary": [{"type": "summary_text", "text": "ab"}, {"type": "summary_text", "text": "c"}],
        "content": [{"type": "reasoning_text", "text": "d"}]});
    check(
        &[
            summary(0, "a"),
            summary(0, "b"),
            summary(1, "c"),
            delta("reasoning_text", 0, "d"),
            completed(std::slice::from_ref(&whole)),
        ],
        "",
        "ab\n\nc\n\nd",
        FinishReason::Stop,
    );
    check(
        &[item("done", 0, whole.clone()), item("done", 1, thought(1, "e", "")), completed(&[])],
        "",
        "ab\n\nc\n\nd\n\ne",
        FinishReason::Stop,
    );
    check(&[completed(&[whole])], "", "ab\n\nc\n\nd", FinishReason::Stop);
}

#[test]
fn a_block_of_reasoning_in_the_text_is_none_of_it() {
    let text = "<think>hm</think>\n\nyes";
    for cut in 1..text.len() {
        let deltas = [&text[..cut], &text[cut..]].map(|piece| delta("output_text", 0, piece));
        check(&[&deltas[..], &[completed(&[message(0, text)])]].concat(), "yes", "hm", FinishReason::Stop);
    }
    check(&[completed(&[thought(0, "a", ""), message(1, text)])], "yes", "a\n\nhm", FinishReason::Stop);
}

#[test]
fn calls_come_in_many_shapes() {
    check_calls(
        &[completed(&[json!({"type": "function_call", "name": "f", "arguments": {"x": [1]}})])],
        &[("call_0", "f", "{\"x\":[1]}")],
    );
    let same = |name: &str| json!({"type": "function_call", "id": "i", "call_id": "a", "name": name, "arguments": ""});
    check_calls(&[completed(&[same("f"), same("g")])], &[("a", "f", ""), ("call_1", "g", "")]);
    let custom = |input: &str| json!({"type": "custom_tool_call", "id": "i0", "call_id": "c", "name": "sql", "input": input});
    let piece = delta("custom_tool_call_input", 0, "select 1");
    check_calls(
        &[item("added", 0, custom("")), piece, item("done", 0, custom("select 1")), completed(&[])],
        &[("c", "sql", "select 1")],
    );
    check_calls(&[completed(&[call(0, "", ""), message(1, "a")])], &[]);
}

#[test]
fn what_the_vendors_own_tools_do_is_no_part_of_the_answer() {
    let search =
        json!({"type": "web_search_call", "id": "i0", "status": "completed", "action": {"query": "q"}});
    let strange = json!({"type": "what_will_be", "id": 7, "content": "no", "arguments": "no"});
    let events = [
        item("added", 0, search.clone()),
        event("web_search_call.searching", 0, "i0", json!({})),
        event("code_interpreter_call_code.delta", 0, "i0", json!({"delta": "print()"})),
        item("done", 0, search.clone()),
        delta("output_text", 1, "found"),
        completed(&[search, message(1, "found"), strange, Value::Null]),
    ];
    check(&events, "found", "", FinishReason::Stop);
    let mut decoder = reader();
    let mut progress = |event: &Value| {
        decoder.push(stream(std::slice::from_ref(event)).as_bytes(), &Shown::default()).unwrap()
    };
    assert_eq!(progress(&json!({"type": "response.in_progress", "response": {}})), DecodeProgress::Quiet);
    assert_eq!(progress(&json!({"type": "keepalive", "sequence_number": 3})), DecodeProgress::Quiet);
    assert_eq!(progress(&events[1]), DecodeProgress::Content);
    assert_eq!(progress(&delta("output_text", 1, "")), DecodeProgress::Quiet);
    assert_eq!(progress(&events[5]), DecodeProgress::Done);
}

#[test]
fn the_usage_is_that_of_the_final_response() {
    let check = |usage: Value, expected: Option<(u64, u64, u64, u64)>| {
        let found = answer(&[ended("completed", json!({"output": [], "usage": usage}))]).usage;
        let expected =
            expected.map(|(input_tokens, output_tokens, cached_tokens, cache_write_tokens)| Usage {
                input_tokens,
                output_tokens,
                cached_tokens,
                cache_write_tokens,
                unlisted_reasoning_tokens: 0,
                is_invalid: false,
            });
        assert_eq!(found, expected);
    };
    check(Value::Null, None);
    check(json!({"input_tokens": 9, "output_tokens": "2", "input_tokens_details": null}), Some((9, 2, 0, 0)));
    let details = json!({"cached_tokens": 4, "cache_write_tokens": 3.0});
    check(
        json!({"input_tokens": 9, "output_tokens": 2, "input_tokens_details": details}),
        Some((9, 2, 4, 3)),
    );
}
