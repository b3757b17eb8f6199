//! Tests of the Chat Completions provider.

#![allow(clippy::needless_pass_by_value)] // `json!` makes values, and references to them would only be noise

use std::sync::{Arc, Mutex};

use hermod_actors::{
    model::{
        AnswerOrigin, AssistantMessage, Failure, FailureClass, FinishReason, ModelAnswer, ToolCall, Usage,
    },
    port::DeltaSink,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::ChatDecoder;
use crate::provider::{
    reader::ResponseReader,
    wire::{DecodeProgress, Decoder},
};

/// Collects the text and reasoning that watchers are shown.
#[derive(Default)]
struct Shown(Mutex<(String, String)>);

impl DeltaSink for Shown {
    fn text(&self, delta: &str) {
        self.0.lock().unwrap().0.push_str(delta);
    }
    fn reasoning(&self, delta: &str) {
        self.0.lock().unwrap().1.push_str(delta);
    }
}

fn origin() -> Arc<AnswerOrigin> {
    Arc::new(AnswerOrigin { provider: "p".into(), wire: "chat_completions".into(), model: "m".into() })
}

fn decode<'a>(parts: impl IntoIterator<Item = &'a [u8]>, shown: &Shown) -> Result<ModelAnswer, Failure> {
    let mut decoder = Box::new(ResponseReader::<ChatDecoder>::new(origin()));
    for part in parts {
        decoder.push(part, shown)?;
    }
    decoder.finish(shown)
}

/// Checks that the body decodes to this result, also byte by byte, and that the shown text equals the answer's.
fn decode_in_all_ways(body: &[u8]) -> Result<ModelAnswer, Failure> {
    let shown = Shown::default();
    let answer = decode([body], &shown);
    assert_eq!(decode(body.chunks(1), &Shown::default()), answer);
    let shown = shown.0.into_inner().unwrap();
    if let Ok(ModelAnswer {
        message,
        finish: FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Length,
        ..
    }) = &answer
    {
        assert_eq!((&message.text, &message.reasoning), (&shown.0, &shown.1));
    }
    answer
}

fn stream(chunks: &[Value]) -> String {
    chunks.iter().flat_map(|chunk| ["data: ".to_owned(), chunk.to_string(), "\n\n".to_owned()]).collect()
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn check_answer(chunks: &[Value], text: &str, reasoning: &str, finish: FinishReason) {
    let answer = decode_in_all_ways(stream(chunks).as_bytes()).unwrap();
    let AssistantMessage { text: said, reasoning: thought, .. } = &answer.message;
    assert_eq!((&**said, &**thought, answer.finish), (text, reasoning, finish));
}

fn check_calls(calls: &[Value], expected: &[(&str, &str, &str)]) {
    let mut chunks: Vec<_> = calls.iter().map(|call| delta(json!({"tool_calls": [call]}))).collect();
    chunks.push(finish("stop"));
    let answer = decode_in_all_ways(stream(&chunks).as_bytes()).unwrap();
    let call = |(id, name, arguments): &(&str, &str, &str)| ToolCall {
        id: (*id).into(),
        name: (*name).into(),
        arguments: (*arguments).into(),
    };
    assert_eq!(answer.message.calls, expected.iter().map(call).collect::<Vec<_>>());
    assert_eq!(answer.finish, FinishReason::ToolCalls);
}

fn check_failure(body: &str, class: FailureClass, says: &str) {
    let failure = decode_in_all_ways(body.as_bytes()).unwrap_err();
    assert_eq!(failure.class, class, "{failure}");
    assert!(failure.message.contains(says), "{failure}");
}

#[test]
fn text_and_reasoning_are_told_apart() {
    let said = |text: &str| delta(json!({"content": text}));
    check_answer(&[said("a"), said("ü"), finish("stop")], "aü", "", FinishReason::Stop);
    check_answer(
        &[said("<thi"), said("nk>a</think>\n"), said("b"), finish("eos")],
        "b",
        "a",
        FinishReason::Stop,
    );
    let thought = json!({"content": null, "reasoning_content": "a", "reasoning": "a"});
    check_answer(&[delta(thought), said("b"), finish("length")], "b", "a", FinishReason::Length);
    let thought = json!([{"type": "text", "text": "a"}]);
    let parts =
        json!({"content": [{"type": "thinking", "thinking": thought}, {"type": "text", "text": "b"}]});
    check_answer(&[delta(parts), said("c"), finish("stop")], "bc", "a", FinishReason::Stop);
}

#[test]
fn a_refusal_is_one_whatever_the_finish_reason() {
    let refusal = |text: &str| delta(json!({"content": "", "refusal": text}));
    check_answer(&[refusal("I "), refusal("can't"), finish("stop")], "I can't", "", FinishReason::Refused);
    check_answer(&[delta(json!({"content": "a"})), finish("content_filter")], "a", "", FinishReason::Refused);
}

#[test]
fn calls_are_put_together_however_they_come() {
    let call = |index: Value, id: Value, name: &str, arguments: Value| json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}});
    let no = || Value::Null;
    // Interleaved, by index.
    let first = [call(json!(0), json!("a"), "f", json!("{\"x")), call(json!(1), json!("b"), "g", json!("{"))];
    let then = [call(json!(0), no(), "", json!("\":1}")), call(json!(1), no(), "", json!("}"))];
    check_calls(&[first, then].concat(), &[("a", "f", "{\"x\":1}"), ("b", "g", "{}")]);
    // Id and name with every piece.
    let again = |arguments| call(json!(0), json!("a"), "f", json!(arguments));
    check_calls(&[again("{"), again("}")], &[("a", "f", "{}")]);
    // The name in pieces.
    let part = |name| call(json!(3), no(), name, json!(""));
    check_calls(&[part("read_"), part("file")], &[("call_0", "read_file", "")]);
    // Without index and id; and with arguments that are not text.
    let bare = |name, arguments| call(no(), no(), name, arguments);
    let bares = [bare("f", json!("{")), bare("", json!("}")), bare("g", json!({"x": [1]}))];
    check_calls(&bares, &[("call_0", "f", "{}"), ("call_1", "g", "{\"x\":[1]}")]);
    // All calls with index 0; and one id for two calls.
    let zero = |id, name| call(json!(0), json!(id), name, json!("{}"));
    check_calls(&[zero("a", "f"), zero("b", "g")], &[("a", "f", "{}"), ("b", "g", "{}")]);
    let same = |index, id| call(json!(index), json!(id), "f", json!("{}"));
    check_calls(
        &[same(0, "a"), same(1, "a"), same(2, "call_1")],
        &[("a", "f", "{}"), ("call_1", "f", "{}"), ("call_2", "f", "{}")],
    );
    // Blank slots are no calls.
    check_calls(&[zero("a", "f"), json!({"index": 1, "function": null})], &[("a", "f", "{}")]);
}

