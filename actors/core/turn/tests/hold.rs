//! Tests of runs that need permission to begin: a place in their lane, and the verdict of hooks.

use std::sync::Arc;

use super::{Driver, check, model, run};
use crate::{
    model::{
        BeginRules, Body, EffectClass, HookDecision, HookPoint, HookRuling, HookedRun, Lane, LaneLimits,
        Limits, Outcome, QueueMode, Queueing, RunAccepted, RunSpec, StopReason,
    },
    turn::{DueAction, GrantRequest, Input},
};

const LIMITED: LaneLimits = LaneLimits { main: Some(1), subagent: None, cron: None };
const LANE: BeginRules = BeginRules { lanes: LIMITED, are_hooks_asked: false };
const HOOKS: BeginRules = BeginRules { lanes: LaneLimits { main: None, ..LIMITED }, are_hooks_asked: true };
const BOTH: BeginRules = BeginRules { lanes: LIMITED, are_hooks_asked: true };

/// A session in which runs wait for this.
fn driver(rules: BeginRules) -> Driver {
    let mut driver = Driver::new();
    driver.turn.set_begin_rules(rules);
    driver
}

fn permit(driver: &mut Driver, n: u128, hooks: Option<HookedRun>) -> Vec<&'static str> {
    driver.feed(&Input::MayBegin { run: run(n), hooks: hooks.map(Arc::new) })
}

fn hooked(ruling: HookRuling, input: Option<&str>, context: Option<&str>) -> HookedRun {
    let reason = (ruling == HookRuling::Refused).then(|| "not today".into());
    let decision = HookDecision { hook: "guard".into(), point: HookPoint::BeforeRun, ruling, reason };
    HookedRun { decisions: [decision].into(), input: input.map(Into::into), context: context.map(Into::into) }
}

/// Sends a message that becomes run `n`, or joins another one.
fn send(driver: &mut Driver, n: u128, mode: QueueMode) -> Vec<&'static str> {
    let spec = Arc::new(RunSpec::new(vec!["p/m".parse().unwrap()], "/w"));
    let accepted = RunAccepted::new(run(n), format!("(message {n})"), spec);
    let queueing = Some(Queueing { mode, ..Queueing::default() });
    let accepted = Box::new(RunAccepted { queueing, ..accepted });
    driver.feed(&Input::Submitted { accepted, key: None })
}

#[test]
fn a_run_begins_with_its_permission_and_not_before() {
    for rules in [LANE, HOOKS, BOTH] {
        let mut driver = driver(rules);
        assert_eq!(driver.submit(1, Limits::default()), ["run.accepted"], "{rules:?}");
        check(&driver, "", &[DueAction::Begin(run(1))]);
        driver.pass(100_000);
        assert_eq!(driver.feed(&Input::TimerFired), [] as [&str; 0]);
        assert_eq!(permit(&mut driver, 2, None), [] as [&str; 0], "of another run");
        assert_eq!(permit(&mut driver, 1, None), ["run.begun"]);
        assert_eq!(driver.turn.current().map(|(id, _)| id), Some(run(1)));
        assert_eq!(permit(&mut driver, 1, None), [] as [&str; 0], "once more");
    }
}

#[test]
fn a_run_without_rules_begins_as_ever() {
    let mut driver = driver(BeginRules { lanes: LIMITED, are_hooks_asked: false });
    driver.submit_with(1, "of another lane", |spec| spec.lane = Lane::Cron);
    assert_eq!(driver.turn.current().map(|(id, _)| id), Some(run(1)));
}

#[test]
fn a_free_place_is_taken_in_the_append_of_the_acceptance() {
    let driver = driver(LANE);
    let spec = Arc::new(RunSpec::new(vec!["p/m".parse().unwrap()], "/w"));
    let accepted = Box::new(RunAccepted::new(run(1), "task", spec));
    let grant = |request| match request {
        GrantRequest::Place(run, Lane::Main) => Some(Input::MayBegin { run, hooks: None }),
        GrantRequest::Place(..) | GrantRequest::Lease(_) | GrantRequest::Permit(..) => None,
    };
    let append = driver.turn.decide(driver.now, &[Input::Submitted { accepted, key: None }], grant);
    let names: Vec<_> = append.records.iter().map(|record| record.body.kind().name()).collect();
    assert_eq!(names, ["run.accepted", "run.begun"]);
    assert!(
        append
            .index
            .iter()
            .any(|row| { matches!(row, crate::journal::IndexRow::Run(row) if row.started_at.is_some()) })
    );
}

