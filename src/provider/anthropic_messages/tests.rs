#![allow(clippy::needless_pass_by_value)] // `json!` makes values, and references to them would only be noise

use std::sync::{Arc, Mutex};

use hermod_actors::{
    model::{Answer, AssistantMessage, Failure, FailureClass, Finish, Origin, ToolCall, Usage},
    port::Deltas,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::Draft;
use crate::provider::{
    reader::Reader,
    wire::{Decoder, Progress},
};

/// Text and reasoning as they were shown.
#[derive(Default)]
struct Shown(Mutex<(String, String)>);

impl Deltas for Shown {
    fn text(&self, delta: &str) {
        self.0.lock().unwrap().0.push_str(delta);
    }
    fn reasoning(&self, delta: &str) {
        self.0.lock().unwrap().1.push_str(delta);
    }
}

fn draft() -> Draft {
    Draft::new(Arc::new(Origin { provider: "p".into(), wire: super::NAME.into(), model: "m".into() }))
}

fn decode<'a>(parts: impl IntoIterator<Item = &'a [u8]>, shown: &Shown) -> Result<Answer, Failure> {
    let mut decoder = Box::new(Reader::new(draft()));
    for part in parts {
        decoder.push(part, shown)?;
    }
    decoder.finish(shown)
}

/// The body decodes so, also byte by byte, and what was shown is what was said.
fn decode_in_all_ways(body: &[u8]) -> Result<Answer, Failure> {
    let shown = Shown::default();
    let answer = decode([body], &shown);
    assert_eq!(decode(body.chunks(1), &Shown::default()), answer);
    let shown = shown.0.into_inner().unwrap();
    if let Ok(Answer { message, .. }) = &answer {
        assert_eq!((&message.text, &message.reasoning), (&shown.0, &shown.1));
    }
    answer
}

fn stream(events: &[Value]) -> String {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(event).collect()
}

fn start(index: Value, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: Value, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn text(index: u64, text: &str) -> Value {
    delta(json!(index), json!({"type": "text_delta", "text": text}))
}

fn thinking(index: u64, text: &str) -> Value {
    delta(json!(index), json!({"type": "thinking_delta", "thinking": text}))
}

fn signature(index: u64, text: &str) -> Value {
    delta(json!(index), json!({"type": "signature_delta", "signature": text}))
}

fn input(index: Value, json: Value) -> Value {
    delta(index, json!({"type": "input_json_delta", "partial_json": json}))
}

fn stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn end(reason: &str) -> [Value; 2] {
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {}}),
        json!({"type": "message_stop"}),
    ]
}

