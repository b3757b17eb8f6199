//! Property tests of the decoder: arbitrary bytes, and streams cut at any position.

use proptest::prelude::*;
use serde_json::json;

use super::events::*;

#[test]
fn bytes_that_are_no_text_are_made_visible() {
    let mut body = stream(&[text(0, "a?b")]).into_bytes();
    let at = body.iter().position(|byte| *byte == b'?').unwrap();
    body[at] = 0xff;
    body.extend_from_slice(stream(&end("end_turn")).as_bytes());
    assert_eq!(decode_in_all_ways(&body).unwrap().message.text, "a\u{fffd}b");
}

/// A stream with every kind of event and block.
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
