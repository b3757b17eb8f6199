//! Tests of titles: when a session wants one, what becomes of it, and that it costs no run anything.

use super::{store_limits::SharedStore, *};
use crate::model::{Amounts, AsideJob, AuxiliaryChain, Outcome, PeriodUnit, RunState, StoreLimits};

const NOW: Timestamp = Timestamp(1_767_261_600_000);
const WANTED: &str = "Find the keel of the ship";

/// A session whose first run has completed; `change` changes its spec.
fn completed(change: impl FnOnce(&mut RunSpec)) -> Driver {
    let mut driver = Driver::new();
    complete(&mut driver, 1, change);
    driver
}

fn complete(driver: &mut Driver, n: u128, change: impl FnOnce(&mut RunSpec)) {
    driver.submit_with(n, WANTED, |spec| {
        let chain = ["s/small", "p/m"].map(|link| link.parse().unwrap()).to_vec();
        spec.title = Some(Arc::new(AuxiliaryChain { chain, profiles: Vec::new() }));
        change(spec);
    });
    driver.lease(CallId { run: run(n), iteration: 1, n: 0 }, 1);
    let ended = driver.answer(0, EffectClass::Pure);
    assert_eq!(ended, ["model.answered", "run.ended"]);
}

const fn title(n: u128, attempt: u32) -> AttemptId {
    CallId::aside(run(n), 1, AsideJob::Title).attempt(attempt)
}

fn lease(driver: &mut Driver, id: AttemptId) -> Vec<&'static str> {
    let Some(model) = driver.turn.candidates_of(id.call).and_then(|links| Some(links.first()?.model.clone()))
    else {
        return Vec::new();
    };
    driver.feed(&Input::Leased { id, model })
}

fn answer(driver: &mut Driver, text: &str) -> Vec<&'static str> {
    let call = CallId::aside(run(1), 1, AsideJob::Title);
    let started = driver.turn.aside_request(call).expect("a title is under way").started;
    let message = AssistantMessage { text: text.into(), ..AssistantMessage::default() };
    let usage = Some(Usage { input_tokens: 50, output_tokens: 5, ..Usage::default() });
    let answer = Arc::new(ModelAnswer { message, finish: FinishReason::Stop, usage });
    driver.feed(&Input::Answered { started, answer, admissions: Arc::new([]) })
}

fn fail(driver: &mut Driver, id: AttemptId, class: FailureClass) -> Vec<&'static str> {
    let failure = Box::new(Failure::new(class, "x"));
    driver.feed(&Input::ModelFailed { id, failure, failover: FailoverOptions::default() })
}

/// The titles in the rows of the session that were written.
fn titles(driver: &Driver) -> Vec<Option<String>> {
    let rows = driver.index.iter().filter_map(|row| {
        let IndexRow::Session(row) = row else { return None };
        Some(row.title.as_deref().map(str::to_owned))
    });
    rows.collect()
}

/// The state of run 1 in its last row, its last record, and the one that settles its title.
fn rows_of_first_run(driver: &Driver) -> Option<(RunState, u64, Option<u64>)> {
    let mut rows = driver.index.iter().rev().filter_map(|row| {
        let IndexRow::Run(row) = row else { return None };
        (row.id == run(1)).then_some((row.state, row.last, row.asides_until))
    });
    rows.next()
}

#[test]
fn the_first_completed_run_gives_its_session_a_title() {
    let mut driver = completed(|_| {});
    assert_eq!(driver.turn.due(driver.now), [DueAction::Acquire(title(1, 1))]);
    assert_eq!(lease(&mut driver, title(1, 1)), ["aside.started"]);
    let request = driver.turn.aside_request(CallId::aside(run(1), 1, AsideJob::Title)).unwrap();
    assert!(
        request.content.text.contains(WANTED) && request.content.text.contains("done"),
        "{}",
        request.content.text
    );
    assert_eq!(request.started.model.to_string(), "s/small");
    assert_eq!(answer(&mut driver, "\"The keel.\"\n"), ["aside.answered"]);
    assert_eq!(titles(&driver), [None, Some("The keel".into())]);
    assert_eq!(
        rows_of_first_run(&driver),
        Some((RunState::Ended, driver.turn.last_seq() - 2, Some(driver.turn.last_seq())))
    );
    assert_eq!(driver.turn.due(driver.now), []);
    complete(&mut driver, 2, |_| {});
    assert_eq!(driver.turn.due(driver.now), []);
    driver.crash();
    assert_eq!(driver.turn.due(driver.now), []);
}

#[test]
fn no_other_end_and_no_run_without_a_chain_wants_a_title() {
    let driver = completed(|spec| spec.title = None);
    assert_eq!(driver.turn.due(driver.now), []);
    let mut driver = Driver::new();
    driver.submit_with(1, WANTED, |spec| {
        let chain = vec!["s/small".parse().unwrap()];
        spec.title = Some(Arc::new(AuxiliaryChain { chain, profiles: Vec::new() }));
    });
    driver.feed(&Input::Stop { run: None, reason: crate::model::StopReason::Command });
    assert_eq!(driver.turn.due(driver.now), []);
}

