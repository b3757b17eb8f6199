use hermod_actors::model::{Answer, FailureClass, Finish, Usage};
use serde_json::{Value, json};

use super::events::*;
use crate::provider::wire::Progress;

fn check(events: &[Value], text: &str, reasoning: &str, finish: Finish) {
    let Answer { message, finish: found, .. } = answer(events);
    assert_eq!((&*message.text, &*message.reasoning, found), (text, reasoning, finish), "{events:?}");
}

fn check_calls(events: &[Value], expected: &[(&str, &str, &str)]) {
    let answer = answer(events);
    let found: Vec<_> =
        answer.message.calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
    assert_eq!(found, expected, "{events:?}");
    assert_eq!(answer.finish, if expected.is_empty() { Finish::Stop } else { Finish::ToolCalls });
}

/// A usual stream: thought, text and two calls that come interleaved.
pub(super) fn usual() -> Vec<Value> {
    let output = [thought(0, "hm", "x1"), message(1, "Hello"), call(2, "f", "{\"x\":1}"), call(3, "g", "{}")];
    let mut events = vec![
        json!({"type": "response.created", "response": {"status": "in_progress", "output": []}}),
        json!({"type": "response.in_progress", "response": {"status": "in_progress"}}),
        item("added", 0, thought(0, "", "x0")),
        event(
            "reasoning_summary_part.added",
            0,
            "i0",
            json!({"summary_index": 0, "part": {"type": "summary_text", "text": ""}}),
        ),
        event("reasoning_summary_text.delta", 0, "i0", json!({"summary_index": 0, "delta": "hm"})),
        event("reasoning_summary_text.done", 0, "i0", json!({"summary_index": 0, "text": "hm"})),
        event(
            "reasoning_summary_part.done",
            0,
            "i0",
            json!({"summary_index": 0, "part": {"type": "summary_text", "text": "hm"}}),
        ),
        item("done", 0, output[0].clone()),
        item("added", 1, message(1, "")),
        event(
            "content_part.added",
            1,
            "i1",
            json!({"content_index": 0, "part": {"type": "output_text", "text": ""}}),
        ),
        delta("output_text", 1, "Hel"),
        delta("output_text", 1, "lo"),
        event("output_text.done", 1, "i1", json!({"content_index": 0, "text": "Hello"})),
        event(
            "content_part.done",
            1,
            "i1",
            json!({"content_index": 0, "part": {"type": "output_text", "text": "Hello"}}),
        ),
        item("done", 1, output[1].clone()),
        item("added", 2, call(2, "f", "")),
        delta("function_call_arguments", 2, "{\"x"),
        item("added", 3, call(3, "g", "")),
        delta("function_call_arguments", 3, "{"),
        delta("function_call_arguments", 2, "\":1}"),
        event("function_call_arguments.done", 2, "i2", json!({"arguments": "{\"x\":1}"})),
        item("done", 2, output[2].clone()),
        delta("function_call_arguments", 3, "}"),
        item("done", 3, output[3].clone()),
    ];
    events.push(completed(&output));
    events
}

const CALLS: [(&str, &str, &str); 2] = [("c2", "f", "{\"x\":1}"), ("c3", "g", "{}")];

/// The events but those whose type has one of these in it.
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
        check(&events, "Hello", "hm", Finish::ToolCalls);
        check_calls(&events, &CALLS);
    }
    // The final response of some vendors has an empty output.
    for missing in [&["completed"][..], &["completed", "delta"], &["completed", "item.done"]] {
        let mut events = without(missing);
        events.push(completed(&[]));
        check(&events, "Hello", "hm", Finish::ToolCalls);
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
        check(&events, "Hello", "hm", Finish::ToolCalls);
        check_calls(&events, &CALLS);
    }
    // One vendor gives the same item another id with every event.
    let ids = |n: u64| json!({"type": "message", "id": format!("x{n}"), "content": [{"type": "output_text", "text": "ab"}]});
    let deltas = ["a", "b"].map(|text| event("output_text.delta", 0, text, json!({"delta": text})));
    check(
        &[&[item("added", 0, ids(1))], &deltas[..], &[item("done", 0, ids(2)), completed(&[ids(3)])]]
            .concat(),
        "ab",
        "",
        Finish::Stop,
    );
    // One without either, item by item.
    let plain = |name: &str, delta: &str| json!({"type": format!("response.{name}.delta"), "delta": delta});
    check(
        &[plain("reasoning_text", "a"), plain("output_text", "b"), plain("output_text", "c"), completed(&[])],
        "bc",
        "a",
        Finish::Stop,
    );
    let whole = |text: &str| {
        let content = [json!({"type": "output_text", "text": text})];
        json!({"type": "response.output_item.done", "item": {"type": "message", "content": content}})
    };
    check(&[plain("output_text", "a"), whole("ab"), whole("c"), completed(&[])], "abc", "", Finish::Stop);
    // One with ids alone, another one with every event.
    let mut renamed = vec![item("added", 0, message(1, ""))];
    renamed.extend(
        [("x2", "hel"), ("x3", "lo")]
            .map(|(id, text)| event("output_text.delta", 0, id, json!({"delta": text}))),
    );
    renamed.push(item("done", 0, message(4, "hello")));
    renamed.iter_mut().for_each(|event| drop(event.as_object_mut().unwrap().remove("output_index")));
    check(&[&renamed[..], &[completed(&[])]].concat(), "hello", "", Finish::Stop);
    // One that says the same place of all.
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
    // Not compared as texts, which would be printed.
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
    // An item that the vendor has thought better of.
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
        Finish::Stop,
    );
    check(
        &[item("done", 0, whole.clone()), item("done", 1, thought(1, "e", "")), completed(&[])],
        "",
        "ab\n\nc\n\nd\n\ne",
        Finish::Stop,
    );
    check(&[completed(&[whole])], "", "ab\n\nc\n\nd", Finish::Stop);
}