#[test]
fn hooks_change_what_the_model_reads_and_their_decision_is_recorded() {
    let check = |hooks: HookedRun, expect: &str| {
        let mut driver = driver(HOOKS);
        driver.submit(1, Limits::default());
        permit(&mut driver, 1, Some(hooks.clone()));
        assert!(driver.found(expect).iter().any(|(_, times)| *times > 0), "{expect}: {}", driver.view());
        let mut crashed = driver.clone();
        crashed.crash();
        assert_eq!(crashed.turn.request_hash(), driver.turn.request_hash());
        let begun = driver.records.iter().find_map(|record| match &record.body {
            Body::RunBegun(begun) => begun.hooks.clone(),
            _ => None,
        });
        assert_eq!(begun.as_deref(), Some(&hooks));
    };
    check(hooked(HookRuling::Allowed, None, None), "task 1");
    check(hooked(HookRuling::Replaced, Some("another task"), None), "another task");
    check(hooked(HookRuling::Replaced, None, Some("it is Friday")), "task 1\n\nit is Friday");
    check(hooked(HookRuling::Replaced, Some("other"), Some("and more")), "other\n\nand more");
}

#[test]
fn a_refused_run_ends_without_having_begun_and_the_next_one_is_asked_about() {
    let mut driver = driver(BOTH);
    driver.submit(1, Limits::default());
    driver.submit(2, Limits::default());
    let refused = hooked(HookRuling::Refused, None, None);
    assert_eq!(permit(&mut driver, 1, Some(refused)), ["run.ended"]);
    let Some(Body::RunEnded(ended)) = driver.records.last().map(|record| &record.body) else { panic!() };
    assert_eq!(ended.ended.outcome, Outcome::Refused);
    assert_eq!(ended.ended.to_string(), "refused (the hook `guard` refuses this: not today)");
    check(&driver, "", &[DueAction::Begin(run(2))]);
}

#[test]
fn a_run_that_waits_for_permission_survives_a_crash_and_can_be_stopped() {
    let mut driver = driver(BOTH);
    driver.submit(1, Limits::default());
    driver.crash();
    driver.turn.set_begin_rules(BeginRules::default());
    check(&driver, "", &[DueAction::Begin(run(1))]);
    let stop = Input::Stop { run: Some(run(1)), reason: StopReason::Command };
    assert_eq!(driver.feed(&stop), ["run.ended"]);
    check(&driver, "", &[]);
    assert_eq!(permit(&mut driver, 1, None), [] as [&str; 0]);
}

#[test]
fn a_message_steers_a_run_that_waits_for_permission() {
    let mut driver = driver(LANE);
    send(&mut driver, 1, QueueMode::Steer);
    assert_eq!(send(&mut driver, 2, QueueMode::Steer), ["message.steered"]);
    permit(&mut driver, 1, None);
    let shown =
        |n: u128| driver.found(&format!("(message {n})")).iter().map(|(_, times)| times).sum::<usize>();
    assert_eq!((shown(1), shown(2)), (1, 1));
}

#[test]
fn a_run_that_collects_asks_only_when_its_time_is_over() {
    let mut driver = driver(BOTH);
    send(&mut driver, 1, QueueMode::Collect);
    let until = driver.now.at.plus_ms(500);
    check(&driver, "", &[DueAction::WakeAt(until)]);
    assert_eq!(permit(&mut driver, 1, None), [] as [&str; 0], "it collects still");
    driver.pass(500);
    check(&driver, "", &[DueAction::Begin(run(1))]);
    // One more message joins while it waits for its place.
    assert_eq!(send(&mut driver, 2, QueueMode::Collect), ["message.collected"]);
    check(&driver, "", &[DueAction::WakeAt(driver.now.at.plus_ms(500))]);
    driver.pass(500);
    assert_eq!(permit(&mut driver, 1, None), ["run.begun"]);
}

#[test]
fn a_run_has_its_place_while_it_works() {
    let mut driver = driver(BeginRules::default());
    let lane = |driver: &Driver| driver.turn.occupied_lane(driver.now);
    assert_eq!(lane(&driver), None);
    driver.submit(1, Limits::default());
    assert_eq!(lane(&driver), Some(Lane::Main));
    driver.lease(model(1, 1), 1);
    driver.answer(1, EffectClass::Once);
    assert_eq!(lane(&driver), Some(Lane::Main), "its tool runs");
    driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
    assert_eq!(lane(&driver), None, "it has ended");
}
