//! Tests of the limits that all runs of a store share: where a call counts, what waits, and that nothing exceeds a limit.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use super::{fuzz::Chance, *};
use crate::{
    journal::{WriteRefusal, post},
    model::{
        AccountId, Amounts, BudgetAccount, ModelProfile, ModelStarted, Outcome, OutcomeCause, Period,
        PeriodUnit, Price, RetryPolicy, StoreLimits, rfc3339_time,
    },
};

const PRICE: Price = Price { input: 3, output: 7, cache_read: 3, cache_write: 3, up_to: None };

/// The accounts of a store, and its limits at present.
#[derive(Debug, Clone, Default)]
pub(in crate::turn) struct SharedStore(Rc<RefCell<Accounts>>);

#[derive(Debug, Default)]
pub(in crate::turn) struct Accounts {
    accounts: BTreeMap<AccountId, BudgetAccount>,
    limits: StoreLimits,
}

impl SharedStore {
    pub(super) fn new(limits: StoreLimits) -> Self {
        let store = Self::default();
        store.set(limits);
        store
    }

    fn set(&self, limits: StoreLimits) {
        self.0.borrow_mut().limits = limits;
    }

    /// Decides the inputs, again if the store refuses the reservation, and books the decision.
    pub(super) fn decide(&self, driver: &mut Driver, inputs: &[Input]) -> Vec<Arc<Record>> {
        let mut store = self.0.borrow_mut();
        driver.turn.set_store_limits(store.limits);
        let mut inputs = inputs.to_vec();
        loop {
            let append = driver.turn.decide(driver.now, &inputs, |_| None);
            match post(&append.ledger, |id| Ok(store.accounts.get(&id).copied())) {
                Ok(postings) => {
                    store.accounts.extend(postings.iter().map(|posting| (posting.id, posting.account)));
                    return append.records;
                }
                Err(WriteRefusal::BudgetRefusal(refusal)) => {
                    inputs.insert(0, Input::BudgetRefused(refusal));
                    assert!(inputs.len() < 5, "refused again and again: {inputs:?}");
                }
                Err(refusal) => panic!("{refusal}"),
            }
        }
    }

    pub(super) fn account(&self, unit: PeriodUnit, at: Timestamp) -> Option<BudgetAccount> {
        self.0.borrow().accounts.get(&Period::containing(unit, at).account()).copied()
    }

    /// Tokens spent and reserved in a period.
    fn tokens(&self, unit: PeriodUnit, at: Timestamp) -> Option<(u64, u64)> {
        let account = self.account(unit, at)?;
        Some((account.spent.tokens.unwrap_or(0), account.reserved.tokens.unwrap_or(0)))
    }
}

fn time(text: &str) -> Timestamp {
    rfc3339_time::deserialize(serde_json::json!(text)).unwrap()
}

fn tokens(amount: u64) -> Amounts {
    Amounts { tokens: Some(amount), ..Amounts::default() }
}

fn per_day(amount: u64) -> StoreLimits {
    StoreLimits { day: tokens(amount), ..StoreLimits::default() }
}

/// A session of the store at this time, with run 1.
fn session(store: &SharedStore, at: &str, retry: RetryPolicy) -> Driver {
    session_of(1, store, at, retry)
}

fn session_of(n: u128, store: &SharedStore, at: &str, retry: RetryPolicy) -> Driver {
    let mut driver = Driver::new();
    (driver.now.at, driver.store) = (time(at), Some(store.clone()));
    driver.submit(n, Limits { max_tokens: 100, retry, ..Limits::default() });
    driver
}

fn started(driver: &Driver) -> ModelStarted {
    ModelStarted::clone(driver.turn.model_started().expect("a call is under way"))
}

/// The reservation of the first call of a run, in tokens.
fn first_reservation() -> u64 {
    let mut driver = session(&SharedStore::default(), "2026-11-28T12:00:00Z", RetryPolicy::default());
    driver.lease(model(1, 1), 1);
    started(&driver).reserved.tokens.unwrap()
}

#[test]
fn without_limits_nothing_is_named_and_no_account_is_opened() {
    let store = SharedStore::default();
    let mut driver = session(&store, "2026-11-28T12:00:00Z", RetryPolicy::default());
    assert_eq!(driver.lease(model(1, 1), 1), ["model.started"]);
    assert_eq!(started(&driver).period, None);
    assert!(!serde_json::to_string(&started(&driver)).unwrap().contains("period"));
    assert_eq!(store.0.borrow().accounts.keys().copied().collect::<Vec<_>>(), [run(1).into()]);
}