#[test]
fn a_block_of_reasoning_in_the_text_is_none_of_it() {
    let text = "<think>hm</think>\n\nyes";
    for cut in 1..text.len() {
        let deltas = [&text[..cut], &text[cut..]].map(|piece| delta("output_text", 0, piece));
        check(&[&deltas[..], &[completed(&[message(0, text)])]].concat(), "yes", "hm", Finish::Stop);
    }
    check(&[completed(&[thought(0, "a", ""), message(1, text)])], "yes", "a\n\nhm", Finish::Stop);
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
    check(&events, "found", "", Finish::Stop);
    let mut decoder = reader();
    let mut progress = |event: &Value| {
        decoder.push(stream(std::slice::from_ref(event)).as_bytes(), &Shown::default()).unwrap()
    };
    assert_eq!(progress(&json!({"type": "response.in_progress", "response": {}})), Progress::Quiet);
    assert_eq!(progress(&json!({"type": "keepalive", "sequence_number": 3})), Progress::Quiet);
    assert_eq!(progress(&events[1]), Progress::Content);
    assert_eq!(progress(&delta("output_text", 1, "")), Progress::Quiet);
    assert_eq!(progress(&events[5]), Progress::Done);
}

#[test]
fn an_answer_ends_as_the_vendor_says() {
    let of = |status: &str, reason: Value| {
        ended(
            status,
            json!({"status": status, "output": [message(0, "a")], "incomplete_details": {"reason": reason}}),
        )
    };
    check(&[of("incomplete", json!("max_output_tokens"))], "a", "", Finish::Length);
    check(&[of("incomplete", Value::Null)], "a", "", Finish::Length);
    check(&[of("incomplete", json!("content_filter"))], "a", "", Finish::Refused);
    check(&[ended("incomplete", json!({"incomplete_details": null}))], "", "", Finish::Length);
    // What the response says goes before how its event is named.
    check(&[ended("completed", json!({"status": "incomplete"}))], "", "", Finish::Length);
    check(&[ended("done", json!({"output": [message(0, "a")]}))], "a", "", Finish::Stop);
    check_failure(&stream(&[of("incomplete", json!("tea time"))]), FailureClass::Cut, "`tea time`");
    check_failure(&stream(&[ended("cancelled", json!({}))]), FailureClass::Cut, "cancelled");
    check_failure(
        &stream(&[ended("failed", json!({"status": "failed", "error": null}))]),
        FailureClass::Server,
        "failed",
    );
}

#[test]
fn a_refusal_is_one() {
    let refusal =
        json!({"type": "message", "id": "i0", "content": [{"type": "refusal", "refusal": "I can't"}]});
    check(
        &[delta("refusal", 0, "I "), delta("refusal", 0, "can't"), completed(&[])],
        "I can't",
        "",
        Finish::Refused,
    );
    check(
        &[
            delta("refusal", 0, "I "),
            event("refusal.done", 0, "i0", json!({"refusal": "I can't"})),
            completed(std::slice::from_ref(&refusal)),
        ],
        "I can't",
        "",
        Finish::Refused,
    );
    check(&[completed(&[refusal])], "I can't", "", Finish::Refused);
}