fn call(id: &str, name: &str, input: Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

/// The answer that these events are, with the begin and the end of a message around them.
fn answer(events: &[Value], reason: &str) -> Answer {
    let begin = json!({"type": "message_start", "message": {"role": "assistant", "content": [], "stop_reason": null}});
    let all = [&[begin, json!({"type": "ping"})], events, &end(reason)].concat();
    decode_in_all_ways(stream(&all).as_bytes()).unwrap()
}

fn check_answer(events: &[Value], reason: &str, expected: (&str, &str, Finish)) {
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
    assert_eq!(answer.finish, Finish::ToolCalls);
}

fn check_parts(events: &[Value], reason: &str, expected: Value) {
    let opaque = answer(events, reason).message.opaque;
    let parts = opaque.map(|opaque| {
        assert_eq!(&*opaque.origin.model, "m");
        opaque.parts.clone()
    });
    assert_eq!(json!(parts.unwrap_or_default()), expected);
}

fn check_failure(body: &str, class: FailureClass, says: &str) {
    let failure = decode_in_all_ways(body.as_bytes()).unwrap_err();
    assert_eq!(failure.class, class, "{failure}");
    assert!(failure.message.contains(says), "{failure}");
}

#[test]
fn text_and_reasoning_are_told_apart() {
    let blank = || json!({"type": "text", "text": ""});
    check_answer(
        &[start(json!(0), blank()), text(0, "a"), text(0, "ü")],
        "end_turn",
        ("aü", "", Finish::Stop),
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
    check_answer(&both, "stop_sequence", ("ab", "xy", Finish::Stop));
    // Blocks that nobody has begun.
    check_answer(&[thinking(0, "x"), text(1, "a"), text(0, "b")], "end_turn", ("ab", "x", Finish::Stop));
    let inline = [text(0, "<thi"), text(0, "nk>x</think>\n"), text(0, "a <"), stop(0), text(1, "b")];
    check_answer(&inline, "end_turn", ("a <b", "x", Finish::Stop));
    let unknown = [
        start(json!(0), json!({"type": "riddle", "text": "x"})),
        text(0, "y"),
        delta(json!(1), json!({"type": "citations_delta", "citation": {}})),
        json!({"type": "content_block_riddle"}),
        text(2, "a"),
    ];
    check_answer(&unknown, "end_turn", ("a", "", Finish::Stop));
}

#[test]
fn a_stop_reason_is_one_of_ours() {
    for (reason, finish) in [
        ("end_turn", Finish::Stop),
        ("stop_sequence", Finish::Stop),
        ("what", Finish::Stop),
        ("tool_use", Finish::Stop),
        ("max_tokens", Finish::Length),
        ("model_context_window_exceeded", Finish::Length),
        ("pause_turn", Finish::Length),
        ("refusal", Finish::Refused),
    ] {
        check_answer(&[text(0, "a")], reason, ("a", "", finish));
    }
    check_answer(&[], "refusal", ("", "", Finish::Refused));
}

#[test]
fn calls_are_put_together_however_they_come() {
    let begin = |index: u64, id, name| start(json!(index), call(id, name, json!({})));
    let at = |index: u64, json| input(json!(index), json!(json));
    // Interleaved, by index.
    let first = [begin(1, "a", "f"), begin(2, "b", "g"), at(1, "{\"x"), at(2, "{")];
    let then = [at(1, "\":1}"), at(2, "}"), stop(1), stop(2)];
    check_calls(&[&first[..], &then].concat(), &[("a", "f", "{\"x\":1}"), ("b", "g", "{}")]);
    // Nothing in pieces, or all at once, or both.
    check_calls(&[begin(0, "a", "f"), at(0, "")], &[("a", "f", "{}")]);
    check_calls(&[start(json!(0), call("a", "f", json!({"x": 1})))], &[("a", "f", "{\"x\":1}")]);
    let both = [start(json!(0), call("a", "f", json!({"x": 1}))), at(0, "{\"x\":"), at(0, "2}")];
    check_calls(&both, &[("a", "f", "{\"x\":2}")]);
    let begun = [start(json!(0), call("a", "f", json!("{\"x\""))), at(0, ":3}")];
    check_calls(&begun, &[("a", "f", "{\"x\":3}")]);
    check_calls(&[begin(0, "a", "f"), input(json!(0), json!({"x": [1]}))], &[("a", "f", "{\"x\":[1]}")]);
    // Neither index nor id; and one id for two.
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
    // All with index 0.
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
    // Behind the last that is kept nothing needs a place.
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
    // Without a signature a thought is unfinished, or of a vendor that does not sign and waits for the results.
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
        // One without a result, and a result of nothing.
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
    check_answer(&events, "end_turn", ("ab", "", Finish::Stop));
}

#[test]
fn tokens_are_counted_with_those_of_the_cache() {
    let begin = |usage: Value| json!({"type": "message_start", "message": {"usage": usage}});
    let last =
        |usage: Value| json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage});
    let check = |events: &[Value], expected: Option<[u64; 4]>| {
        let usage = decode_in_all_ways(stream(events).as_bytes()).unwrap().usage;
        let expected = expected.map(|[input_tokens, output_tokens, cached_tokens, cache_write_tokens]| {
            Usage { input_tokens, output_tokens, cached_tokens, cache_write_tokens, apart_tokens: 0 }
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

#[test]
fn an_error_may_come_in_place_of_the_rest() {
    let said = stream(&[text(0, "a")]);
    let check = |error: Value, class, says| {
        let event = json!({"type": "error", "error": error, "request_id": "r"});
        check_failure(&(said.clone() + &stream(&[event])), class, says);
    };
    check(
        json!({"type": "overloaded_error", "message": "Overloaded"}),
        FailureClass::Overloaded,
        "Overloaded",
    );
    let rate = FailureClass::RateLimited { retry_after_ms: None, reset_at: None };
    check(json!({"type": "rate_limit_error", "message": "slow"}), rate, "slow");
    check(json!({"type": "api_error", "message": "Internal server error"}), FailureClass::Server, "Internal");
    check(json!("oh"), FailureClass::Server, "oh");
    check(Value::Null, FailureClass::Server, "request_id");
    let long =
        json!({"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"});
    check(long, FailureClass::ContextTooLong { limit: Some(8) }, "8");
    check_failure("data: {\"error\":{\"type\":\"authentication_error\"}}\n\n", FailureClass::Auth, "auth");
}

#[test]
fn a_stream_without_an_end_is_cut() {
    let cut = |body: &str| check_failure(body, FailureClass::Cut, "");
    cut("");
    cut(&stream(&[text(0, "a"), stop(0)]));
    cut("data: {\"type\":\"content_block_delta\",\"del");
    cut("{\"type\":\"message\",\"content\":[{\"ty");
    cut("data: what\n\n");
    let asks = [start(json!(0), call("a", "f", json!({}))), input(json!(0), json!("{\"x"))];
    cut(&stream(&asks));
    cut(&stream(&[&asks[..], &[json!({"type": "message_stop"})]].concat()));
    // Every input begins as an empty object: it is one only if nothing was to follow.
    let [_, last] = end("tool_use");
    for begun in [json!({}), json!(""), Value::Null] {
        let begun = start(json!(0), call("a", "f", begun));
        cut(&stream(&[begun.clone(), last.clone()]));
        cut(&(stream(std::slice::from_ref(&begun)) + "data: [DONE]\n\n"));
        let answer = decode_in_all_ways(stream(&[begun, stop(0), last.clone()]).as_bytes()).unwrap();
        assert_eq!((answer.message.calls.len(), answer.finish), (1, Finish::ToolCalls));
    }
    let document = json!({"type": "message", "content": [call("a", "f", json!({}))]}).to_string();
    assert_eq!(&*decode_in_all_ways(document.as_bytes()).unwrap().message.calls[0].arguments, "{}");
}

#[test]
fn an_end_may_be_marked_in_one_way_only() {
    let [reason, last] = end("max_tokens");
    for (events, finish) in [([text(0, "a"), reason], Finish::Length), ([text(0, "a"), last], Finish::Stop)] {
        let body = stream(&events);
        for behind in ["", "event: data\ndata: [DONE]", ": bye\n\n", "data: {\"type\":\"mess"] {
            let answer = decode_in_all_ways((body.clone() + behind).as_bytes()).unwrap();
            assert_eq!((&*answer.message.text, answer.finish), ("a", finish));
        }
        assert!(decode([body.trim_end().as_bytes()], &Shown::default()).is_ok());
    }
}

#[test]
fn a_whole_document_is_an_answer_too() {
    let content = json!([
        {"type": "thinking", "thinking": "x", "signature": "s"},
        {"type": "text", "text": "a", "citations": []},
        call("i", "f", json!({"x": 1})),
    ]);
    let usage = json!({"input_tokens": 1, "output_tokens": 2});
    let document = json!({"type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use", "usage": usage});
    let answer = decode_in_all_ways(format!("\u{feff}\n{document:#}\n").as_bytes()).unwrap();
    let AssistantMessage { text, reasoning, calls, opaque } = &answer.message;
    assert_eq!((&**text, &**reasoning, &*calls[0].arguments), ("a", "x", "{\"x\":1}"));
    assert_eq!((opaque.is_some(), answer.finish), (true, Finish::ToolCalls));
    assert_eq!(answer.usage.map(|usage| usage.total()), Some(3));
    let error = "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}";
    check_failure(error, FailureClass::Overloaded, "Overloaded");
    check_failure("{\"detail\":\"Not allowed\"}", FailureClass::Server, "Not allowed");
    check_failure("{\"hello\":1}", FailureClass::NotAnApi, "{\"hello\":1}");
    check_failure("<html>\n<b>down</b>", FailureClass::NotAnApi, "<html> <b>down</b>");
}

#[test]
fn an_answer_has_a_limit() {
    let piece = stream(&[text(0, &"x".repeat(4 << 20))]);
    let mut decoder = Reader::new(draft());
    let results: Vec<_> = (0..9).map(|_| decoder.push(piece.as_bytes(), &Shown::default())).collect();
    assert_eq!(results[0], Ok(Progress::Content));
    assert!(matches!(&results[8], Err(failure) if failure.message.contains("larger")), "{results:?}");
    let many: Vec<_> = (0..2_000).map(|n| start(json!(n), call("a", "f", json!({})))).collect();
    check_failure(&stream(&many), FailureClass::Cut, "more than 1024 tool calls");
    let many: Vec<_> = (0..5_000).map(|n| text(n, "")).collect();
    check_failure(&stream(&many), FailureClass::Cut, "more than 4096 blocks");
}

#[test]
fn only_what_shows_something_is_progress() {
    let mut decoder = Reader::new(draft());
    let mut push =
        |event: &Value| decoder.push(stream(std::slice::from_ref(event)).as_bytes(), &Shown::default());
    let [reason, last] = end("end_turn");
    for quiet in [json!({"type": "ping"}), json!({"type": "message_start"}), stop(0), text(0, "")] {
        assert_eq!(push(&quiet), Ok(Progress::Quiet), "{quiet}");
    }
    for shows in [text(0, "a"), signature(1, "s"), start(json!(2), call("a", "f", json!({}))), reason] {
        assert_eq!(push(&shows), Ok(Progress::Content), "{shows}");
    }
    assert_eq!(push(&last), Ok(Progress::Done));
}

#[test]
fn bytes_that_are_no_text_are_made_visible() {
    let mut body = stream(&[text(0, "a?b")]).into_bytes();
    let at = body.iter().position(|byte| *byte == b'?').unwrap();
    body[at] = 0xff;
    body.extend_from_slice(stream(&end("end_turn")).as_bytes());
    assert_eq!(decode_in_all_ways(&body).unwrap().message.text, "a\u{fffd}b");
}

/// A stream with all that can be in one.
fn everything() -> String {
    let search = json!({"type": "server_tool_use", "id": "x", "name": "web_search", "input": {}});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "x", "content": []});
    let events = [
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 1}}}),
        start(json!(0), json!({"type": "thinking", "thinking": "", "signature": ""})),
        thinking(0, "ü"),
        signature(0, "s"),
        stop(0),
        json!({"type": "ping"}),
        start(json!(1), search),
        input(json!(1), json!("{}")),
        start(json!(2), found),
        text(3, "a <think>€</think> b"),
        start(json!(4), call("a", "f", json!({}))),
        input(json!(4), json!("{\"x\": 1}")),
    ];
    stream(&[&events[..], &end("tool_use")].concat())
}

