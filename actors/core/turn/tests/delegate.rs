//! Tests of delegation: start, results, refusals, stops and ends of subagents.

use std::sync::Arc;

use serde_json::json;

use super::{Driver, check, content, model, run, tool};
use crate::{
    journal::{Append, IndexRow},
    model::{
        AccountId, AgentName, Amounts, AssistantMessage, AttemptId, BeginRules, Body, BudgetRefusal,
        CallStatus, ChildEnded, Delegation, Dimension, EffectClass, FailureClass, FinishReason, Hash,
        InboxMessage, Lane, LaneLimits, LimitIncrease, Limits, NewAccount, Outcome, OutcomeDetail, ParentRef,
        RunAccepted, RunSpec, RunState, SessionId, SessionRevived, StopReason, SubagentRef, ToolCall, Usage,
    },
    policy::delegation::DELEGATE_TASK,
    turn::{CallAdmission, DelegationMode, DueAction, Input, RenderCursor},
};

const DELEGATION: Delegation = Delegation {
    depth: 0,
    max_depth: 1,
    max_children: 3,
    iterations: 50,
    shares_iterations: false,
    progress_ms: None,
};

/// A driver with one run with these rights to delegate, whose model call is under way.
fn asked(delegation: Delegation, limits: Limits) -> Driver {
    let mut driver = Driver::new();
    let spec: RunSpec = serde_json::from_value(json!({
        "chain": ["p/m"], "workspace": "/w", "task": "t", "tools": [DELEGATE_TASK, "tool"],
        "limits": limits, "delegation": delegation,
    }))
    .unwrap();
    let accepted = RunAccepted::new(run(1), "task 1", Arc::new(spec));
    driver.feed(&Input::Submitted { accepted: Box::new(accepted), key: None });
    driver.lease(model(1, 1), 1);
    driver
}

fn limits() -> Limits {
    Limits { max_tokens: 100, ..Limits::default() }
}

/// An answer that calls `delegate_task` with each of these arguments; `""` stands for a call of another tool.
fn answer(driver: &Driver, arguments: &[&str]) -> Input {
    let name = |arguments: &str| if arguments.is_empty() { "tool" } else { DELEGATE_TASK };
    let calls = arguments.iter().zip(1..).map(|(arguments, n)| ToolCall {
        id: format!("v{n}"),
        name: name(arguments).into(),
        arguments: (*arguments).into(),
    });
    let plans = arguments.iter().map(|arguments| CallAdmission::Admit {
        tool: name(arguments).into(),
        intent: EffectClass::Once.into(),
        arguments: Hash::of(arguments.as_bytes()),
        approval: None,
        hooks: None,
    });
    let message = AssistantMessage { calls: calls.collect(), ..AssistantMessage::default() };
    let answer =
        crate::model::ModelAnswer { message, finish: FinishReason::ToolCalls, usage: Some(Usage::default()) };
    let started = driver.turn.model_started().cloned().unwrap();
    Input::Answered { started, answer: Arc::new(answer), admissions: plans.collect() }
}

/// A run whose first answer delegates these tasks.
fn given(arguments: &[&str]) -> Driver {
    let mut driver = asked(DELEGATION, limits());
    gives(&mut driver, arguments);
    driver
}

fn gives(driver: &mut Driver, arguments: &[&str]) -> Vec<&'static str> {
    let answer = answer(driver, arguments);
    driver.feed(&answer)
}

/// All subagents that were started, each with its call.
fn children(driver: &Driver) -> Vec<(crate::model::CallId, SubagentRef)> {
    let records = driver.records.iter().filter_map(|record| {
        let Body::CallStarted(started) = &record.body else { return None };
        Some(started)
    });
    records.flat_map(|started| started.children.iter().map(|child| (started.call, *child))).collect()
}

/// The inbox row with the end of the `n`th started subagent.
fn row(driver: &Driver, n: usize, (outcome, told): (Outcome, &str)) -> Input {
    let (call, child) = children(driver)[n];
    let says = Input::ChildEnded(Arc::new(ChildEnded {
        call,
        child,
        ended: OutcomeDetail { outcome, cause: None },
        result: told.into(),
        iterations: 1,
        usage: Usage::default(),
    }));
    Input::FromInbox { row: 7, input: Box::new(says) }
}

fn ends(driver: &mut Driver, n: usize, said: (Outcome, &str)) -> Vec<&'static str> {
    let row = row(driver, n, said);
    driver.feed(&row)
}