#[test]
fn the_last_usage_that_says_something_counts() {
    let usage = |fields: Value| json!({"choices": [], "usage": fields});
    let check = |chunks: &[Value], expected: Option<Usage>| {
        let body = stream(&[&[finish("stop")], chunks].concat()) + "data: [DONE]\n\n";
        assert_eq!(decode_in_all_ways(body.as_bytes()).unwrap().usage, expected);
    };
    let of = |input_tokens, output_tokens, cached_tokens| {
        Some(Usage { input_tokens, output_tokens, cached_tokens, ..Usage::default() })
    };
    check(&[], None);
    let zero = usage(json!({"prompt_tokens": 0, "completion_tokens": null}));
    check(&[usage(json!(null)), zero.clone()], of(0, 0, 0));
    let details = json!({"cached_tokens": 3});
    let first = json!({"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": null});
    let last = json!({"prompt_tokens": 9.0, "completion_tokens": "2", "prompt_tokens_details": details});
    check(&[usage(first), usage(last), zero], of(9, 2, 3));
    check(&[usage(json!({"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}))], of(9, 0, 4));
}

#[test]
fn an_error_may_come_in_place_of_the_rest() {
    let said = stream(&[delta(json!({"content": "a"}))]);
    let check = |error: Value, class, says| {
        check_failure(&(said.clone() + &stream(&[json!({"error": error})])), class, says);
    };
    let rate = FailureClass::RateLimited { retry_after_ms: None, reset_at: None };
    check(json!({"code": 429, "message": "slow"}), rate.clone(), "slow");
    check(json!({"type": "rate_limit_error", "message": "slow"}), rate, "slow");
    check(json!({"code": "server_error", "message": "oh"}), FailureClass::Server, "oh");
    check(json!("overloaded"), FailureClass::Overloaded, "overloaded");
    check(json!({"code": 502}), FailureClass::Overloaded, "502");
    let long = json!({"message": "maximum context length is 8 tokens"});
    check(long, FailureClass::ContextTooLong { limit: Some(8) }, "8");
    check_failure(&stream(&[finish("error")]), FailureClass::Server, "`error`");
}

#[test]
fn a_stream_without_an_end_is_cut() {
    let cut = |body: &str| check_failure(body, FailureClass::IncompleteStream, "");
    cut("");
    cut("\n \n");
    cut(&stream(&[delta(json!({"content": "a"}))]));
    cut("data: {\"choices\":[{\"delta\":{\"con");
    cut("{\"choices\":[{\"message\":{\"con");
    cut("data: what\n\n");
    for arguments in ["", " ", "{\"x"] {
        let call = json!({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": arguments}}]});
        cut(&(stream(&[delta(call)]) + "data: [DONE]\n\n"));
    }
}

#[test]
fn an_end_may_be_marked_in_one_way_only() {
    let body = stream(&[delta(json!({"content": "a"}))]) + ": bye\n\ndata: [DONE]";
    assert_eq!(decode_in_all_ways(body.as_bytes()).unwrap().finish, FinishReason::Stop);
    let body = stream(&[finish("length")]) + "data: {\"usage\":{\"pro";
    assert_eq!(decode_in_all_ways(body.as_bytes()).unwrap().finish, FinishReason::Length);
}

#[test]
fn an_odd_event_does_not_cost_the_answer() {
    let check = |odd: &str| {
        let said = r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#;
        let end = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}"#;
        let body = format!("data: {said}\n\ndata: {odd}\n\ndata: {end}\n\n");
        let answer = decode_in_all_ways(body.as_bytes()).unwrap();
        assert_eq!((&*answer.message.text, answer.finish), ("a", FinishReason::Length), "{odd}");
    };
    let any = ["-1", "1.5", "1", "true", "\"x\"", "null", "{}", "{\"x\":[{}]}", "[]", "[null,-1,{}]"];
    for odd in any {
        check(&format!(r#"{{"usage":{odd},"choices":[]}}"#));
        check(&format!(r#"{{"choices":{odd}}}"#));
        check(&format!(r#"{{"choices":[{{"delta":{odd}}}]}}"#));
        check(&format!(r#"{{"choices":[{{"delta":{{"tool_calls":{odd},"reasoning_details":{odd}}}}}]}}"#));
    }
    // After the end, nothing changes the answer.
    let body = stream(&[delta(json!({"content": "a"})), finish("stop")]);
    for odd in ["data: what\n\n", "data: {\"choices\":[{\"delta\":{\"content\":1}\n\n"] {
        let body = format!("{body}{odd}{}", stream(&[delta(json!({"content": "b"}))]));
        assert_eq!(decode_in_all_ways(body.as_bytes()).unwrap().message.text, "a");
    }
}

#[test]
fn a_whole_document_is_an_answer_too() {
    let message =
        json!({"content": "a", "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": "{}"}}]});
    let document = json!({"object": "chat.completion", "usage": {"prompt_tokens": 1},
        "choices": [{"delta": {"content": ""}, "message": message, "finish_reason": "tool_calls"}]});
    let answer = decode_in_all_ways(format!("\u{feff}\n{document:#}\n").as_bytes()).unwrap();
    assert_eq!(
        (&*answer.message.text, answer.message.calls.len(), answer.finish),
        ("a", 1, FinishReason::ToolCalls)
    );
    check_failure("[{\"error\":{\"code\":503}}]", FailureClass::Overloaded, "503");
    check_failure("{\"detail\":\"Not allowed\"}", FailureClass::Server, "Not allowed");
}

#[test]
fn what_is_no_answer_is_shown() {
    check_failure("<html>\n<b>down</b>", FailureClass::NotAnApi, "<html> <b>down</b>");
    check_failure("upstream is down", FailureClass::NotAnApi, "upstream is down");
    check_failure("{\"hello\":1}", FailureClass::NotAnApi, "{\"hello\":1}");
}

#[test]
fn an_answer_has_a_limit() {
    let piece = stream(&[delta(json!({"content": "x".repeat(4 << 20)}))]);
    let mut decoder = ResponseReader::<ChatDecoder>::new(origin());
    let results: Vec<_> = (0..9).map(|_| decoder.push(piece.as_bytes(), &Shown::default())).collect();
    assert_eq!(results[0], Ok(DecodeProgress::Content));
    assert!(matches!(&results[8], Err(failure) if failure.message.contains("larger")), "{results:?}");
    let call = |n| json!({"index": n, "id": format!("{n}"), "function": {"name": "f"}});
    let many: Vec<_> = (0..2_000).map(|n| delta(json!({"tool_calls": [call(n)]}))).collect();
    check_failure(&stream(&many), FailureClass::IncompleteStream, "more than 1024 tool calls");
    let details = delta(json!({"reasoning_details": vec![json!({"type": "reasoning.text"}); 1_025]}));
    check_failure(&stream(&[details]), FailureClass::IncompleteStream, "more than 1024 reasoning details");
    let large = "x".repeat(4 << 20);
    let id = |n: usize| json!({"index": n, "id": large, "function": {"name": "f"}});
    let extra = |_: usize| json!({"index": 0, "extra_content": {"x": [large]}});
    for call in [&id as &dyn Fn(usize) -> Value, &extra] {
        let calls: Vec<_> = (0..9).map(|n| delta(json!({"tool_calls": [call(n)]}))).collect();
        let failure = decode([stream(&calls).as_bytes()], &Shown::default()).unwrap_err();
        assert!(failure.message.contains("larger"), "{failure}");
    }
}

#[test]
fn bytes_that_are_no_text_are_made_visible() {
    let body = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\xffb\"},\"finish_reason\":\"stop\"}]}\n\n";
    assert_eq!(decode_in_all_ways(body).unwrap().message.text, "a\u{fffd}b");
    let check = |escaped: &str, text: &str| {
        let body = format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{escaped}\"}},\"finish_reason\":\"stop\"}}]}}\n\n"
        );
        assert_eq!(decode_in_all_ways(body.as_bytes()).unwrap().message.text, text, "{escaped}");
    };
    check(r"a\ud83d", "a\u{fffd}");
    check(r"\ude00\ud83d\ud83d\ude00ü\uDBFF\n", "\u{fffd}\u{fffd}\u{1f600}ü\u{fffd}\n");
    check(r"\ud83d\\ud83d \\\ud83d", "\u{fffd}\\ud83d \\\u{fffd}");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        insert in prop::sample::select(vec!["null", "[]", "{}", "-1", "1e99", "\"\"", "\n\n", "", "]"]),
    ) {
        let _any = decode([&bytes[..]], &Shown::default());
        let call = json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}});
        let all = delta(json!({"content": "a", "reasoning": "b", "refusal": "c", "tool_calls": [call]}));
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 1}, "error": null});
        let body = stream(&[all, usage, finish("stop")]);
        let at = at.index(body.len());
        let mut body = body.into_bytes();
        body.splice(at..at, insert.bytes());
        let _any = decode_in_all_ways(&body);
        let at = at.min(body.len());
        body.splice(at.., bytes);
        let _any = decode_in_all_ways(&body);
    }
}

#[test]
fn what_comes_with_calls_is_kept_for_its_maker() {
    let parts = |chunks: &[Value]| {
        let answer = decode_in_all_ways(stream(chunks).as_bytes()).unwrap();
        answer.message.opaque.map(|opaque| (Arc::clone(opaque.origin()), opaque.parts().to_vec()))
    };
    let thought = delta(json!({"reasoning_content": "hm"}));
    let detail =
        delta(json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "index": 0}]}));
    let function = json!({"name": "f", "arguments": "{}"});
    let signed = json!({"index": 0, "id": "a", "function": function, "extra_content": {"google": {"s": 1}}});
    let call = delta(json!({"tool_calls": [signed]}));
    let expect = vec![
        json!({"field": "reasoning_content"}),
        json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x", "index": 0}]}),
        json!({"call": 0, "extra_content": {"google": {"s": 1}}}),
    ];
    let all = [thought.clone(), detail, call, finish("tool_calls")];
    assert_eq!(parts(&all), Some((origin(), expect)));
    assert_eq!(
        parts(&[thought, delta(json!({"content": "said"})), finish("stop")]),
        None,
        "no call, no need"
    );
}

