//! Decoding of complete streams: text, reasoning, calls, opaque blocks and usage.
#![allow(clippy::needless_pass_by_value)] // `json!` makes values, and references to them would only be noise

use hermod_actors::model::{AssistantMessage, FinishReason, ToolCall, Usage};
use serde_json::{Value, json};

use super::events::*;

fn check_answer(events: &[Value], reason: &str, expected: (&str, &str, FinishReason)) {
    let answer = answer(events, reason);
    let AssistantMessage { text, reasoning, .. } = &answer.message;
    assert_eq!((&**text, &**reasoning, answer.finish), expected);
}

fn check_calls(events: &[Value], expected: &[(&str, &str, &str)]) {
    let answer = answer(events, "tool_use");
    let call = |(id, name, arguments): &(&str, &str, &str)| ToolCall {
        id: (*id).into(),
        name: (*name).into(),
        arguments: (*arguments).into(),
    };
    assert_eq!(answer.message.calls, expected.iter().map(call).collect::<Vec<_>>());
    assert_eq!(answer.finish, FinishReason::ToolCalls);
}

fn check_parts(events: &[Value], reason: &str, expected: Value) {
    let opaque = answer(events, reason).message.opaque;
    let parts = opaque.map(|opaque| {
        assert_eq!(&*opaque.origin().model, "m");
        opaque.parts().to_vec()
    });
    assert_eq!(json!(parts.unwrap_or_default()), expected);
}

#[test]
fn text_and_reasoning_are_told_apart() {
    let blank = || json!({"type": "text", "text": ""});
    check_answer(
        &[start(json!(0), blank()), text(0, "a"), text(0, "ü")],
        "end_turn",
        ("aü", "", FinishReason::Stop),
    );
    let think = json!({"type": "thinking", "thinking": "x", "signature": ""});
    let both = [
        start(json!(0), think),
        thinking(0, "y"),
        signature(0, "s"),
        stop(0),
        start(json!(1), json!({"type": "text", "text": "a"})),
        text(1, "b"),
        stop(1),
    ];
    check_answer(&both, "stop_sequence", ("ab", "xy", FinishReason::Stop));
    // Deltas of blocks that were not started.
    check_answer(
        &[thinking(0, "x"), text(1, "a"), text(0, "b")],
        "end_turn",
        ("ab", "x", FinishReason::Stop),
    );
    let inline = [text(0, "<thi"), text(0, "nk>x</think>\n"), text(0, "a <"), stop(0), text(1, "b")];
    check_answer(&inline, "end_turn", ("a <b", "x", FinishReason::Stop));
    let unknown = [
        start(json!(0), json!({"type": "riddle", "text": "x"})),
        text(0, "y"),
        delta(json!(1), json!({"type": "citations_delta", "citation": {}})),
        json!({"type": "content_block_riddle"}),
        text(2, "a"),
    ];
    check_answer(&unknown, "end_turn", ("a", "", FinishReason::Stop));
}

#[test]
fn a_stop_reason_is_one_of_ours() {
    for (reason, finish) in [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("what", FinishReason::Stop),
        ("tool_use", FinishReason::Stop),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::Length),
        ("pause_turn", FinishReason::Length),
        ("refusal", FinishReason::Refused),
    ] {
        check_answer(&[text(0, "a")], reason, ("a", "", finish));
    }
    check_answer(&[], "refusal", ("", "", FinishReason::Refused));
}

#[test]
fn calls_are_put_together_however_they_come() {
    let begin = |index: u64, id, name| start(json!(index), call(id, name, json!({})));
    let at = |index: u64, json| input(json!(index), json!(json));
    // Interleaved calls with an index each.
    let first = [begin(1, "a", "f"), begin(2, "b", "g"), at(1, "{\"x"), at(2, "{")];
    let then = [at(1, "\":1}"), at(2, "}"), stop(1), stop(2)];
    check_calls(&[&first[..], &then].concat(), &[("a", "f", "{\"x\":1}"), ("b", "g", "{}")]);
    // Empty input, input in the block's start, and both.
    check_calls(&[begin(0, "a", "f"), at(0, "")], &[("a", "f", "{}")]);
    check_calls(&[start(json!(0), call("a", "f", json!({"x": 1})))], &[("a", "f", "{\"x\":1}")]);
    let both = [start(json!(0), call("a", "f", json!({"x": 1}))), at(0, "{\"x\":"), at(0, "2}")];
    check_calls(&both, &[("a", "f", "{\"x\":2}")]);
    let begun = [start(json!(0), call("a", "f", json!("{\"x\""))), at(0, ":3}")];
    check_calls(&begun, &[("a", "f", "{\"x\":3}")]);
    check_calls(&[begin(0, "a", "f"), input(json!(0), json!({"x": [1]}))], &[("a", "f", "{\"x\":[1]}")]);
    // Neither index nor id; and one id for two calls.
    let bare = |name| start(Value::Null, json!({"type": "tool_use", "name": name}));
    let piece = |json| input(Value::Null, json!(json));
    check_calls(
        &[bare("f"), piece("{"), piece("}"), bare("g")],
        &[("call_0", "f", "{}"), ("call_1", "g", "")],
    );
    check_calls(
        &[begin(0, "a", "f"), begin(1, "a", "f"), begin(2, "call_1", "f")],
        &[("a", "f", "{}"), ("call_1", "f", "{}"), ("call_2", "f", "{}")],
    );
    // All calls with index 0.
    let same = [begin(0, "a", "f"), at(0, "{"), at(0, "}"), begin(0, "b", "g"), at(0, "[]")];
    check_calls(&same, &[("a", "f", "{}"), ("b", "g", "[]")]);
}

