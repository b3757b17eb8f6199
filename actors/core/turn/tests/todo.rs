//! Tests of the to-do list: the session answers calls of `todo` by itself.

use super::{Driver, check, model, run, tool};
use crate::{
    model::{
        AccountId, Amounts, AssistantMessage, AttemptId, BudgetRefusal, CallEnd, Dimension, EffectClass,
        FinishReason, Hash, Limits, StopReason, ToolCall,
    },
    policy::todo::TODO,
    turn::{CallAdmission, DueAction, Input},
};

const TWO: &str =
    r#"{"todos":[{"id":"a","content":"look","status":"in_progress"},{"id":"b","content":"write"}]}"#;
const DONE: &str = r#"{"todos":[{"id":"a","status":"completed"}],"merge":true}"#;
const MORE: &str = r#"{"todos":[{"id":"c","content":"end"}],"merge":true}"#;

/// An answer that calls `todo` with each of these arguments, and its plans; `""` stands for a call of another tool.
fn asked(arguments: &[&str]) -> (AssistantMessage, Vec<CallAdmission>) {
    let name = |arguments: &str| if arguments.is_empty() { "tool" } else { TODO };
    let calls = arguments.iter().zip(1..).map(|(arguments, n)| ToolCall {
        id: format!("v{n}"),
        name: name(arguments).into(),
        arguments: (*arguments).into(),
    });
    let plans = arguments.iter().map(|arguments| CallAdmission::Admit {
        tool: name(arguments).into(),
        intent: EffectClass::Idempotent.into(),
        arguments: Hash::of(arguments.as_bytes()),
        approval: None,
        hooks: None,
    });
    (AssistantMessage { calls: calls.collect(), ..AssistantMessage::default() }, plans.collect())
}

/// A run whose first model call is under way.
fn begun() -> Driver {
    let mut driver = Driver::new();
    driver.submit(1, Limits { max_tokens: 100, ..Limits::default() });
    driver.lease(model(1, 1), 1);
    driver
}

/// The model answers the call under way with these calls.
fn answers(driver: &mut Driver, arguments: &[&str]) -> Vec<&'static str> {
    let (message, plans) = asked(arguments);
    driver.answer_message(message, FinishReason::ToolCalls, plans)
}

#[track_caller]
fn check_list(driver: &Driver, expect: &str) {
    assert_eq!(driver.turn.todo().unwrap_or_default(), expect);
}

#[test]
fn a_call_is_answered_with_the_answer_that_makes_it() {
    let mut driver = begun();
    check_list(&driver, "");
    let records = answers(&mut driver, &[TWO]);
    assert_eq!(records, ["model.answered", "call.admitted", "todo.changed", "call.ended"]);
    check(&driver, "uct", &[DueAction::Acquire(AttemptId { call: model(1, 2), attempt: 1 })]);
    check_list(&driver, "- [~] a: look\n- [ ] b: write");
    let result: serde_json::Value = serde_json::from_str(&driver.contents()[0]).unwrap();
    assert_eq!((&result["todos"][1]["id"], &result["summary"]["pending"]), (&"b".into(), &1.into()));
    driver.lease(model(1, 2), 1);
    // Reading the list, and writing the same list, are no changes.
    let records = answers(&mut driver, &["{}", TWO]);
    assert_eq!(records, ["model.answered", "call.admitted", "call.admitted", "call.ended", "call.ended"]);
    assert_eq!(driver.contents()[1], driver.contents()[0]);
}

#[test]
fn calls_of_one_answer_apply_in_its_order() {
    let mut driver = begun();
    answers(&mut driver, &[TWO, "", DONE, MORE]);
    check_list(&driver, "- [x] a: look\n- [ ] b: write\n- [ ] c: end");
    // Only the call of the other tool is due.
    let call = tool(1, 1, 2);
    assert_eq!(driver.turn.due(driver.now), [DueAction::Acquire(AttemptId { call, attempt: 1 })]);
    driver.permit_all();
    driver.feed(&Input::ToolEnded { id: AttemptId { call, attempt: 1 }, end: CallEnd::ok("r") });
    let counts: Vec<_> = driver.contents().iter().map(|content| content.matches("\"id\"").count()).collect();
    assert_eq!(counts, [2, 0, 2, 3]);
}

#[test]
fn a_list_outlives_crashes_and_runs() {
    let list = "- [x] a: look\n- [ ] b: write";
    let mut driver = begun();
    answers(&mut driver, &[TWO, ""]);
    driver.crash();
    driver.permit_all();
    driver
        .feed(&Input::ToolEnded { id: AttemptId { call: tool(1, 1, 2), attempt: 1 }, end: CallEnd::ok("r") });
    driver.lease(model(1, 2), 1);
    answers(&mut driver, &[DONE]);
    check_list(&driver, list);
    driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
    driver.crash();
    check_list(&driver, list);
    driver.submit(2, Limits { max_tokens: 100, ..Limits::default() });
    driver.lease(model(2, 1), 1);
    answers(&mut driver, &[MORE]);
    check_list(&driver, &format!("{list}\n- [ ] c: end"));
}

#[test]
fn what_is_not_acceptable_changes_nothing() {
    let mut driver = begun();
    let records = answers(&mut driver, &[TWO, r#"{"todos":[{"id":"z"}],"merge":true}"#]);
    assert_eq!(records[3..], ["todo.changed", "call.ended", "call.ended"]);
    check_list(&driver, "- [~] a: look\n- [ ] b: write");
    assert!(driver.contents()[1].contains("`z` is new"), "{:?}", driver.contents());
}

#[test]
fn a_message_overtakes_it() {
    let mut driver = begun();
    driver.steer(1, 7);
    assert_eq!(answers(&mut driver, &[TWO]), ["model.answered", "call.admitted", "call.ended"]);
    check_list(&driver, "");
}

#[test]
fn it_costs_no_tool_call() {
    let mut driver = begun();
    let (message, plans) = asked(&[TWO, ""]);
    let (account, dimension) = (AccountId::from(run(1)), Dimension::ToolCalls);
    let refusal = BudgetRefusal { account, dimension, limit: 0, spent: 0, reserved: 0, needed: None };
    let answered = Input::Answered {
        started: driver.turn.model_started().cloned().unwrap(),
        answer: crate::model::ModelAnswer { message, finish: FinishReason::ToolCalls, usage: None }.into(),
        admissions: plans.into(),
    };
    let mut draft = driver.turn.start_decision(driver.now);
    [Input::BudgetRefused(refusal), answered].iter().for_each(|input| draft.apply_input(input));
    let decision = draft.finish();
    let kinds: Vec<_> = decision.records.iter().map(|record| record.body.kind().name()).collect();
    assert_eq!(kinds[3..], ["todo.changed", "call.ended", "run.exhausted", "call.ended"]);
    let reserved: Vec<Amounts> = decision.ledger.reservations.iter().map(|reserve| reserve.amounts).collect();
    assert!(reserved.iter().all(|amounts| amounts.tool_calls.unwrap_or(0) == 0), "{reserved:?}");
    answers(&mut driver, &[TWO]);
    check_list(&driver, "- [~] a: look\n- [ ] b: write");
}