#[test]
fn no_begin_of_a_stream_asks_for_other_calls() {
    let body = everything();
    let whole = decode([body.as_bytes()], &Shown::default()).unwrap();
    for at in 0..body.len() {
        let Ok(answer) = decode([&body.as_bytes()[..at]], &Shown::default()) else { continue };
        assert_eq!(answer.message, whole.message, "truncated at {at}");
    }
}

proptest! {
    #[test]
    fn cuts_change_nothing(cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let body = everything().replace('\n', "\r\n").into_bytes();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let parts = cuts.windows(2).map(|pair| &body[pair[0]..pair[1]]);
        prop_assert_eq!(decode(parts, &Shown::default()), decode([&body[..]], &Shown::default()));
    }

    #[test]
    fn no_bytes_make_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        insert in prop::sample::select(vec!["null", "[]", "{}", "-1", "1e99", "\"\"", "\n\n", "", "]"]),
    ) {
        let _any = decode([&bytes[..]], &Shown::default());
        let mut body = everything().into_bytes();
        let at = at.index(body.len());
        body.splice(at..at, insert.bytes());
        let whole = decode([&body[..]], &Shown::default());
        prop_assert_eq!(decode(body.chunks(1), &Shown::default()), whole);
        body.splice(at.., bytes);
        let _any = decode([&body[..]], &Shown::default());
    }
}