#[test]
fn an_error_may_come_in_place_of_the_rest() {
    let check = |event: Value, class, says| {
        check_failure(&stream(&[delta("output_text", 0, "a"), event]), class, says);
    };
    let rate = FailureClass::RateLimited { retry_after_ms: None, reset_at: None };
    check(
        json!({"type": "error", "error": {"code": "rate_limit_exceeded", "message": "slow"}}),
        rate.clone(),
        "slow",
    );
    check(
        json!({"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": null}),
        rate,
        "slow",
    );
    check(json!({"error": {"code": 503, "message": "later"}}), FailureClass::Overloaded, "later");
    let failed =
        |code: &str| ended("failed", json!({"status": "failed", "error": {"code": code, "message": "m"}}));
    check(failed("server_error"), FailureClass::Server, "m");
    check(failed("context_length_exceeded"), FailureClass::ContextTooLong { limit: None }, "m");
}

#[test]
fn a_stream_without_an_end_is_cut() {
    let cut = |body: &str| check_failure(body, FailureClass::Cut, "");
    cut("");
    let events = usual();
    for count in 1..events.len() {
        cut(&(stream(&events[..count]) + ": bye\n\n"));
        cut(&(stream(&events[..count]) + "data: [DONE]\n\n"));
    }
    cut("data: {\"type\":\"response.comp");
    cut("data: what\n\n");
    // An end in the middle of a call.
    let done =
        |arguments: &str| event("function_call_arguments.done", 0, "i0", json!({"arguments": arguments}));
    let begun = [item("added", 0, call(0, "f", ""))];
    let half = [begun[0].clone(), delta("function_call_arguments", 0, "{\"x")];
    cut(&stream(&[&begun[..], &[completed(&[])]].concat()));
    cut(&stream(&[&half[..], &[completed(&[])]].concat()));
    check_calls(&[&begun[..], &[done(""), completed(&[])]].concat(), &[("c0", "f", "")]);
    check_calls(&[&half[..], &[done("{\"x\":1}"), completed(&[])]].concat(), &[("c0", "f", "{\"x\":1}")]);
    let of = |status: &str| {
        let mut call = call(0, "f", "{}");
        call["status"] = json!(status);
        call
    };
    for status in ["in_progress", "incomplete"] {
        cut(&json!({"object": "response", "status": "completed", "output": [of(status)]}).to_string());
        check_calls(&[&begun[..], &[done("{}"), completed(&[of(status)])]].concat(), &[("c0", "f", "{}")]);
    }
    check_calls(&[completed(&[of("completed")])], &[("c0", "f", "{}")]);
    // What other servers put behind the end.
    let whole = stream(&events);
    for body in
        [whole.clone() + "data: [DONE]\n\n", whole.clone() + "data: {\"half", whole.trim_end().to_owned()]
    {
        assert_eq!(decode_in_all_ways(body.as_bytes()).0.unwrap().message.text, "Hello");
    }
}

#[test]
fn a_whole_document_is_an_answer_too() {
    let document = |status: Value, error: Value| {
        json!({"object": "response", "status": status, "error": error, "output": [message(0, "a"), call(1, "f", "{}")]}).to_string()
    };
    let (answer, shown) =
        decode_in_all_ways(format!("\u{feff}\n{}\n", document(json!("completed"), Value::Null)).as_bytes());
    let answer = answer.unwrap();
    assert_eq!((&*answer.message.text, answer.message.calls.len(), &*shown.0), ("a", 1, "a"));
    assert!(decode_in_all_ways(document(Value::Null, Value::Null).as_bytes()).0.is_ok());
    check_failure(&document(json!("queued"), Value::Null), FailureClass::Cut, "`queued`");
    check_failure(
        &document(json!("failed"), json!({"code": "server_error", "message": "oh"})),
        FailureClass::Server,
        "oh",
    );
    check_failure(&document(Value::Null, json!("overloaded")), FailureClass::Overloaded, "overloaded");
    check_failure(
        "{\"error\":{\"message\":\"bad key\",\"code\":\"invalid_api_key\"}}",
        FailureClass::Auth,
        "bad key",
    );
    check_failure("{\"hello\":1}", FailureClass::NotAnApi, "{\"hello\":1}");
    check_failure("{\"output\":[{\"type\":\"mess", FailureClass::Cut, "");
}

#[test]
fn the_usage_is_that_of_the_final_response() {
    let check = |usage: Value, expected: Option<(u64, u64, u64, u64)>| {
        let found = answer(&[ended("completed", json!({"output": [], "usage": usage}))]).usage;
        let expected = expected.map(|(input_tokens, output_tokens, cached_tokens, cache_write_tokens)| {
            Usage { input_tokens, output_tokens, cached_tokens, cache_write_tokens, apart_tokens: 0 }
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

#[test]
fn bytes_that_are_no_text_are_made_visible() {
    let body = b"data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\xffb\"}\n\ndata: {\"type\":\"response.completed\"}\n\n";
    assert_eq!(decode_in_all_ways(body).0.unwrap().message.text, "a\u{fffd}b");
}
