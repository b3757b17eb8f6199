//! Tests of the guard against loops: what it warns of, what ends a run, and what is no loop.

use std::{fmt::Write as _, sync::Arc};

use super::{Driver, model, run, tool};
use crate::{
    model::{
        ApprovalNeed, Artifact, AssistantMessage, AttemptId, Body, CallEnd, CallEnded, CallId, CallStatus,
        ContentHash, EffectClass, FinishReason, Hash, Intent, Limits, Message, Outcome, OutcomeCause,
        PendingApproval, PersonAnswer, ToolCall,
    },
    policy::todo::TODO,
    turn::{CallAdmission, CallRejection, DueAction, Input, RenderCursor},
};

/// A call of a scenario: `[tool:]argument`, then its result. `=x` succeeds with x, `!x` fails with x, `?x` is rejected
/// with x, `~x` succeeds with x and polls, `~!x` fails with x and polls. A person is asked about `#`, and denies it; `%`
/// expires without an answer. What a message supersedes while a person is asked is `@`.
struct ScriptedCall<'a> {
    tool: &'a str,
    argument: &'a str,
    mark: &'a str,
    result: &'a str,
}

impl<'a> ScriptedCall<'a> {
    fn parse(text: &'a str) -> Self {
        let at = text.find(['=', '!', '?', '~', '#', '%', '@']).unwrap();
        let (call, rest) = text.split_at(at);
        let (tool, argument) = call.split_once(':').unwrap_or(("tool", call));
        let (mark, result) = rest.split_at(if rest.starts_with("~!") { 2 } else { 1 });
        Self { tool, argument, mark, result }
    }

    fn admission(&self) -> CallAdmission {
        if self.mark == "?" {
            return CallAdmission::Reject { rejection: CallRejection::Unacceptable, end: self.end() };
        }
        let intent = Intent { polls: self.mark.starts_with('~'), ..EffectClass::Pure.into() };
        let arguments = Hash::of(self.argument.as_bytes());
        let question = String::from("May it start?");
        let need = ApprovalNeed { rules: Vec::new(), allow_rules: Vec::new(), question };
        let approval = self.asks().then(|| Arc::new(need));
        CallAdmission::Admit { tool: self.tool.into(), intent, arguments, approval, hooks: None }
    }

    fn asks(&self) -> bool {
        ["#", "%", "@"].contains(&self.mark)
    }

    /// What ends the wait for a person.
    fn answer(&self, driver: &mut Driver, call: CallId) {
        let is_open = |open: &PendingApproval| open.request.call == call;
        match self.mark {
            _ if !driver.turn.open_approvals().iter().any(is_open) => {}
            "#" => drop(driver.feed(&Input::Approval { call, answer: PersonAnswer::Deny })),
            "%" => {
                driver.pass(86_400_000);
                driver.feed(&Input::TimerFired);
            }
            "@" => drop(driver.steer(1, 90 + u128::from(call.iteration))),
            _ => {}
        }
    }

    fn end(&self) -> CallEnd {
        let has_failed = ["!", "?", "~!"].contains(&self.mark);
        CallEnd::new(if has_failed { CallStatus::Error } else { CallStatus::Ok }, self.result)
    }
}

/// A run whose first model call is wanted.
fn begun() -> Driver {
    let mut driver = Driver::new();
    driver.submit(1, Limits { max_tokens: 100, ..Limits::default() });
    driver
}

/// The admission of a call that is always the same.
fn same_call(effect: EffectClass) -> CallAdmission {
    CallAdmission::Admit {
        tool: "tool".into(),
        intent: effect.into(),
        arguments: Hash::of(b"same"),
        approval: None,
        hooks: None,
    }
}