#[test]
fn a_call_is_settled_on_the_day_in_which_it_was_reserved() {
    let (today, tomorrow) = (time("2026-11-30T23:59:59Z"), time("2026-12-01T00:00:01Z"));
    let store = SharedStore::new(per_day(1_000_000));
    let mut driver = session(&store, "2026-11-30T23:59:59Z", RetryPolicy::default());
    driver.lease(model(1, 1), 1);
    let reserved = started(&driver).reserved.tokens.unwrap();
    let check = |unit, at, expect| assert_eq!(store.tokens(unit, at), expect, "{unit:?} of {at}");
    for unit in [PeriodUnit::Day, PeriodUnit::Month] {
        check(unit, today, Some((0, reserved)));
        check(unit, tomorrow, None);
    }
    assert_eq!(store.account(PeriodUnit::Hour, today), None, "no limit is that short");
    driver.pass(2_000);
    driver.answer(1, EffectClass::Pure);
    for unit in [PeriodUnit::Day, PeriodUnit::Month] {
        check(unit, today, Some((10, 0)));
        check(unit, tomorrow, None);
    }
    // An interrupted call costs its reservation, on the day of its start; its next attempt is of the new day.
    driver.permit_all();
    driver.feed(&Input::ToolEnded { id: tool(1, 1, 1).attempt(1), end: crate::model::CallEnd::ok("x") });
    driver.lease(model(1, 2), 1);
    let second = started(&driver).reserved.tokens.unwrap();
    driver.pass(86_400_000);
    driver.crash();
    check(PeriodUnit::Day, tomorrow, Some((second, 0)));
    check(PeriodUnit::Month, tomorrow, Some((second, 0)));
    check(PeriodUnit::Day, driver.now.at, None);
    check(PeriodUnit::Day, today, Some((10, 0)));
}

#[test]
fn a_late_usage_is_booked_on_the_day_of_its_call() {
    let today = time("2026-11-30T23:59:59Z");
    let store = SharedStore::new(per_day(1_000_000));
    let mut driver = session(&store, "2026-11-30T23:59:59Z", RetryPolicy::default());
    driver.lease(model(1, 1), 1);
    let late = Arc::new(started(&driver));
    driver.pass(2_000);
    driver.feed(&Input::Stop { run: None, reason: crate::model::StopReason::Command });
    let booked = late.reserved.tokens.unwrap();
    assert_eq!(store.tokens(PeriodUnit::Day, today), Some((booked, 0)));
    let usage = Some(Usage { input_tokens: 4, output_tokens: 1, ..Usage::default() });
    let message = AssistantMessage { text: "done".into(), ..AssistantMessage::default() };
    let answer = Arc::new(ModelAnswer { message, finish: FinishReason::Stop, usage });
    let admissions = Vec::new().into();
    assert_eq!(driver.feed(&Input::Answered { started: late, answer, admissions }), ["model.late"]);
    assert_eq!(store.tokens(PeriodUnit::Day, today), Some((5, 0)));
    assert_eq!(store.tokens(PeriodUnit::Day, driver.now.at), None);
}

/// Checks what the first call of a run does at this time with `used` tokens spent and `held` reserved by others. A wait is
/// given in milliseconds.
#[track_caller]
fn check_full(at: &str, (used, held): (u64, u64), wait_max_ms: u64, expect: Result<u64, Outcome>) {
    let store = SharedStore::new(per_day(first_reservation() + 100));
    let period = Period::containing(PeriodUnit::Day, time(at));
    let account = BudgetAccount {
        parent: None,
        limits: Amounts::default(),
        spent: tokens(used),
        reserved: tokens(held),
        owns_iterations: false,
    };
    store.0.borrow_mut().accounts.insert(period.account(), account);
    let retry = RetryPolicy { wait_for_reset_max_ms: wait_max_ms, ..RetryPolicy::default() };
    let mut driver = session(&store, at, retry);
    let names = driver.lease(model(1, 1), 1);
    match (&driver.records.last().unwrap().body, expect) {
        (Body::ModelWaiting(waiting), Ok(wait_ms)) => {
            assert_eq!(waiting.until.ms_since(driver.now.at), wait_ms);
            let why = waiting.failure().unwrap().message.clone();
            assert!(why.starts_with("tokens_per_day limit of "), "{why}");
            assert!(why.ends_with("; the day ends at 2026-11-29T00:00:00Z"), "{why}");
            assert_eq!(driver.turn.due(driver.now), [DueAction::WakeAt(waiting.until)]);
        }
        (Body::RunEnded(ended), Err(outcome)) => {
            assert_eq!(ended.ended.outcome, outcome);
            assert!(matches!(ended.ended.cause, Some(OutcomeCause::Limit { .. })), "{:?}", ended.ended);
        }
        (body, expect) => panic!("{names:?}, {expect:?} is expected: {body:?}"),
    }
}