#[test]
fn what_only_its_maker_reads_is_kept_in_order() {
    let think = |index: u64, text, signed| {
        [
            start(json!(index), json!({"type": "thinking", "thinking": "", "signature": ""})),
            thinking(index, text),
            signature(index, signed),
            stop(index),
        ]
    };
    let kept = |text, signed| json!({"type": "thinking", "thinking": text, "signature": signed});
    let redacted = json!({"type": "redacted_thinking", "data": "r"});
    let asks = |index: u64| start(json!(index), call("a", "f", json!({})));
    let end_of = |index: u64| [text(index, "aü"), asks(index + 1)];
    // Positions after the last opaque block are not stored.
    check_parts(&[&think(0, "x", "s")[..], &end_of(1)].concat(), "tool_use", json!([kept("x", "s")]));
    check_parts(&[&think(0, "", "s")[..], &end_of(1)].concat(), "tool_use", json!([kept("", "s")]));
    check_parts(&end_of(0), "tool_use", json!([]));
    let interleaved = [
        &think(0, "x", "s")[..],
        &end_of(1),
        &think(3, "y", "t"),
        &end_of(4),
        &[start(json!(6), redacted.clone())],
    ];
    let place = json!({"type": "text", "bytes": 3});
    let called = json!({"type": "tool_use"});
    let expected = json!([kept("x", "s"), place, called, kept("y", "t"), place, called, redacted]);
    check_parts(&interleaved.concat(), "tool_use", expected);
    // Reasoning without a signature is unfinished, unless calls follow: then its vendor signs nothing.
    check_parts(&think(0, "x", ""), "max_tokens", json!([]));
    check_parts(&think(0, "x", ""), "end_turn", json!([]));
    check_parts(&[&think(0, "x", "")[..], &[asks(1)]].concat(), "tool_use", json!([kept("x", "")]));
}

#[test]
fn tools_of_the_server_are_kept_and_are_no_calls() {
    let search = |id: &str| json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {}});
    let found = |id: &str| json!({"type": "web_search_tool_result", "tool_use_id": id, "content": [1.5]});
    let events = [
        text(0, "a"),
        start(json!(1), search("x")),
        input(json!(1), json!("{\"q\":")),
        input(json!(1), json!("1}")),
        start(json!(2), found("x")),
        text(3, "b"),
        // A call without its result, and a result without its call.
        start(json!(4), search("y")),
        start(json!(5), found("z")),
    ];
    let mut asked = search("x");
    asked["input"] = json!({"q": 1});
    check_parts(
        &events,
        "pause_turn",
        json!([
            {"type": "text", "bytes": 1}, asked, found("x"), {"type": "text", "bytes": 1},
        ]),
    );
    check_answer(&events, "end_turn", ("ab", "", FinishReason::Stop));
}

#[test]
fn tokens_are_counted_with_those_of_the_cache() {
    let begin = |usage: Value| json!({"type": "message_start", "message": {"usage": usage}});
    let last =
        |usage: Value| json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage});
    let check = |events: &[Value], expected: Option<[u64; 4]>| {
        let usage = decode_in_all_ways(stream(events).as_bytes()).unwrap().usage;
        let expected =
            expected.map(|[input_tokens, output_tokens, cached_tokens, cache_write_tokens]| Usage {
                input_tokens,
                output_tokens,
                cached_tokens,
                cache_write_tokens,
                unlisted_reasoning_tokens: 0,
                is_invalid: false,
            });
        assert_eq!(usage, expected);
    };
    check(&[begin(Value::Null), last(json!({}))], None);
    let first = json!({"input_tokens": 5, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 7, "output_tokens": 1});
    check(&[begin(first.clone()), last(json!({"output_tokens": 9}))], Some([42, 9, 30, 7]));
    check(&[begin(first), last(json!({"input_tokens": 0, "output_tokens": 9}))], Some([42, 9, 30, 7]));
    let none = json!({"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": null});
    check(&[begin(none.clone()), last(none.clone())], Some([0, 0, 0, 0]));
    check(&[begin(none), last(json!({"input_tokens": 3.0, "output_tokens": "2"}))], Some([3, 2, 0, 0]));
}
