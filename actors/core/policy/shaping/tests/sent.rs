//! Texts that the message tool has sent are not delivered again.

use super::*;

#[test]
fn what_a_hook_has_put_in_place_of_a_message_is_what_was_sent() {
    let answered = |answer: &str| {
        let mut run = Shaped::new(ReplyOptions { verbose: Verbosity::On, ..DELTAS });
        let written = r#"{"target":"me","text":"The key is 7"}"#;
        run.answer((1, 1), "", "", &[("message", written)]);
        let arguments = r#"{"target":"me","text":"A key was found"}"#;
        let hooks = HookedCall { arguments: Some(arguments.into()), ..HookedCall::default() };
        run.admitted(1, 1, "message", Some(hooks));
        run.tool_ends(1, 1, CallEnd::ok("sent"));
        run.answer((2, 1), answer, "", &[]);
        run.completes();
        (run.shown().remove(0), run.shown().pop().unwrap())
    };
    let (summary, last) = answered("A key was found");
    assert_eq!(last, "final Some(Sent) -");
    assert!(summary.contains("A key was found") && !summary.contains("The key"), "{summary}");
    assert_eq!(answered("The key is 7").1, "final Some(Answer) The key is 7");
}

#[test]
fn each_sent_text_is_known_however_long_it_is_and_however_many_there_were() {
    let long = "w ".repeat(16 * 1024 - 1);
    let mut run = Shaped::new(DELTAS);
    for n in 1..=70 {
        let text = if n == 70 { long.clone() } else { format!("message {n}") };
        let arguments = serde_json::json!({ "target": "me", "text": text }).to_string();
        run.answer((n, 1), "", "", &[("message", &arguments)]);
        run.tool_ends(n, 1, CallEnd::ok("sent"));
    }
    run.answer((71, 1), &long, "", &[]);
    run.completes();
    run.check(&["final Some(Sent) -"]);
}

#[test]
fn a_run_that_goes_on_with_a_larger_budget_has_sent_what_it_sent_before() {
    let mut run = Shaped::new(DELTAS);
    run.answer((1, 1), "", "", &[("message", r#"{"target":"me","text":"Hello there"}"#)]);
    run.tool_ends(1, 1, CallEnd::ok("sent"));
    run.ends(OutcomeDetail { outcome: Outcome::BudgetExhausted, cause: None });
    run.answer((2, 1), "Hello there", "", &[]);
    run.completes();
    assert_eq!(run.shown().pop().as_deref(), Some("final Some(Sent) -"));
}