#[test]
fn a_call_without_room_waits_for_others_then_for_the_end_of_the_period() {
    const HOUR: u64 = 3_600_000;
    // Others have reserved: when they have settled, it may fit.
    check_full("2026-11-28T01:00:00Z", (0, 101), HOUR, Ok(1_000));
    check_full("2026-11-28T01:00:00Z", (100, 1), HOUR, Ok(1_000));
    check_full("2026-11-28T23:59:59.500Z", (100, 1), HOUR, Ok(500));
    check_full("2026-11-28T01:00:00Z", (0, 101), 999, Err(Outcome::BudgetExhausted));
    // It is spent: only the next period has room.
    check_full("2026-11-28T23:00:00Z", (101, 0), HOUR, Ok(600_000));
    check_full("2026-11-28T23:58:00Z", (101, 0), HOUR, Ok(120_000));
    check_full("2026-11-28T22:59:59Z", (101, 0), HOUR, Err(Outcome::BudgetExhausted));
    check_full("2026-11-28T23:58:00Z", (101, 0), 0, Err(Outcome::BudgetExhausted));
}

#[test]
fn a_call_that_fits_into_no_period_waits_for_none() {
    let store = SharedStore::new(per_day(first_reservation() - 1));
    let mut driver = session(&store, "2026-11-28T23:59:00Z", RetryPolicy::default());
    assert_eq!(driver.lease(model(1, 1), 1), ["run.ended"]);
}

#[test]
fn a_waiting_call_goes_on_in_the_next_period_or_when_a_limit_was_raised() {
    let store = SharedStore::new(per_day(first_reservation()));
    let mut spender = session_of(2, &store, "2026-11-28T23:00:00Z", RetryPolicy::default());
    spender.lease(model(2, 1), 1);
    let mut waits = session(&store, "2026-11-28T23:00:00Z", RetryPolicy::default());
    let mut pauses = Vec::new();
    for until in [1, 2, 4, 8] {
        assert_eq!(waits.lease(model(1, 1), 1), ["model.waiting"]);
        pauses.push(until);
        waits.pass(until * 1_000);
        assert_eq!(waits.turn.due(waits.now), [DueAction::Acquire(model(1, 1).attempt(1))], "{pauses:?}");
    }
    // The others have spent what they had reserved: now it waits for the end of the day, also over a crash.
    spender.crash();
    let mut other = waits.clone();
    assert_eq!(waits.lease(model(1, 1), 1), ["model.waiting"]);
    waits.crash();
    let DueAction::WakeAt(until) = waits.turn.due(waits.now)[0] else { panic!("it waits") };
    assert_eq!(until.ms_since(waits.now.at), 600_000);
    waits.pass(3_600_000);
    assert_eq!(waits.lease(model(1, 1), 1), ["model.started"]);
    assert_eq!(store.tokens(PeriodUnit::Day, waits.now.at), Some((0, first_reservation())));
    // Of another one the limit is raised, and lowered below what is spent.
    store.set(per_day(first_reservation() * 2));
    other.lease(model(1, 1), 1);
    assert_eq!(other.turn.model_started().map(|started| started.attempt), Some(1));
    store.set(per_day(1));
    other.answer(1, EffectClass::Pure);
    other.permit_all();
    other.feed(&Input::ToolEnded { id: tool(1, 1, 1).attempt(1), end: crate::model::CallEnd::ok("x") });
    assert_eq!(other.lease(model(1, 2), 1), ["run.exhausted"]);
    assert_eq!(other.lease(model(1, 2), 1), ["run.ended"]);
}

#[test]
fn a_model_without_a_price_is_not_called_if_the_store_limits_money() {
    let limits =
        StoreLimits { month: Amounts { usd: Some(1_000_000), ..Amounts::default() }, ..Default::default() };
    let store = SharedStore::new(limits);
    let mut driver = Driver::new();
    driver.store = Some(store);
    driver.submit_with(1, "go", |spec| {
        spec.chain.push("p/n".parse().unwrap());
        spec.profiles =
            vec![ModelProfile::default(), ModelProfile { price: Some(PRICE), ..ModelProfile::default() }];
    });
    driver.lease(model(1, 1), 1);
    assert_eq!(started(&driver).model, "p/n".parse().unwrap());
    let unpriced = |spec: &mut RunSpec| spec.profiles = Vec::new();
    let mut driver = Driver::new();
    driver.store = Some(SharedStore::new(limits));
    driver.submit_with(1, "go", unpriced);
    let skipped = Vec::new().into();
    driver.feed(&Input::NoLease { id: model(1, 1).attempt(1), skipped });
    let Body::RunEnded(ended) = &driver.records.last().unwrap().body else { panic!("it ends") };
    assert!(matches!(ended.ended.cause, Some(OutcomeCause::Unpriced { .. })), "{:?}", ended.ended);
}

/// A session in the crowd of [`many_runs_never_exceed_a_limit_together`].
struct Member {
    driver: Driver,
    calls: u64,
}

