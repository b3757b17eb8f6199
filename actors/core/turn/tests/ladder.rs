//! Tests of the recovery from flawed answers, with a crash after every answer.

use super::{Driver, model, run, tool};
use crate::{
    model::{
        AssistantMessage, AttemptId, Body, CallEnd, EffectClass, FailureClass, FinishReason, Hash,
        ImportedHistory, Limits, Message, ModelAnswered, ModelStarted, RetryPolicy, ToolCall,
    },
    turn::{CallAdmission, Input, RenderCursor},
};

/// An answer: its text, its reasoning, the tools that it calls, and its finish reason.
#[derive(Debug, Clone, Copy)]
struct Said<'a>(&'a str, &'a str, &'a [&'a str], FinishReason);

const EMPTY: Said<'_> = Said(" ", "", &[], FinishReason::Stop);
const REFUSES: Said<'_> = Said("no", "", &[], FinishReason::Refused);

fn says(text: &str) -> Said<'_> {
    Said(text, "", &[], FinishReason::Stop)
}

fn thinks(thoughts: &str) -> Said<'_> {
    Said("", thoughts, &[], FinishReason::Stop)
}

fn cut(text: &str) -> Said<'_> {
    Said(text, "", &[], FinishReason::Length)
}

fn calls<'a>(text: &'a str, tool: &'a [&'a str]) -> Said<'a> {
    Said(text, "", tool, FinishReason::ToolCalls)
}

const LOOKS: Said<'_> = Said("", "", &["look"], FinishReason::ToolCalls);

/// A driver with a run that has this chain.
fn submitted(chain: &[&str], limits: Limits) -> Driver {
    let mut driver = Driver::new();
    driver.submit_to(chain, 1, (limits, ImportedHistory::default()));
    driver
}

fn limits() -> Limits {
    Limits { max_tokens: 100, ..Limits::default() }
}

/// The model answers the call of this iteration, and the tool calls of the answer succeed.
fn answer(driver: &mut Driver, iteration: u32, Said(text, reasoning, tools, finish): Said<'_>) {
    driver.lease(model(1, iteration), 1);
    let call = |tool: &&str| ToolCall { id: "c".into(), name: (*tool).into(), arguments: "{}".into() };
    let message = AssistantMessage {
        text: text.into(),
        reasoning: reasoning.into(),
        calls: tools.iter().map(call).collect(),
        opaque: None,
    };
    let (intent, arguments) = (EffectClass::Pure.into(), Hash::of(b"{}"));
    let plan = |tool: &&str| CallAdmission::Admit {
        tool: (*tool).into(),
        intent: Clone::clone(&intent),
        arguments,
        approval: None,
        hooks: None,
    };
    driver.answer_message(message, finish, tools.iter().map(plan).collect());
    for n in driver.permit_all() {
        let call = tool(1, iteration, n);
        driver.feed(&Input::ToolEnded { id: AttemptId { call, attempt: 1 }, end: CallEnd::ok("r") });
    }
}

/// What follows an answer: the end of the run, or the transient prompt of the next request, with its provider if that
/// is not the first one.
fn came_to(driver: &Driver) -> String {
    if let Some(Body::RunEnded(ended)) = driver.records.last().map(|record| &record.body) {
        let ended = ended.ended.to_string();
        let (messages, _) = driver.turn.render(RenderCursor::default());
        return match (ended.as_str(), messages.last()) {
            ("completed", Some(Message::Assistant(said))) => format!("completed: {}", said.text),
            (ended, _) => ended.split(':').next().unwrap_or_default().to_owned(),
        };
    }
    let mut line = asked_for(driver);
    let candidates = driver.turn.candidates().unwrap_or_default();
    if let Some(first) = candidates.first().filter(|first| &**first.model.provider() != "p") {
        line = format!("{line}, of {}", first.model.provider());
    }
    line
}