#[test]
fn reasoning_that_the_output_leaves_out_is_counted_apart() {
    let usage = |total: u64| {
        let details = json!({"reasoning_tokens": 30});
        let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": total,
            "completion_tokens_details": details});
        let body = stream(&[finish("stop"), json!({"choices": [], "usage": usage})]);
        let usage = decode_in_all_ways(body.as_bytes()).unwrap().usage.unwrap();
        (usage.output_tokens, usage.unlisted_reasoning_tokens, usage.total())
    };
    assert_eq!(usage(45), (5, 30, 45));
    assert_eq!(usage(15), (5, 0, 15));
}

#[test]
fn state_that_no_record_can_carry_makes_the_answer_unusable() {
    let nested = |depth: usize| {
        let state = (0..depth).fold(json!(1), |inner, _| json!([inner]));
        let function = json!({"name": "f", "arguments": "{}"});
        let call = json!({"index": 0, "id": "a", "function": function, "extra_content": state});
        stream(&[delta(json!({"tool_calls": [call]})), finish("tool_calls")])
    };
    // The serialized object adds the call's number around the state.
    assert!(decode_in_all_ways(nested(63).as_bytes()).unwrap().message.opaque.is_some());
    check_failure(&nested(64), FailureClass::IncompleteStream, "nests more than 64 arrays or objects");
}
