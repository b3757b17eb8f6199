//! Tests of the outbox: messages are in the append that ends their call, and results in the one that ends their run.

use std::sync::Arc;

use super::{Driver, model, run, tool};
use crate::{
    journal::{Append, IndexRow},
    model::{
        ApprovalNeed, ApprovalScope, Artifact, AssistantMessage, Attachment, CallEnd, CallStatus,
        EffectClass, FinishReason, Hash, Limits, ModelAnswer, OutboxContent, OutboxMessage, PersonAnswer,
        StopReason, ToolCall,
    },
    policy::message::MESSAGE,
    turn::{CallAdmission, Input},
};

const HELLO: &str = r#"{"target":"ops","text":"hello"}"#;
const FILES: &str = r#"{"target":"ops","text":"hello","attachments":["a"]}"#;
const BYE: &str = r#"{"target":"dev","text":"bye"}"#;

/// A run with these targets whose first model call is under way.
fn begun(deliver_to: &[&str]) -> Driver {
    let mut driver = Driver::new();
    driver.submit_with(1, "task", |spec| {
        spec.limits = Limits { max_tokens: 100, ..Limits::default() };
        spec.deliver_to = deliver_to.iter().map(|name| (*name).to_owned()).collect();
    });
    driver.lease(model(1, 1), 1);
    driver
}

/// The model's answer with a text and these calls of `message`.
fn answered(driver: &Driver, text: &str, arguments: &[&str], approval: Option<Arc<ApprovalNeed>>) -> Input {
    let calls = arguments.iter().zip(1..).map(|(arguments, n)| ToolCall {
        id: format!("v{n}"),
        name: MESSAGE.into(),
        arguments: (*arguments).into(),
    });
    let admissions = arguments.iter().map(|arguments| CallAdmission::Admit {
        tool: MESSAGE.into(),
        intent: if *arguments == FILES { EffectClass::Idempotent } else { EffectClass::Once }.into(),
        arguments: Hash::of(arguments.as_bytes()),
        approval: approval.clone(),
        hooks: None,
    });
    let message =
        AssistantMessage { text: text.into(), calls: calls.collect(), ..AssistantMessage::default() };
    let finish = if arguments.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
    Input::Answered {
        started: driver.turn.model_started().cloned().expect("a model call is under way"),
        answer: ModelAnswer { message, finish, usage: None }.into(),
        admissions: admissions.collect(),
    }
}

/// The append that decides an input; the driver's state stays as it is.
fn decide(driver: &Driver, input: &Input) -> Append {
    driver.turn.decide(driver.now, std::slice::from_ref(input), |_| None)
}

fn kinds(append: &Append) -> Vec<&'static str> {
    append.records.iter().map(|record| record.body.kind().name()).collect()
}

/// The messages of an append: target, id, and text.
fn outbox(append: &Append) -> Vec<(String, String, String)> {
    let message = |row: &IndexRow| {
        let IndexRow::Outbox(message) = row else { return None };
        Some((message.target.to_string(), message.id.to_string(), message.text().to_string()))
    };
    append.index.iter().filter_map(message).collect()
}

fn message(target: &str, n: u32, text: &str) -> (String, String, String) {
    (target.into(), OutboxMessage::id_of_call(tool(1, 1, n)).to_string(), text.into())
}

#[test]
fn a_message_is_in_the_append_that_ends_its_call() {
    let driver = begun(&[]);
    let append = decide(&driver, &answered(&driver, "", &[HELLO, BYE], None));
    let expect = ["model.answered", "call.admitted", "call.admitted", "call.ended", "call.ended"];
    assert_eq!(kinds(&append), expect);
    assert_eq!(outbox(&append), [message("ops", 1, "hello"), message("dev", 2, "bye")]);
    // The same decision again, as after a crash before the append, makes the same messages.
    let again = decide(&driver, &answered(&driver, "", &[HELLO, BYE], None));
    assert_eq!(outbox(&again), outbox(&append));
}

#[test]
fn the_model_reads_the_id() {
    let mut driver = begun(&[]);
    let input = answered(&driver, "", &[HELLO], None);
    driver.feed(&input);
    let result: serde_json::Value = serde_json::from_str(&driver.contents()[0]).unwrap();
    assert_eq!(result["id"], &*OutboxMessage::id_of_call(tool(1, 1, 1)));
    assert_eq!((&result["target"], &result["state"]), (&"ops".into(), &"queued for delivery".into()));
}