/// The transient prompt of the next request, in short.
fn asked_for(driver: &Driver) -> String {
    let Some(postscript) = driver.turn.transient_prompt() else { return "nothing".into() };
    let prompt = &postscript.prompt;
    let thoughts = prompt.split_once("<thoughts>\n").and_then(|(_, rest)| rest.split_once("\n</thoughts>"));
    let what = match thoughts {
        Some((thoughts, _)) => format!("go on from `{thoughts}`"),
        None if prompt.contains("your calls have returned") => "go on".into(),
        None if prompt.contains("an answer is due") => "answer".into(),
        None => String::new(),
    };
    assert_eq!(prompt.contains("cut off"), postscript.partial.is_some(), "{prompt}");
    let partial = postscript.partial.map(|partial| format!("continue `{}`", partial.text));
    [Some(what), partial].into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// Checks what follows each of these answers in a row.
#[track_caller]
fn check_with(chain: &[&str], limits: Limits, answers: &[(Said<'_>, &str)]) -> Driver {
    let mut driver = submitted(chain, limits);
    for ((said, expect), iteration) in answers.iter().zip(1..) {
        answer(&mut driver, iteration, *said);
        assert_eq!(came_to(&driver), *expect, "answer {iteration}: {said:?}");
        if driver.turn.current().is_some() {
            driver.crash();
            assert_eq!(came_to(&driver), *expect, "answer {iteration} after a crash: {said:?}");
        }
    }
    driver
}

#[track_caller]
fn check(answers: &[(Said<'_>, &str)]) {
    check_with(&["p/m"], limits(), answers);
}

#[test]
fn an_empty_answer_is_asked_for_again_three_times() {
    let again = (EMPTY, "nothing");
    check(&[again, again, again, (EMPTY, "failed (empty_answer")]);
    check(&[again, again, again, (says("done"), "completed: done")]);
    // An answer without a flaw resets the count.
    check(&[again, again, again, (LOOKS, "nothing"), (EMPTY, "go on"), (EMPTY, "go on")]);
}

#[test]
fn earlier_text_is_the_answer_if_only_housekeeping_was_done_since() {
    let done = |tools| (calls("I am done", tools), "nothing");
    check(&[done(&["todo"]), (EMPTY, "completed: I am done")]);
    check(&[done(&["todo", "memory"]), (thinks("well"), "completed: I am done")]);
    check(&[done(&["todo"]), (calls("", &["memory"]), "nothing"), (EMPTY, "completed: I am done")]);
    check(&[done(&["todo"]), (calls("Really", &["memory"]), "nothing"), (EMPTY, "completed: Really")]);
    // A text before work on the task is no answer to the results of that work.
    check(&[done(&["look"]), (EMPTY, "go on")]);
    check(&[done(&["todo", "look"]), (EMPTY, "go on")]);
    check(&[done(&["todo"]), (LOOKS, "nothing"), (EMPTY, "go on")]);
    check(&[done(&["todo"]), (LOOKS, "nothing"), (calls("", &["todo"]), "nothing"), (EMPTY, "go on")]);
    // A later text replaces the earlier one.
    check(&[done(&["todo"]), (says("No, now"), "completed: No, now")]);
    let cut_off = (cut("No"), "continue `No`");
    check(&[done(&["todo"]), cut_off, (EMPTY, "continue `No`"), (says(", now"), "completed: No, now")]);
}

#[test]
fn after_a_tool_the_model_is_told_once_to_go_on() {
    check(&[(LOOKS, "nothing"), (EMPTY, "go on"), (says("done"), "completed: done")]);
    let again = (EMPTY, "go on");
    check(&[(LOOKS, "nothing"), again, again, again, again, (EMPTY, "failed (empty_answer")]);
    // After each answer with calls the nudge may be sent again.
    check(&[(LOOKS, "nothing"), again, (LOOKS, "nothing"), again, (LOOKS, "nothing")]);
}

#[test]
fn from_reasoning_the_model_goes_on_twice() {
    let [first, second] = [(thinks("a"), "go on from `a`"), (thinks("b"), "go on from `b`")];
    let third = (thinks("c"), "go on from `b`");
    check(&[first, (says("done"), "completed: done")]);
    check(&[first, second, third, third, third, (thinks("c"), "failed (empty_answer")]);
    check(&[first, (EMPTY, "go on from `a`"), second, third]);
    // After a tool result the nudge comes first.
    check(&[(LOOKS, "nothing"), (thinks("a"), "go on"), second]);
    // The prompt quotes the end of long reasoning.
    let long = format!("{}end", "ü".repeat(10_000));
    let shown = format!("go on from `{}end`", "ü".repeat(7_997));
    check(&[(thinks(&long), &shown)]);
}

#[test]
fn a_model_that_stays_empty_is_followed_by_the_next_one() {
    let (again, then, last) = ((EMPTY, "nothing"), (EMPTY, "nothing, of q"), (EMPTY, "failed (empty_answer"));
    let chain = ["p/m", "q/n"];
    check_with(&chain, limits(), &[again, again, again, then, (says("done"), "completed: done")]);
    check_with(&chain, limits(), &[again, again, again, then, then, then, then, last]);
    // A model that was left because of empty answers is not called again in this run: each empty answer has cost an
    // iteration.
    let driver = check_with(&chain, limits(), &[again, again, again, then, (LOOKS, "nothing, of q")]);
    let fallbacks: Vec<_> = answers(&driver).map(|answered| answered.fallback).collect();
    assert_eq!(fallbacks, [None, None, None, Some(1), None]);
    // The next model gets the same prompt.
    let told = (EMPTY, "go on");
    let moved = (EMPTY, "go on, of q");
    check_with(&chain, limits(), &[(LOOKS, "nothing"), told, told, told, told, moved]);
}

#[test]
fn a_text_that_was_cut_off_is_continued_three_times_and_joined() {
    let [one, two] = [(cut("o"), "continue `o`"), (cut("n"), "continue `on`")];
    let three = (cut("e"), "continue `one`");
    check(&[one, two, three, (says("!"), "completed: one!")]);
    check(&[one, two, three, (cut("!"), "failed (truncated")]);
    // Answers that are discarded between two parts are not joined, but their prompt is added.
    let thought = (thinks("a"), "go on from `a`, continue `o`");
    check(&[one, (EMPTY, "continue `o`"), thought, (says("ne"), "completed: one")]);
    check(&[one, (EMPTY, "continue `o`"), (EMPTY, "continue `o`"), (EMPTY, "continue `o`"), (EMPTY, FAILED)]);
}

const FAILED: &str = "failed (empty_answer";

#[test]
fn a_text_may_go_on_with_calls() {
    let driver = check_with(
        &["p/m"],
        limits(),
        &[(cut("I l"), "continue `I l`"), (calls("ook", &["look"]), "nothing"), (EMPTY, "go on")],
    );
    assert_eq!(driver.view(), "uct");
    assert_eq!(driver.found("I look"), [('c', 1)]);
}

#[test]
fn what_was_cut_off_gets_more_room() {
    let room = |limit: u64, cut_off: Said<'_>| {
        let mut driver = submitted(&["p/m"], Limits { max_tokens: limit, ..Limits::default() });
        (1..5).for_each(|iteration| answer(&mut driver, iteration, cut_off));
        started(&driver).map(|started| started.max_tokens).collect::<Vec<_>>()
    };
    for cut_off in [cut("a"), Said("", "", &["look"], FinishReason::Length)] {
        assert_eq!(room(8_192, cut_off), [8_192, 16_384, 32_768, 32_768]);
        assert_eq!(room(50_000, cut_off), [50_000; 4]);
    }
}

#[test]
fn thinking_that_leaves_no_room_for_an_answer_ends_the_run() {
    check(&[(Said("", "hm", &[], FinishReason::Length), "failed (only_thought")]);
    check(&[(cut("\n"), "failed (only_thought")]);
    check(&[(cut("o"), "continue `o`"), (cut(""), "failed (only_thought")]);
    let driver = check_with(&["p/m"], limits(), &[(cut(""), "failed (only_thought")]);
    let Some(Body::RunEnded(ended)) = driver.records.last().map(|record| &record.body) else {
        panic!("no end")
    };
    assert!(ended.ended.to_string().contains("used up all 100 output tokens"), "{}", ended.ended);
}

#[test]
fn a_refusal_ends_the_run_unless_the_chain_says_otherwise() {
    check(&[(REFUSES, "refused")]);
    let chain = ["p/m", "q/n"];
    check_with(&chain, limits(), &[(REFUSES, "refused")]);
    let retry = RetryPolicy { fallback_on_refusal: true, ..RetryPolicy::default() };
    let willing = Limits { retry, ..limits() };
    check_with(&chain, willing, &[(REFUSES, "nothing, of q"), (says("done"), "completed: done")]);
    check_with(&chain, willing, &[(REFUSES, "nothing, of q"), (REFUSES, "refused")]);
    check_with(&["p/m"], willing, &[(REFUSES, "refused")]);
}

fn answers(driver: &Driver) -> impl Iterator<Item = &ModelAnswered> {
    driver.records.iter().filter_map(|record| {
        let Body::ModelAnswered(answered) = &record.body else { return None };
        Some(&**answered)
    })
}

fn started(driver: &Driver) -> impl Iterator<Item = &ModelStarted> {
    driver.records.iter().filter_map(|record| {
        let Body::ModelStarted(started) = &record.body else { return None };
        Some(&**started)
    })
}

#[test]
fn each_rung_costs_an_iteration() {
    let rungs = [(LOOKS, "nothing"), (EMPTY, "go on"), (thinks("a"), "go on from `a`")];
    let driver = check_with(
        &["p/m"],
        limits(),
        &[rungs[0], rungs[1], rungs[2], (cut("o"), "continue `o`"), (says("k"), "completed: ok")],
    );
    let Some(Body::RunEnded(ended)) = driver.records.last().map(|record| &record.body) else {
        panic!("no end")
    };
    assert_eq!((ended.run, ended.iterations, ended.usage.output_tokens), (run(1), 5, 15));
    assert_eq!(driver.view(), "ucta", "no executed call is ever removed");
}

#[test]
fn the_hash_and_the_size_of_a_request_cover_what_it_says_behind_the_view() {
    let mut driver = submitted(&["p/m"], limits());
    for (said, iteration) in [LOOKS, EMPTY, cut("part")].into_iter().zip(1..) {
        answer(&mut driver, iteration, said);
    }
    driver.lease(model(1, 4), 1);
    driver.fail(FailureClass::Overloaded);
    driver.pass(60_000);
    driver.lease(model(1, 4), 2);
    let cost = |started: &ModelStarted| (started.request_hash, started.reserved.tokens.unwrap_or(0));
    let started: Vec<_> = started(&driver).map(cost).collect();
    let [_, plain, told, continued, retried] = started[..] else { panic!("{started:?}") };
    assert!(plain.0 != told.0 && told.0 != continued.0, "the view is the same, the request is not");
    assert!(plain.1 < told.1, "what is told is reserved for too");
    assert_eq!(continued, retried);
}

#[test]
fn where_an_answer_is_due_it_is_asked_for_once() {
    let silent = (says(" no_reply "), "answer");
    check(&[silent, (says("done"), "completed: done")]);
    check(&[silent, (says("NO_REPLY"), "completed: NO_REPLY")]);
    check(&[(LOOKS, "nothing"), silent, (says("NO_REPLY"), "completed: NO_REPLY")]);
    // A part of an answer is none that is silent.
    check(&[(says("NO_REPLY, he said"), "completed: NO_REPLY, he said")]);
    // Empty answers do not withdraw the request.
    check(&[silent, (EMPTY, "answer"), (thinks("hm"), "answer"), (says("done"), "completed: done")]);
    check(&[silent, (cut("a "), "continue `a `"), (says("b"), "completed: a b")]);
}

#[test]
fn a_request_for_an_answer_forbids_calls() {
    let mut driver = submitted(&["p/m"], limits());
    assert!(!driver.turn.forbids_calls());
    answer(&mut driver, 1, says("NO_REPLY"));
    driver.crash();
    assert!(driver.turn.forbids_calls() && driver.turn.offers_tools());
    // Calls are dropped, and the text counts.
    let mut calling = driver.clone();
    answer(&mut calling, 2, calls("done", &["look"]));
    assert_eq!(came_to(&calling), "completed: done");
    answer(&mut driver, 2, LOOKS);
    assert_eq!(came_to(&driver), "answer", "without its calls it is empty");
    // Some servers refuse `tool_choice`.
    driver.lease(model(1, 3), 1);
    assert_eq!(driver.fail(FailureClass::InvalidRequest), ["model.failed"]);
    assert!(!driver.turn.offers_tools());
    driver.lease(model(1, 3), 2);
    assert_eq!(driver.clone().fail(FailureClass::InvalidRequest), ["model.failed", "run.ended"]);
    driver.answer_with("done", 0, FinishReason::Stop, EffectClass::Pure);
    assert_eq!(came_to(&driver), "completed: done");
}

#[test]
fn a_run_that_need_not_answer_may_be_silent() {
    let mut driver = Driver::new();
    driver.submit_with(1, "look", |spec| spec.must_answer = false);
    answer(&mut driver, 1, says("NO_REPLY"));
    assert_eq!(came_to(&driver), "completed: NO_REPLY");
}