impl Member {
    fn new(store: &SharedStore, at: Timestamp, (n, wait_max_ms): (u128, u64)) -> Self {
        let mut driver = Driver::new();
        (driver.now.at, driver.store) = (at, Some(store.clone()));
        driver.submit_with(n, "go", |spec| {
            spec.tools = vec!["tool".into()];
            spec.profiles = vec![ModelProfile { price: Some(PRICE), ..ModelProfile::default() }];
            spec.limits.max_tokens = 50 + 13 * u64::try_from(n).unwrap();
            spec.limits.retry.wait_for_reset_max_ms = wait_max_ms;
        });
        Self { driver, calls: 0 }
    }

    /// One thing that happens to the session at this time.
    fn step(&mut self, at: Timestamp, chance: &mut Chance) {
        let driver = &mut self.driver;
        let ms = at.ms_since(driver.now.at);
        driver.pass(ms);
        if chance.one_in(20) {
            driver.crash();
        }
        match driver.turn.due(driver.now).first() {
            Some(DueAction::Acquire(id)) if id.call.n == 0 => drop(driver.lease(id.call, id.attempt)),
            Some(DueAction::Acquire(_)) => drop(driver.permit_all()),
            Some(DueAction::CallModel(_)) if chance.one_in(8) => drop(driver.fail(FailureClass::Server)),
            Some(DueAction::CallModel(_)) => {
                self.calls += 1;
                let is_last = self.calls > 6;
                driver.answer(usize::from(!is_last), EffectClass::Pure);
            }
            Some(DueAction::RunTool(id)) => {
                driver.feed(&Input::ToolEnded { id: *id, end: crate::model::CallEnd::ok("x") });
            }
            _ => {}
        }
    }
}

#[test]
fn many_runs_never_exceed_a_limit_together() {
    for seed in 0..20 {
        let mut chance = Chance::new(seed);
        let day = Amounts { usd: Some(20_000 + chance.below(60_000)), ..Amounts::default() };
        let hour = Amounts { tokens: chance.one_in(2).then_some(9_000), ..Amounts::default() };
        let store = SharedStore::new(StoreLimits { hour, day, month: Amounts::default() });
        let mut at = time("2026-12-31T23:30:00Z");
        let mut members: Vec<Member> = (1..=64_u128)
            .map(|n| Member::new(&store, at, (n, chance.pick(&[0, 60_000, 21_600_000, 21_600_000]))))
            .collect();
        let mut steps = 0;
        while members.iter().any(|member| member.driver.turn.has_work()) {
            let place = chance.place(members.len()).unwrap();
            members[place].step(at, &mut chance);
            check_limits(&store);
            steps += 1;
            at = at.plus_ms(chance.below(2_000));
            assert!(steps < 400_000, "seed {seed}: they never end");
        }
        check_sums(&store, members.len());
        let kinds = members.iter().flat_map(|member| &member.driver.records);
        let count = |name: &str| kinds.clone().filter(|record| record.body.kind().name() == name).count();
        assert!(count("model.waiting") > 0 && count("run.exhausted") > 0, "seed {seed}: nothing is full");
        let days = store.0.borrow().accounts.keys().filter(|id| is_of(**id, PeriodUnit::Day)).count();
        assert!(days > 1, "seed {seed}: there was no midnight");
    }
}

fn is_of(id: AccountId, unit: PeriodUnit) -> bool {
    Period::of_account(id).is_some_and(|period| period.unit == unit)
}

fn check_limits(store: &SharedStore) {
    for (id, account) in &store.0.borrow().accounts {
        for dimension in crate::model::Dimension::ALL {
            let of = |amounts: &Amounts| amounts.get(dimension).unwrap_or(0);
            let used = of(&account.spent) + of(&account.reserved);
            let limit = account.limits.get(dimension).unwrap_or(u64::MAX);
            assert!(used <= limit, "{id}: {account:?}");
        }
    }
}

/// What the runs have spent is what the periods have spent, and nothing is reserved.
fn check_sums(store: &SharedStore, runs: usize) {
    let accounts = &store.0.borrow().accounts;
    let sum = |is_meant: &dyn Fn(AccountId) -> bool| {
        let meant = accounts.iter().filter(|(id, _)| is_meant(**id));
        meant.fold((0, Amounts::default()), |(count, mut sum), (_, account)| {
            assert!(Amounts { children: None, ..account.reserved }.in_periods().tokens.unwrap_or(0) == 0);
            sum.add(&account.spent.in_periods());
            (count + 1, sum)
        })
    };
    let (count, by_runs) = sum(&|id| Period::of_account(id).is_none());
    assert_eq!(count, runs);
    for unit in [PeriodUnit::Day, PeriodUnit::Month] {
        assert_eq!(sum(&|id| is_of(id, unit)).1, by_runs, "{unit:?}");
    }
}