#[test]
fn a_message_with_files_is_in_the_append_that_ends_their_capture() {
    let mut driver = begun(&[]);
    let input = answered(&driver, "", &[FILES, FILES], None);
    let append = decide(&driver, &input);
    assert_eq!(outbox(&append), []);
    assert_eq!(kinds(&append), ["model.answered", "call.admitted", "call.admitted"], "it is a task");
    driver.feed(&input);
    let attempt = |n| tool(1, 1, 1).attempt(n);
    assert_eq!(driver.feed(&Input::Permitted(attempt(1))), ["call.started"]);
    // A kill before the end of the call: nothing was sent, and the files are captured again.
    driver.crash();
    driver.feed(&Input::Lost(attempt(1)));
    assert_eq!(driver.feed(&Input::Permitted(attempt(2))), ["call.started"]);
    let failed = CallEnd::error(CallStatus::Error, "too large", None, "send less");
    let append = decide(&driver, &Input::ToolEnded { id: attempt(2), end: failed });
    assert_eq!((outbox(&append), kinds(&append)), (Vec::new(), vec!["call.ended", "call.ended"]));
    let artifact = Artifact { handle: "h".into(), bytes: 3, sha256: None };
    let attachments = Arc::new(vec![Attachment { name: "a".into(), artifact }]);
    // What a hook makes of the result does not take the message back.
    for end in [CallEnd::ok("sent"), CallEnd::error(CallStatus::Error, "withheld", None, "")] {
        let end = CallEnd { attachments: Arc::clone(&attachments), ..end };
        let append = decide(&driver, &Input::ToolEnded { id: attempt(2), end });
        assert_eq!(outbox(&append), [message("ops", 1, "hello")]);
        let files = append.index.iter().find_map(|row| match row {
            IndexRow::Outbox(message) => Some(message.attachments().to_vec()),
            IndexRow::Session(_)
            | IndexRow::Run(_)
            | IndexRow::Model(_)
            | IndexRow::Message(_)
            | IndexRow::Occurrence(_) => None,
        });
        assert_eq!(files.as_ref(), Some(&*attachments));
    }
}

#[test]
fn an_equal_call_of_the_same_answer_sends_nothing_more() {
    let driver = begun(&[]);
    let append = decide(&driver, &answered(&driver, "", &[HELLO, HELLO], None));
    assert_eq!(outbox(&append), [message("ops", 1, "hello")]);
    assert_eq!(kinds(&append).iter().filter(|kind| **kind == "call.ended").count(), 2);
}

#[test]
fn a_message_that_needs_an_approval_is_sent_with_it() {
    let need = ApprovalNeed { rules: vec!["ask".into()], allow_rules: Vec::new(), question: "?".into() };
    let mut driver = begun(&[]);
    let input = answered(&driver, "", &[HELLO], Some(Arc::new(need)));
    let append = decide(&driver, &input);
    assert_eq!((outbox(&append), kinds(&append)[2]), (Vec::new(), "approval.requested"));
    driver.feed(&input);
    driver.crash();
    let denied = decide(&driver, &Input::Approval { call: tool(1, 1, 1), answer: PersonAnswer::Deny });
    assert_eq!(outbox(&denied), []);
    let answer = PersonAnswer::Allow(ApprovalScope::Once);
    let allowed = decide(&driver, &Input::Approval { call: tool(1, 1, 1), answer });
    assert_eq!(kinds(&allowed)[..2], ["approval.answered", "call.ended"]);
    assert_eq!(outbox(&allowed), [message("ops", 1, "hello")]);
}

#[test]
fn results_are_in_the_append_that_ends_the_run() {
    let driver = begun(&["ops", "dev"]);
    let append = decide(&driver, &answered(&driver, "done", &[], None));
    assert_eq!(kinds(&append), ["model.answered", "run.ended"]);
    let result = |target: &str| {
        (target.to_owned(), OutboxMessage::id_of_result(run(1), 1, target).to_string(), "done".to_owned())
    };
    assert_eq!(outbox(&append), [result("ops"), result("dev")]);
    let stopped = decide(&driver, &Input::Stop { run: None, reason: StopReason::Command });
    let outcome = stopped.index.iter().find_map(|row| match row {
        IndexRow::Outbox(message) => match &message.content {
            OutboxContent::Result { ended, text, .. } => Some((ended.outcome.name(), text.to_string())),
            OutboxContent::Message { .. } | OutboxContent::Notice { .. } => None,
        },
        IndexRow::Session(_)
        | IndexRow::Run(_)
        | IndexRow::Model(_)
        | IndexRow::Message(_)
        | IndexRow::Occurrence(_) => None,
    });
    assert_eq!(outcome, Some(("stopped", String::new())));
}

#[test]
fn a_target_does_not_get_a_text_again_that_the_tool_has_sent_to_it() {
    let check = |text: &str, expect: &[&str]| {
        let mut driver = begun(&["ops", "dev"]);
        driver.feed(&answered(&driver, "", &[HELLO], None));
        driver.crash();
        driver.lease(model(1, 2), 1);
        let targets =
            |append: &Append| outbox(append).into_iter().map(|(target, ..)| target).collect::<Vec<_>>();
        let append = decide(&driver, &answered(&driver, text, &[], None));
        assert_eq!(kinds(&append).last(), Some(&"run.ended"));
        assert_eq!(targets(&append), expect, "{text}");
        // Only an answer may be known already: how the run has ended is not.
        let stopped = decide(&driver, &Input::Stop { run: None, reason: StopReason::Command });
        assert_eq!(targets(&stopped), ["ops", "dev"], "{text}");
    };
    check(" hello\n", &["dev"]);
    check("hello you", &["ops", "dev"]);
    check("bye", &["ops", "dev"]);
}

#[test]
fn a_run_that_ends_in_the_queue_has_its_result_too() {
    let mut driver = begun(&[]);
    driver.submit_with(2, "next", |spec| spec.deliver_to = vec!["ops".into()]);
    let stopped = decide(&driver, &Input::Stop { run: Some(run(2)), reason: StopReason::Command });
    assert_eq!(outbox(&stopped).len(), 1);
    let first = decide(&driver, &Input::Stop { run: Some(run(1)), reason: StopReason::Command });
    assert_eq!(outbox(&first), []);
}
