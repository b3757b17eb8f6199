//! Property tests of the decoder: bytes and events that no vendor should send, and their limits.

use hermod_actors::model::FailureClass;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::events::*;
use crate::provider::{
    codex_responses::{decode::ResponsesDecoder, slot::ItemSlot},
    reader::AnswerDecoder as _,
};

/// The message of the first event that is refused.
fn refusal<'a>(events: impl IntoIterator<Item = &'a str>) -> String {
    let (mut decoder, nobody) = (reader(), Shown::default());
    let refused = events.into_iter().find_map(|event| decoder.push(event.as_bytes(), &nobody).err());
    let failure = refused.unwrap();
    assert_eq!(failure.class, FailureClass::IncompleteStream);
    failure.message
}

#[test]
fn an_answer_has_a_limit() {
    let piece = stream(&[delta("output_text", 0, &"x".repeat(8 << 20))]);
    assert!(refusal([&*piece; 5]).contains("larger"));
    // Text that is replaced and sent again counts twice, because it was shown.
    let taken_back = stream(&[event("output_text.done", 0, "i0", json!({"text": "x"}))]);
    assert!(refusal([&*piece, &taken_back].repeat(5)).contains("larger"));
}

#[test]
fn an_answer_has_so_many_items_and_parts() {
    let check = |events: Vec<Value>| {
        let message = refusal([&*stream(&events)]);
        assert!(message.contains("more than 1024 items"), "{message}");
    };
    check((0..2_000).map(|n| item("added", n, call(n, "f", ""))).collect());
    check((0..2_000).map(|n| delta("function_call_arguments", n, "{")).collect());
    let part = |n| event("output_text.delta", 0, "i0", json!({"delta": "x", "content_index": n}));
    check((0..2_000).map(part).collect());
    let parts = vec![json!({"type": "output_text", "text": "x"}); 1_025];
    check(vec![completed(&[json!({"type": "message", "content": parts})])]);
    check(vec![completed(&vec![message(0, "x"); 1_025])]);
}

proptest! {
    #[test]
    fn a_cut_anywhere_changes_nothing(cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let body = stream(&usual());
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.index(body.len())).chain([0, body.len()]).collect();
        cuts.sort_unstable();
        let parts = cuts.windows(2).map(|ends| &body.as_bytes()[ends[0]..ends[1]]);
        let shown = Shown::default();
        prop_assert_eq!(decode(parts, &shown), Ok(answer(&usual())));
    }

    #[test]
    fn events_in_any_order_never_make_it_panic(order in Just(usual()).prop_shuffle(), twice in any::<prop::sample::Index>()) {
        let mut events = order;
        events.retain(|event| event["type"] != "response.completed");
        events.push(events[twice.index(events.len())].clone());
        let mut draft = ResponsesDecoder::default();
        for event in &events {
            let text = event.to_string();
            let event = serde_json::from_str(&text).unwrap();
            prop_assert!(draft.push_event(event, text.as_bytes(), &Shown::default()).is_ok());
            // The counted size is that of the held items.
            let held: usize = draft.items().slots().iter().map(ItemSlot::size).sum();
            prop_assert_eq!(draft.items().size(), held);
        }
        let (streamed, _) = decode_in_all_ways(stream(&[&events[..], &[completed(&[])]].concat()).as_bytes());
        prop_assert_eq!(streamed.unwrap().message.calls.len(), 2);
    }

    #[test]
    fn no_bytes_make_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        insert in prop::sample::select(vec!["null", "[]", "{}", "-1", "1e99", "\"\"", "\n\n", "", "]"]),
    ) {
        let _any = decode([&bytes[..]], &Shown::default());
        let body = stream(&usual());
        let at = at.index(body.len());
        let mut body = body.into_bytes();
        body.splice(at..at, insert.bytes());
        let _any = decode_in_all_ways(&body);
        let at = at.min(body.len());
        body.splice(at.., bytes);
        let _any = decode_in_all_ways(&body);
    }
}
