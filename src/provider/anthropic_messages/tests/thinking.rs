//! Tests of the thinking options of requests, and of the reasoning that is sent back.

use hermod_actors::{
    model::{AssistantMessage, Message, ThinkingLevel, ThinkingRequest, ThinkingStyle},
    port::{Encoder, MessageBuffer, ModelRequest},
};
use serde_json::{Value, json};

use super::requests::*;
use crate::provider::CacheTtl;

#[test]
fn what_only_its_maker_reads_goes_back_to_it_alone() {
    let calls = [call("toolu_a", "{}"), call("toolu_b", "{}")];
    let place = |bytes: usize| json!({"type": "text", "bytes": bytes});
    let called = json!({"type": "tool_use"});
    let redacted = json!({"type": "redacted_thinking", "data": "r"});
    let parts = json!([thought("x"), place(3), called, redacted, place(1), thought("")]);
    let check = |answer: AssistantMessage, model: &str, expected: Value| {
        let messages = [with_parts(answer, model, parts.clone())];
        check_messages(&encoder(true, CacheTtl::Off), &messages, json!([message("assistant", expected)]));
    };
    let (a, b) = (asked("toolu_a", json!({})), asked("toolu_b", json!({})));
    let whole = json!([thought("x"), text("aü"), a, redacted, text("b"), thought(""), text("c"), b]);
    check(answer("aübc", &calls), "m", whole);
    check(answer("aübc", &calls), "another", json!([text("aübc"), a, b]));
    // The answer has changed since: its calls were removed, and its text has another length, also within a character.
    check(
        answer("aüb", &[]),
        "m",
        json!([thought("x"), text("aü"), redacted, text("b"), thought(""), text("[No text.]"),]),
    );
    let early = json!([thought("x"), text("aa€"), a, redacted, thought(""), b]);
    check(answer("aa€", &calls), "m", early);
}

#[test]
fn a_turn_that_began_without_thinking_goes_on_without() {
    let asks = |id: &str| answer("", &[call(id, "{}")]);
    let own = || [with_parts(asks("toolu_a"), "m", json!([thought("x")])), result("toolu_a", "r")];
    let bare = || [said(asks("toolu_b")), result("toolu_b", "r")];
    let user = || [Message::User("hi".into())];
    let final_answer = || [said(answer("done", &[]))];
    let check = |groups: &[&[Message]], expected: bool| {
        let mut messages = MessageBuffer::default();
        groups.iter().for_each(|group| encoder(true, CacheTtl::Off).messages(group, &mut messages));
        assert_eq!(messages.has_foreign_reasoning(), expected);
        for (style, thinks) in [(ThinkingStyle::Budget, !expected), (ThinkingStyle::Adaptive, true)] {
            let thinking = Some(ThinkingRequest { level: ThinkingLevel::High, style });
            let request = ModelRequest { thinking, ..request("", &[], messages.clone(), CacheTtl::Off) };
            assert_eq!(body(request, CacheTtl::Off).get("thinking").is_some(), thinks, "{style:?}");
        }
    };
    check(&[&user()], false);
    check(&[&user(), &own()], false);
    // A model that reasons only at the start of a turn.
    check(&[&user(), &own(), &bare()], false);
    check(&[&user(), &bare()], true);
    check(&[&user(), &bare(), &own()], true);
    check(&[&user(), &bare(), &final_answer(), &user()], false);
    check(&[&[&user()[..], &bare(), &final_answer(), &user(), &own()].concat()], false);
}

#[test]
fn thinking_never_takes_more_than_is_reserved() {
    use ThinkingStyle::{Adaptive, Budget, Effort};
    let check = |style, level, max_tokens, expected: Value| {
        let request = request("", &[], MessageBuffer::default(), CacheTtl::Off);
        let thinking = Some(ThinkingRequest { level, style });
        let found = body(ModelRequest { thinking, max_tokens, ..request }, CacheTtl::Off);
        assert_eq!(found["max_tokens"], max_tokens);
        let fields = ["thinking", "output_config"].map(|field| found.get(field).cloned().unwrap_or_default());
        assert_eq!(json!(fields), expected, "{style:?} {level:?} {max_tokens}");
    };
    let budget = |tokens: u64| json!([{"type": "enabled", "budget_tokens": tokens}, null]);
    check(Budget, ThinkingLevel::Off, 64_000, json!([null, null]));
    check(Budget, ThinkingLevel::Minimal, 64_000, budget(1_024));
    check(Budget, ThinkingLevel::Low, 64_000, budget(4_096));
    check(Budget, ThinkingLevel::Medium, 64_000, budget(10_000));
    check(Budget, ThinkingLevel::High, 64_000, budget(24_000));
    check(Budget, ThinkingLevel::High, 16_000, budget(12_000));
    check(Budget, ThinkingLevel::High, 1_025, budget(1_024));
    check(Budget, ThinkingLevel::High, 1_024, json!([null, null]));
    check(Budget, ThinkingLevel::High, 1, json!([null, null]));
    check(Adaptive, ThinkingLevel::Off, 9, json!([null, null]));
    check(Adaptive, ThinkingLevel::Minimal, 9, json!([{"type": "adaptive"}, {"effort": "low"}]));
    check(Adaptive, ThinkingLevel::Medium, 9, json!([{"type": "adaptive"}, {"effort": "medium"}]));
    check(Effort, ThinkingLevel::High, 9, json!([null, {"effort": "high"}]));
    check(ThinkingStyle::None, ThinkingLevel::High, 9, json!([null, null]));
}