/// The model makes these calls in one answer, and they end in the order of `ends`, or as far as the run goes.
fn make_step(driver: &mut Driver, calls: &[ScriptedCall<'_>], ends: impl Iterator<Item = usize>) {
    let due = driver.turn.due(driver.now);
    let Some(wanted) = due.iter().find_map(DueAction::acquired_attempt) else { return };
    driver.lease(wanted.call, wanted.attempt);
    let request = |(call, n): (&ScriptedCall<'_>, usize)| ToolCall {
        id: format!("v{n}"),
        name: call.tool.into(),
        arguments: format!("{{\"of\":\"{}\"}}", call.argument),
    };
    let message = AssistantMessage {
        calls: calls.iter().zip(1..).map(request).collect(),
        ..AssistantMessage::default()
    };
    let plans = calls.iter().map(ScriptedCall::admission).collect();
    driver.answer_message(message, FinishReason::ToolCalls, plans);
    driver.permit_all();
    for at in ends {
        let call = tool(1, wanted.call.iteration, u32::try_from(at).unwrap() + 1);
        calls[at].answer(driver, call);
        let attempts = driver.turn.due(driver.now).into_iter().filter_map(|due| {
            let DueAction::RunTool(id) = due else { return None };
            (id.call == call).then_some(id)
        });
        for id in attempts.collect::<Vec<_>>() {
            driver.feed(&Input::ToolEnded { id, end: calls[at].end() });
        }
    }
}

fn ends(driver: &Driver) -> impl Iterator<Item = &CallEnded> {
    driver.records.iter().filter_map(|record| {
        let Body::CallEnded(ended) = &record.body else { return None };
        Some(ended)
    })
}

/// What the records tell: the step and the repetition of each warning, and the outcome.
fn told(driver: &Driver) -> String {
    let mut told = String::new();
    for ended in ends(driver) {
        if let Some(found) = &ended.repetition {
            let pattern = serde_json::to_value(found.pattern).unwrap();
            let (step, pattern) = (ended.call.iteration, pattern.as_str().unwrap().to_owned());
            write!(told, "{step} {} {pattern} {}; ", found.tool, found.times).unwrap();
        }
    }
    for record in &driver.records {
        if let Body::RunEnded(ended) = &record.body {
            write!(told, "{}; ", ended.ended.outcome).unwrap();
        }
    }
    told.trim_end_matches("; ").into()
}

/// Checks what a scenario leads to: its steps are separated by `|`, the calls of one by spaces. `steer` is a message of
/// the user. The order in which calls end, and crashes, must make no difference.
#[track_caller]
fn check(steps: &str, expected: &str) {
    for (crashes, reversed) in [(false, false), (true, false), (false, true)] {
        let mut driver = begun();
        for (step, n) in steps.split('|').map(str::trim).zip(50..) {
            if step == "steer" {
                driver.steer(1, n);
                continue;
            }
            let calls: Vec<_> = step.split_whitespace().map(ScriptedCall::parse).collect();
            match reversed {
                true => make_step(&mut driver, &calls, (0..calls.len()).rev()),
                false => make_step(&mut driver, &calls, 0..calls.len()),
            }
            if crashes {
                driver.crash();
            }
        }
        assert_eq!(told(&driver), expected, "{steps} (crashes: {crashes}, reversed: {reversed})");
    }
}

/// The steps `cycle`, this many times.
fn times(cycle: &str, times: usize) -> String {
    vec![cycle; times].join(" | ")
}

#[test]
fn the_same_call_with_the_same_result_is_warned_of_and_ends_the_run() {
    check(&times("A=1", 2), "");
    check(&times("A=1", 4), "3 tool same_result 3; 4 tool same_result 4");
    let end = "3 tool same_result 3; 4 tool same_result 4; 5 tool same_result 5; loop_detected";
    check(&times("A=1", 9), end);
    // Another tool, or other arguments, is another call.
    check("A=1 | B=1 | C=1 | x:A=1 | y:A=1 | z:A=1", "");
}

#[test]
fn another_result_or_a_new_call_starts_the_count_again() {
    check("A=1 | A=2 | A=3 | A=4 | A=5 | A=6", "");
    check(&times("A=1 | A=2", 6), "");
    check("A=1 | A=1 | B=1 | A=1 | A=1 | C=1 | A=1 | A=1 | D=1 | A=1 | A=1", "");
    check("A=1 | A=1 | B=1 | A=1 | A=1 | A=1", "6 tool same_result 3");
    // Also in the same answer.
    check("A=1 B=1 | A=1 C=1 | A=1 D=1 | A=1 E=1 | A=1 F=1 | A=1 G=1", "");
}

#[test]
fn equal_calls_of_one_answer_count_once() {
    check(&times("A=1 A=1 A=1 A=1 A=1 A=1", 2), "");
    check(&times("A=1 A=1", 3), "3 tool same_result 3");
    check("x:A!n x:B!n x:C!n x:D!n x:E!n x:F!n x:G!n x:H!n x:I!n", "");
}

#[test]
fn calls_between_hide_nothing_if_they_repeat_too() {
    // A cycle of three counts when it is complete.
    check(&times("A=1 | B=1 | C=1", 2), "");
    check(&format!("{} | A=1 | B=1", times("A=1 | B=1 | C=1", 2)), "");
    check(&times("A=1 | B=1 | C=1", 3), "9 tool same_result 3");
    let long = times("A=1 | B=1 | C=1", 9);
    let expected = "9 tool same_result 3; 10 tool same_result 3; 11 tool same_result 3; 12 tool same_result 4; \
                    13 tool same_result 4; 14 tool same_result 4; 15 tool same_result 5; loop_detected";
    check(&long, expected);
    // Calls in any order that bring nothing new.
    let shuffled = "A=1 | B=1 | A=1 | A=1 B=1 | B=1 | A=1";
    check(shuffled, "5 tool same_result 3; 6 tool same_result 3");
}

#[test]
fn the_same_failure_is_warned_of_at_once() {
    check("A!no", "");
    check("A!no | A!no", "2 tool same_failure 2");
    let end = "2 tool same_failure 2; 3 tool same_failure 3; 4 tool same_failure 4; 5 tool same_failure 5; loop_detected";
    check(&times("A!no", 9), end);
    // Rejected calls have failed, too.
    check(&times("A?no", 9), end);
    check("A!no | A!other | A!no | A!other", "3 tool failing_tool 3; 4 tool failing_tool 4");
    // A call that failed and then succeeds is no repetition.
    check("A!no | A=1 | A!no | A=1 | A!no | A=1 | A!no", "");
}

#[test]
fn a_call_that_a_person_has_denied_has_failed() {
    let end = "2 tool same_failure 2; 3 tool same_failure 3; 4 tool same_failure 4; 5 tool same_failure 5; loop_detected";
    check("A#", "");
    check(&times("A#", 9), end);
    // So has one that no person has answered. Each is asked about again.
    check(&times("A%", 9), end);
    // Other results between hide nothing if they repeat too.
    check("A# | B=1 | A# | B=1 | A#", "5 tool same_failure 2");
    // Other calls of the tool are denied.
    check("A# | B# | C#", "3 tool failing_tool 3");
    // What is not denied is no failure.
    check("A# | A=1 | A# | A=1", "");
    // Equal calls of one answer count once.
    check("A# A# | A# A#", "2 tool same_failure 2");
}

#[test]
fn a_call_that_a_message_has_superseded_has_not_failed() {
    check("A@ | A@ | A@ | A@ | A@ | A@", "");
    check("A!no | B@ | A!no", "");
}

#[test]
fn a_tool_that_only_fails_is_warned_of_and_ends_the_run() {
    let fails =
        |range: std::ops::Range<usize>| range.map(|n| format!("A{n}!no")).collect::<Vec<_>>().join(" | ");
    check(&fails(0..2), "");
    let warned =
        |to: usize| (3..=to).map(|n| format!("{n} tool failing_tool {n}")).collect::<Vec<_>>().join("; ");
    check(&fails(0..7), &warned(7));
    check(&fails(0..9), &format!("{}; loop_detected", warned(8)));
    // A success of the tool, or a new success of another one, starts the count again.
    check(&format!("{} | B=1 | {}", fails(0..2), fails(2..4)), "");
    check(&format!("{} | x:B=1 | {}", fails(0..2), fails(2..4)), "");
    check(&format!("B=1 | {} | B=1 | {}", fails(0..2), fails(2..4)), "");
    // Another tool that only repeats itself, or fails, does not.
    check(&format!("x:B=1 | {} | x:B=1 | A9!no", fails(0..2)), "5 tool failing_tool 3");
    check("A!a | x:A!a | B!b | x:B!b | C!c | x:C!c", "5 tool failing_tool 3; 6 x failing_tool 3");
    // A tool that fails and succeeds in one answer works.
    check(&times("A!a B=1", 1), "");
    check("A!a B=1 | C!a D=1 | E!a F=1 | G!a H=1", "");
}

#[test]
fn steps_that_take_turns_are_named_so() {
    check(&times("A=1 | B=2", 2), "");
    check(&format!("{} | A=1", times("A=1 | B=2", 2)), "");
    check(&times("A=1 | B=2", 3), "6 tool alternating_calls 3");
    let end = "6 tool alternating_calls 3; 7 tool alternating_calls 3; 8 tool alternating_calls 4; \
               9 tool alternating_calls 4; 10 tool alternating_calls 5; loop_detected";
    check(&times("A=1 | B=2", 9), end);
    // Another result in one of the two breaks the row.
    check("A=1 | B=2 | A=1 | B=3 | A=1 | B=4 | A=1 | B=5 | A=1 | B=6", "");
}

#[test]
fn editing_and_testing_is_no_loop() {
    let cycle = |n: usize| format!("edit:{n}=done | shell:test=exit1");
    let work: Vec<String> = (0..12).map(cycle).collect();
    check(&work.join(" | "), "");
    let failing: Vec<String> = (0..12).map(|n| format!("edit:{n}=done | test:all!failed")).collect();
    check(&failing.join(" | "), "");
    let pages: Vec<String> = (0..70).map(|n| format!("read:{n}=x")).collect();
    check(&pages.join(" | "), "");
}

#[test]
fn a_call_that_polls_may_repeat_its_result_but_not_its_failure() {
    check(&times("P~no", 20), "");
    check(&times("A=1 | P~no", 20), "");
    check("P~!no | P~!no", "2 tool same_failure 2");
    let fails: Vec<String> = (0..3).map(|n| format!("P{n}~!no")).collect();
    check(&fails.join(" | "), "3 tool failing_tool 3");
}

#[test]
fn a_message_of_the_user_starts_the_count_again() {
    check("A=1 | A=1 | steer | A=1 | A=1", "");
    check("A!1 | steer | A!1 | steer | A!1 | steer | A!1", "");
    check("A=1 | A=1 | steer | A=1 | A=1 | A=1", "5 tool same_result 3");
}

#[test]
fn a_run_without_the_guard_repeats_as_it_likes() {
    let mut driver = Driver::new();
    driver.submit_with(1, "task", |spec| spec.loop_guard = false);
    for _ in 0..20 {
        make_step(&mut driver, &[ScriptedCall::parse("A!no")], 0..1);
    }
    assert_eq!((told(&driver).as_str(), ends(&driver).count()), ("", 20));
}

#[test]
fn the_model_reads_the_warning_behind_the_results() {
    let mut driver = begun();
    for _ in 0..3 {
        make_step(&mut driver, &[ScriptedCall::parse("A=1"), ScriptedCall::parse("B=2")], 0..2);
    }
    let contents = driver.contents();
    assert_eq!(contents[..5], ["1", "2", "1", "2", "1"]);
    let expected = "2\n\n[From the runtime, not from the user: `tool` was called 3 times with the same arguments and the \
                    same result. Another repetition will give nothing new. Use what you have, go on in another way, or \
                    give your answer. The run is ended at 5 times.]";
    assert_eq!(contents[5], expected);
    // What is recorded is what a later process shows.
    driver.crash();
    assert_eq!(driver.contents()[..6], contents[..]);
}

#[test]
fn the_end_names_the_repetition_and_the_next_run_starts_anew() {
    let mut driver = begun();
    for _ in 0..5 {
        make_step(&mut driver, &[ScriptedCall::parse("A=1")], 0..1);
    }
    let Some(Body::RunEnded(ended)) = driver.records.last().map(|record| &record.body) else {
        panic!("no end")
    };
    assert_eq!(ended.ended.outcome, Outcome::LoopDetected);
    let Some(OutcomeCause::Repetition { repetition }) = &ended.ended.cause else { panic!("{ended:?}") };
    assert_eq!((&*repetition.tool, repetition.times), ("tool", 5));
    let (messages, _) = driver.turn.render(RenderCursor::default());
    let Some(Message::Assistant(last)) = messages.last() else { panic!("{messages:?}") };
    let note = "[This run ended without an answer: loop_detected (repetition: `tool` was called 5 times with the same \
                arguments and the same result).]";
    assert_eq!(last.text, note);
    driver.submit(2, Limits { max_tokens: 100, ..Limits::default() });
    driver.lease(model(2, 1), 1);
    let records =
        driver.answer_planned("", FinishReason::ToolCalls, vec![ScriptedCall::parse("A=1").admission()]);
    assert_eq!(records, ["model.answered", "call.admitted"]);
    driver.permit_all();
    let id = AttemptId { call: tool(2, 1, 1), attempt: 1 };
    assert_eq!(driver.feed(&Input::ToolEnded { id, end: CallEnd::ok("1") }), ["call.ended"]);
    assert!(ends(&driver).last().is_some_and(|ended| ended.repetition.is_none()));
}

#[test]
fn calls_that_did_not_end_by_themselves_do_not_count() {
    let mut driver = begun();
    for iteration in 1..=6 {
        driver.lease(model(1, iteration), 1);
        driver.answer_planned("", FinishReason::ToolCalls, vec![same_call(EffectClass::Once)]);
        driver.permit_all();
        driver.crash();
        driver.feed(&Input::Lost(AttemptId { call: tool(1, iteration, 1), attempt: 1 }));
    }
    assert!(ends(&driver).all(|ended| ended.end.status == CallStatus::InDoubt));
    assert_eq!((told(&driver).as_str(), ends(&driver).count()), ("", 6));
}

#[test]
fn a_list_that_does_not_change_is_a_loop() {
    let mut driver = begun();
    for iteration in 1..=6 {
        driver.lease(model(1, iteration), 1);
        let call = ToolCall { id: "v".into(), name: TODO.into(), arguments: "{}".into() };
        let message = AssistantMessage { calls: vec![call], ..AssistantMessage::default() };
        let arguments = Hash::of(b"{}");
        let intent = EffectClass::Idempotent.into();
        let plan = CallAdmission::Admit { tool: TODO.into(), intent, arguments, approval: None, hooks: None };
        driver.answer_message(message, FinishReason::ToolCalls, vec![plan]);
    }
    let end = "3 todo same_result 3; 4 todo same_result 4; 5 todo same_result 5; loop_detected";
    assert_eq!(told(&driver), end);
}

#[test]
fn long_outputs_are_equal_whatever_their_artifacts_are_called() {
    let looping = |content: fn(u32) -> &'static [u8]| {
        let mut driver = begun();
        for iteration in 1..=5 {
            driver.lease(model(1, iteration), 1);
            driver.answer_planned("", FinishReason::ToolCalls, vec![same_call(EffectClass::Pure)]);
            driver.permit_all();
            let handle = format!("{}-1", tool(1, iteration, 1));
            let sha256 = Some(Box::new(ContentHash::of(content(iteration))));
            let end = CallEnd {
                artifact: Some(Artifact { handle: handle.clone(), bytes: 7, sha256 }),
                ..CallEnd::ok(format!("head … tail, all of it in {handle}"))
            };
            let id = AttemptId { call: tool(1, iteration, 1), attempt: 1 };
            driver.feed(&Input::ToolEnded { id, end });
        }
        told(&driver)
    };
    assert!(looping(|_| b"same").ends_with("loop_detected"));
    assert_eq!(looping(|n| if n % 2 == 0 { b"even" } else { b"odd" }), "");
}

#[test]
fn a_run_that_ends_for_another_reason_keeps_it() {
    let mut driver = begun();
    for _ in 0..4 {
        make_step(&mut driver, &[ScriptedCall::parse("A=1")], 0..1);
    }
    // The fifth repetition ends after the stop.
    make_step(&mut driver, &[ScriptedCall::parse("A=1")], 0..0);
    driver.feed(&Input::Stop { run: Some(run(1)), reason: crate::model::StopReason::Command });
    let id = AttemptId { call: tool(1, 5, 1), attempt: 1 };
    driver.feed(&Input::ToolEnded { id, end: CallEnd::ok("1") });
    assert_eq!(told(&driver), "3 tool same_result 3; 4 tool same_result 4; stopped");
}