fn decide(driver: &Driver, inputs: &[Input]) -> Append {
    let mut draft = driver.turn.start_decision(driver.now);
    inputs.iter().for_each(|input| draft.apply_input(input));
    draft.finish()
}

/// Ends a delegating call in the background, as the shell does.
fn delegated(driver: &mut Driver, n: u32) -> Vec<&'static str> {
    let call = tool(1, 1, n);
    let Some(DelegationMode::Background(end)) = driver.turn.delegation_mode(call) else {
        panic!("in the foreground")
    };
    driver.feed(&Input::ToolEnded { id: AttemptId { call, attempt: 1 }, end })
}

fn last(driver: &Driver) -> String {
    content(driver.turn.render(RenderCursor::default()).0.last().unwrap())
}

const ONE: &str = r#"{"goal":"look"}"#;
const TWO: &str = r#"{"tasks":[{"goal":"look"},{"goal":"read"}]}"#;
const BEHIND: &str = r#"{"goal":"look","background":true}"#;
const DONE: (Outcome, &str) = (Outcome::Completed, r#"{"answer":"found"}"#);
const FAILED: (Outcome, &str) = (Outcome::Failed, r#"{"outcome":"failed"}"#);
const AWAIT: DueAction = DueAction::AwaitSubagent { call: tool(1, 1, 1), n: 0, ends: false };

#[test]
fn a_task_begins_with_its_call_and_ends_it() {
    let mut driver = asked(DELEGATION, limits());
    let decision = decide(&driver, &[answer(&driver, &[ONE])]);
    let [founded] = &decision.spawned[..] else { panic!("{:?}", decision.spawned) };
    let Body::RunAccepted(accepted) = &founded.records[1].body else { panic!("{founded:?}") };
    assert_eq!(
        accepted.parent,
        Some(ParentRef { session: SessionId::from_bits(1), call: tool(1, 1, 1), n: 0 })
    );
    let iterations = Amounts { iterations: Some(50), ..Amounts::default() };
    let account = NewAccount {
        id: accepted.run.into(),
        parent: Some(run(1).into()),
        limits: iterations,
        owns_iterations: true,
    };
    assert_eq!(decision.ledger.new_accounts, [account]);
    assert_eq!(decision.ledger.reservations[0].amounts.children, Some(1));
    assert_eq!(gives(&mut driver, &[ONE]), ["model.answered", "call.admitted", "call.started"]);
    check(&driver, "u", &[DueAction::RunTool(AttemptId { call: tool(1, 1, 1), attempt: 1 }), AWAIT]);
    assert_eq!(driver.turn.delegation_mode(tool(1, 1, 1)), Some(DelegationMode::Foreground));

    let row = row(&driver, 0, DONE);
    assert_eq!(decide(&driver, std::slice::from_ref(&row)).consumed, [7]);
    assert_eq!(driver.feed(&row), ["child.ended", "call.ended"]);
    assert_eq!(driver.contents(), [DONE.1]);
    assert_eq!(driver.feed(&row), [""; 0], "what is read twice is heard once");
    assert_eq!(decide(&driver, &[row]).consumed, [7]);
    check(&driver, "uct", &[DueAction::Acquire(AttemptId { call: model(1, 2), attempt: 1 })]);
}

#[test]
fn a_subagent_has_the_agent_of_its_parent() {
    let agent: AgentName = "writer".parse().unwrap();
    let mut driver = asked(DELEGATION, limits());
    // The session and the spec of the run are of an agent, as if they were recorded so.
    std::sync::Arc::make_mut(&mut driver.turn.row).agent = agent.clone();
    if let Some(run) = &mut driver.turn.current {
        run.spec = Arc::new(RunSpec { agent: agent.clone(), ..RunSpec::clone(&run.spec) });
    }
    let append = decide(&driver, &[answer(&driver, &[r#"{"goal": "g"}"#])]);
    let Body::SessionOpened(opened) = &append.spawned[0].records[0].body else { panic!("it is opened") };
    let Body::RunAccepted(accepted) = &append.spawned[0].records[1].body else { panic!("it is accepted") };
    assert_eq!((&opened.agent, &accepted.spec.agent), (&agent, &agent));
    let rows = append.index.iter().filter(|row| match row {
        IndexRow::Session(row) => row.agent == agent,
        IndexRow::Run(row) => row.agent == agent,
        IndexRow::Model(_) | IndexRow::Outbox(_) | IndexRow::Message(_) | IndexRow::Occurrence(_) => false,
    });
    assert!(rows.count() >= 2, "{:?}", append.index);
}

#[test]
fn a_batch_ends_with_its_last_in_the_order_of_its_tasks() {
    let mut driver = given(&[TWO]);
    assert_eq!(ends(&mut driver, 1, FAILED), ["child.ended"]);
    driver.crash();
    assert_eq!(ends(&mut driver, 0, DONE), ["child.ended", "call.ended"]);
    assert_eq!(driver.contents(), [r#"{"results":[{"answer":"found"},{"outcome":"failed"}]}"#]);
}

#[test]
fn a_result_from_the_background_is_shown_once() {
    // The result arrives during or after the final answer, so another iteration follows.
    let mut driver = given(&[BEHIND]);
    assert_eq!(delegated(&mut driver, 1), ["call.ended"]);
    driver.lease(model(1, 2), 1);
    let mut said = driver.clone();
    assert_eq!(said.answer(0, EffectClass::Pure), ["model.answered"]);
    check(&said, "uct", &[AWAIT]);
    assert_eq!(ends(&mut said, 0, DONE), ["child.ended"]);
    check(&said, "uctau", &[DueAction::Acquire(AttemptId { call: model(1, 3), attempt: 1 })]);
    assert_eq!(said.found(DONE.1), [('u', 1)]);
    assert_eq!(ends(&mut driver, 0, DONE), ["child.ended"]);
    assert_eq!(driver.found(DONE.1), []);
    assert_eq!(driver.answer(0, EffectClass::Pure), ["model.answered"]);
    assert_eq!(driver.found(DONE.1), [('u', 1)]);
    driver.lease(model(1, 3), 1);
    assert_eq!(driver.answer(0, EffectClass::Pure), ["model.answered", "run.ended"]);
    check(&driver, "uctaua", &[]);
}

#[test]
fn a_result_that_comes_before_its_step_is_closed_is_not_lost() {
    let mut driver = given(&[BEHIND, ""]);
    driver.permit_all();
    delegated(&mut driver, 1);
    assert_eq!(ends(&mut driver, 0, DONE), ["child.ended"]);
    let end = crate::model::CallEnd::ok("r");
    driver.feed(&Input::ToolEnded { id: AttemptId { call: tool(1, 1, 2), attempt: 1 }, end });
    assert_eq!((driver.view().as_str(), driver.found(DONE.1)), ("uctt", vec![('t', 1)]));

    // One of two subagents ends before its call does.
    let mut driver = given(&[r#"{"tasks":[{"goal":"look"},{"goal":"read"}],"background":true}"#]);
    ends(&mut driver, 1, DONE);
    delegated(&mut driver, 1);
    assert_eq!(driver.found(DONE.1), [('t', 1)]);
    // All subagents of the call end before it: the call's result has their results, which are shown nowhere else.
    let mut driver = given(&[BEHIND]);
    assert_eq!(ends(&mut driver, 0, DONE), ["child.ended", "call.ended"]);
    assert_eq!(driver.found(DONE.1), [('t', 1)]);
}

/// Checks the result that the model reads for a task that is not delegated.
#[track_caller]
fn check_refused(driver: &mut Driver, inputs: &[Input], expect: &str) {
    let decision = decide(driver, inputs);
    assert!(decision.spawned.is_empty() && decision.ledger.reservations.iter().all(|r| r.amounts.is_empty()));
    let ended = decision.records.iter().find_map(|record| {
        let Body::CallEnded(ended) = &record.body else { return None };
        Some(ended.clone())
    });
    let ended = ended.unwrap();
    assert_eq!((ended.attempt, ended.end.status), (0, CallStatus::Error));
    assert!(ended.end.content.contains(expect), "{}", ended.end.content);
}

#[test]
fn what_is_not_given_away() {
    let mut deep = asked(Delegation { depth: 1, ..DELEGATION }, limits());
    let given = answer(&deep, &[ONE]);
    check_refused(&mut deep, &[given], "as deep as subagents may be");
    let mut few = asked(Delegation { max_children: 1, ..DELEGATION }, limits());
    let given = answer(&few, &[TWO]);
    check_refused(&mut few, &[given], "2 more subagents beside 0 that live are over the limit of 1 at once");
    let given = answer(&few, &[r#"{"goal":""}"#]);
    check_refused(&mut few, &[given], "it is empty");
    let (account, dimension) = (AccountId::from_bits(9), Dimension::Children);
    let refused = Input::BudgetRefused(BudgetRefusal {
        account,
        dimension,
        limit: 1,
        spent: 0,
        reserved: 1,
        needed: None,
    });
    let given = answer(&few, &[ONE]);
    check_refused(&mut few, &[refused, given], "children limit of 1 reached");
}

#[test]
fn a_task_that_has_failed_three_times_in_the_same_way_is_not_given_away_again() {
    let mut driver = asked(DELEGATION, limits());
    for iteration in 1..=3 {
        gives(&mut driver, &[ONE]);
        ends(&mut driver, usize::try_from(iteration).unwrap() - 1, FAILED);
        driver.lease(model(1, iteration + 1), 1);
    }
    let given = answer(&driver, &[ONE]);
    check_refused(&mut driver.clone(), &[given], "this task has ended as failed 3 times");
    assert!(gives(&mut driver, &[r#"{"goal":"another"}"#]).contains(&"call.started"));
}

#[test]
fn a_stop_is_told_to_all_that_live_and_waits_for_them() {
    let stop = Input::Stop { run: None, reason: StopReason::Command };
    let row_of = |driver: &Driver, n: usize| {
        let (_, child) = children(driver)[n];
        (child.session, InboxMessage::Stop { run: child.run, reason: StopReason::Parent }.to_json())
    };
    let mut driver = given(&[TWO]);
    ends(&mut driver, 0, DONE);
    assert_eq!(decide(&driver, std::slice::from_ref(&stop)).deliver, [row_of(&driver, 1)]);
    assert_eq!(driver.feed(&stop), ["run.stopping"]);
    driver.crash();
    let call = tool(1, 1, 1);
    check(
        &driver,
        "u",
        &[
            DueAction::EndTool(AttemptId { call, attempt: 1 }),
            DueAction::AwaitSubagent { call, n: 1, ends: true },
        ],
    );
    assert!(driver.turn.due(driver.now).iter().all(DueAction::is_end), "also for a session at rest");
    assert_eq!(ends(&mut driver, 1, (Outcome::Stopped, "{}")), ["child.ended", "call.ended", "run.ended"]);
    check(&driver, "ucta", &[]);
    // A stop in the append that starts the call.
    let driver = asked(DELEGATION, limits());
    let decision = decide(&driver, &[answer(&driver, &[ONE]), stop]);
    assert_eq!((decision.spawned.len(), decision.deliver.len()), (1, 1));
    // A limit of time.
    let mut driver = asked(DELEGATION, Limits { timeout_ms: Some(1_000), ..limits() });
    gives(&mut driver, &[ONE]);
    driver.pass(1_000);
    assert_eq!(decide(&driver, &[Input::TimerFired]).deliver, [row_of(&driver, 0)]);
    assert_eq!(driver.feed(&Input::TimerFired), ["run.stopping"]);
    ends(&mut driver, 0, DONE);
    let Body::RunEnded(ended) = &driver.records.last().unwrap().body else { panic!() };
    assert_eq!(ended.ended.outcome, Outcome::TimedOut);
}

#[test]
fn a_call_that_has_given_tasks_away_is_never_lost() {
    let mut driver = given(&[ONE]);
    let call = tool(1, 1, 1);
    assert_eq!(driver.feed(&Input::Lost(AttemptId { call, attempt: 1 })), [""; 0]);
    assert_eq!(driver.feed(&Input::NeverStarted(AttemptId { call, attempt: 1 })), [""; 0]);
    assert_eq!(driver.crash(), ["session.revived"]);
    check(&driver, "u", &[DueAction::RunTool(AttemptId { call, attempt: 1 }), AWAIT]);
}

#[test]
fn what_does_not_fit_is_not_given_away_by_a_revival() {
    let (account, dimension) = (run(1).into(), Dimension::ToolCalls);
    let refused = Input::BudgetRefused(BudgetRefusal {
        account,
        dimension,
        limit: 1,
        spent: 1,
        reserved: 0,
        needed: None,
    });
    // A refused reservation may fit after a raise. It is requested again, here by the next incarnation.
    let by = LimitIncrease { budget: Amounts::default(), wall_ms: Some(1) };
    let mut raised = asked(DELEGATION, Limits { wall_ms: Some(60_000), ..limits() });
    let inputs = [refused.clone(), answer(&raised, &[ONE]), Input::Raise { run: run(1), by }];
    for record in decide(&raised, &inputs).records {
        let durable = crate::model::Durable::mark_durable(Arc::clone(&record));
        raised.turn.apply(&durable);
        raised.records.push(durable);
    }
    assert_eq!(children(&raised), []);
    assert_eq!(raised.crash(), ["session.revived"]);
    check(
        &raised,
        "u",
        &[DueAction::Acquire(AttemptId { call: tool(1, 1, 1), attempt: 1 }), DueAction::WakeAtActive(60_001)],
    );
    let incarnation = crate::model::Incarnation { epoch: 1, revival: 9 };
    let revived = Input::Revived(SessionRevived { incarnation, boot: "b".into() });
    let decision = decide(&raised, &[revived, refused]);
    let kinds: Vec<_> = decision.records.iter().map(|record| record.body.kind().name()).collect();
    assert_eq!(kinds, ["session.revived", "run.exhausted", "call.ended"]);
    assert_eq!(
        raised.feed(&Input::Permitted(AttemptId { call: tool(1, 1, 1), attempt: 1 })),
        ["call.started"]
    );
}

#[test]
fn a_run_that_has_used_up_its_budget_waits_for_its_subagents() {
    let iterations = Amounts { iterations: Some(1), ..Amounts::default() };
    let mut driver = asked(DELEGATION, Limits { budget: iterations, ..limits() });
    gives(&mut driver, &[BEHIND]);
    delegated(&mut driver, 1);
    let (account, dimension) = (run(1).into(), Dimension::Iterations);
    let refusal = BudgetRefusal { account, dimension, limit: 1, spent: 1, reserved: 0, needed: None };
    assert_eq!(driver.feed(&Input::BudgetRefused(refusal)), ["run.exhausted"]);
    driver.lease(model(1, 2), 1);
    let failed = driver.fail(FailureClass::Server);
    assert_eq!(failed, ["model.failed", "run.stopping"]);
    check(&driver, "uct", &[AWAIT]);
    assert_eq!(ends(&mut driver, 0, DONE), ["child.ended", "run.ended"]);
    assert_eq!(driver.found(DONE.1), []);
    // With a raised limit the run is reopened, and its model reads the result.
    let by = LimitIncrease { budget: iterations, wall_ms: None };
    assert_eq!(driver.feed(&Input::Raise { run: run(1), by }), ["run.reopened"]);
    assert_eq!(driver.found(DONE.1), [('u', 1)]);
    assert!(last(&driver).contains("a subagent in the background has ended"));
}

#[test]
fn a_parent_leaves_its_place_while_it_only_waits_for_subagents() {
    let check = |arguments: &[&str], expect: Option<Lane>| {
        let driver = given(arguments);
        assert_eq!(driver.turn.occupied_lane(driver.now), expect, "{arguments:?}");
    };
    check(&[ONE], None);
    check(&[TWO], None);
    check(&[ONE, ""], Some(Lane::Main));
    let mut driver = given(&[BEHIND]);
    delegated(&mut driver, 1);
    assert_eq!(driver.turn.occupied_lane(driver.now), Some(Lane::Main), "it goes on beside its subagent");
    let mut driver = given(&[ONE]);
    ends(&mut driver, 0, (Outcome::Completed, "seen"));
    assert_eq!(driver.turn.occupied_lane(driver.now), Some(Lane::Main), "it goes on");
}

#[test]
fn a_subagent_waits_for_a_place_in_its_lane() {
    let mut driver = asked(DELEGATION, limits());
    let lanes = LaneLimits { subagent: Some(1), ..LaneLimits::default() };
    driver.turn.set_begin_rules(BeginRules { lanes, are_hooks_asked: false });
    let append = decide(&driver, &[answer(&driver, &[ONE])]);
    let [spawned] = &append.spawned[..] else { panic!("one subagent") };
    let Some(Body::RunAccepted(accepted)) = spawned.records.last().map(|record| &record.body) else {
        panic!()
    };
    assert_eq!(accepted.hold.and_then(|hold| hold.lane), Some(Lane::Subagent));
    let row = append.index.iter().find_map(|row| {
        let IndexRow::Run(row) = row else { return None };
        (row.id == accepted.run).then_some((row.state, row.started_at))
    });
    assert_eq!(row, Some((RunState::Queued, None)));
}