#[test]
fn a_title_delays_no_run() {
    let mut driver = completed(|_| {});
    driver.submit(2, Limits::default());
    let of_title = |driver: &Driver| {
        let due = driver.turn.due(driver.now);
        due.iter().filter(|due| due.acquired_attempt().is_some_and(|id| id.call.is_aside())).count()
    };
    assert_eq!(of_title(&driver), 0);
    // Its lease comes too late: the run has begun.
    assert_eq!(lease(&mut driver, title(1, 1)), [""; 0]);
    driver.lease(CallId { run: run(2), iteration: 1, n: 0 }, 1);
    driver.answer(0, EffectClass::Pure);
    assert_eq!(of_title(&driver), 1);
    // One that is under way goes on beside the next run.
    lease(&mut driver, title(1, 1));
    driver.submit(3, Limits::default());
    assert!(driver.turn.due(driver.now).contains(&DueAction::CallModel(title(1, 1))));
    assert_eq!(answer(&mut driver, "The keel"), ["aside.answered"]);
    assert_eq!(driver.turn.current().map(|(run, _)| run), Some(run(3)));
}

#[test]
fn a_crash_repeats_the_call_a_few_times() {
    let mut driver = completed(|_| {});
    for attempt in 1..=4 {
        assert_eq!(lease(&mut driver, title(1, attempt)), ["aside.started"], "{attempt}");
        assert_eq!(driver.crash(), ["session.revived", "aside.failed"], "{attempt}");
    }
    assert_eq!(driver.turn.due(driver.now), []);
}

#[test]
fn a_title_that_fails_is_wanted_again_after_a_further_run_and_then_no_more() {
    let mut driver = completed(|_| {});
    for n in 1..=3 {
        lease(&mut driver, title(n, 1));
        assert_eq!(fail(&mut driver, title(n, 1), FailureClass::Auth), ["aside.failed"]);
        lease(&mut driver, title(n, 2));
        let request = driver.turn.aside_request(CallId::aside(run(n), 1, AsideJob::Title)).unwrap();
        assert_eq!(request.started.model.to_string(), "p/m");
        assert_eq!(fail(&mut driver, title(n, 2), FailureClass::Auth), ["aside.failed"]);
        assert_eq!(driver.turn.due(driver.now), []);
        complete(&mut driver, n + 1, |_| {});
    }
    assert_eq!(driver.turn.due(driver.now), []);
    assert_eq!(titles(&driver), [None]);
}

#[test]
fn an_answer_without_a_title_leads_to_another_attempt_and_to_the_next_model() {
    let mut driver = completed(|_| {});
    for (attempt, model) in [(1, "s/small"), (2, "s/small"), (3, "p/m"), (4, "p/m")] {
        lease(&mut driver, title(1, attempt));
        let request = driver.turn.aside_request(CallId::aside(run(1), 1, AsideJob::Title)).unwrap();
        assert_eq!(request.started.model.to_string(), model);
        assert_eq!(answer(&mut driver, " \n"), ["aside.answered"]);
    }
    assert_eq!(driver.turn.due(driver.now), []);
    let ended = |record: &Durable<Arc<Record>>| matches!(&record.body, Body::RunEnded(ended) if ended.ended.outcome == Outcome::Completed);
    assert!(driver.records.iter().any(ended));
}

#[test]
fn a_title_that_does_not_fit_a_budget_is_not_made() {
    let check = |limits: StoreLimits, tokens: Option<u64>| {
        let mut driver = Driver::new();
        driver.now.at = NOW;
        let store = SharedStore::new(limits);
        driver.store = Some(store.clone());
        complete(&mut driver, 1, |spec| {
            spec.limits = Limits { max_tokens: 300, ..Limits::default() };
            spec.limits.budget.tokens = tokens;
        });
        assert_eq!(lease(&mut driver, title(1, 1)), ["aside.failed"]);
        assert_eq!(driver.turn.due(driver.now), []);
        // The next run is not harmed.
        driver.submit(2, Limits { max_tokens: 100, ..Limits::default() });
        assert!(!driver.turn.due(driver.now).is_empty());
    };
    check(StoreLimits::default(), Some(500));
    let hour = Amounts { tokens: Some(500), ..Amounts::default() };
    check(StoreLimits { hour, ..StoreLimits::default() }, None);
}

#[test]
fn a_title_is_spent_on_the_account_of_its_run_and_of_the_store() {
    let mut driver = Driver::new();
    driver.now.at = NOW;
    let hour = Amounts { tokens: Some(100_000), ..Amounts::default() };
    let store = SharedStore::new(StoreLimits { hour, ..StoreLimits::default() });
    driver.store = Some(store.clone());
    complete(&mut driver, 1, |_| {});
    let spent = || store.account(PeriodUnit::Hour, NOW).map(|account| (account.spent, account.reserved));
    let before = spent().unwrap().0.tokens.unwrap_or(0);
    lease(&mut driver, title(1, 1));
    assert!(spent().unwrap().1.tokens > Some(512));
    answer(&mut driver, "The keel");
    let (after, reserved) = spent().unwrap();
    assert_eq!((after.tokens, reserved.tokens), (Some(before + 55), Some(0)));
}
