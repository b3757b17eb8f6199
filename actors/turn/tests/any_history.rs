//! Whatever happens, in whatever order: the view stays well formed at every record, every run ends once, every started
//! call has one end, and when nothing more is thrown at it, it comes to rest.

use proptest::prelude::{ProptestConfig, any, proptest};

use super::{Driver, letters};
use crate::{
    model::{
        Body, CallEnd, CallId, CallStatus, EffectClass, Failure, FailureClass, Finish, Limits, SessionId,
        StopReason,
    },
    turn::{
        Dormant, Effect, Input,
        run::{CallState, Phase},
    },
};

const EFFECTS: [EffectClass; 3] = [EffectClass::Pure, EffectClass::Idempotent, EffectClass::Once];

/// Serves or disturbs what is in flight, as two bytes of chance say.
fn happen(driver: &mut Driver, runs: &mut u128, what: u8, how: u8) {
    let due = driver.turn.due(driver.now);
    match what % 16 {
        0 => {
            *runs += 1;
            let timeout_ms = how.is_multiple_of(4).then_some(u64::from(how) * 10);
            driver.submit(*runs, Limits { max_tokens: 100, timeout_ms, ..Limits::default() });
        }
        1 => {
            driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
        }
        2 => {
            driver.crash();
        }
        3 => {
            driver.pass(u64::from(how) * 20);
            driver.feed(&Input::Woke);
        }
        _ => {
            let Some(effect) = due.get(usize::from(what) / 16 % due.len().max(1)) else { return };
            serve(driver, *effect, how);
        }
    }
}

fn serve(driver: &mut Driver, effect: Effect, how: u8) {
    match effect {
        Effect::Seek { call, attempt } if call.n == 0 && how % 32 == 31 => {
            let failure = Failure::new(FailureClass::ModelNotFound, "none");
            driver.feed(&Input::NoLease { call, attempt, failure });
        }
        Effect::Seek { call, attempt } if call.n == 0 => {
            driver.lease(call, attempt);
        }
        Effect::Seek { call, attempt } => {
            driver.feed(&Input::Permitted { call, attempt });
        }
        Effect::Ask { call, attempt } => model_says(driver, call, attempt, how),
        Effect::Run { call, attempt } => match how % 4 {
            0 => {
                driver.feed(&Input::Lost { call, attempt });
            }
            1 => {
                let end = CallEnd::error(CallStatus::Error, "no", None, "other");
                driver.feed(&Input::ToolEnded { call, attempt, end });
            }
            _ => {
                driver.feed(&Input::ToolEnded { call, attempt, end: CallEnd::ok("yes") });
            }
        },
        Effect::WakeAt(time) => {
            driver.pass(time.ms_since(driver.now.at));
            driver.feed(&Input::Woke);
        }
        Effect::WakeAtActive(_) => {
            driver.feed(&Input::Woke);
        }
    }
}

fn model_says(driver: &mut Driver, call: CallId, attempt: u32, how: u8) {
    let effect = EFFECTS[usize::from(how / 8) % EFFECTS.len()];
    match how % 8 {
        0 => drop(driver.fail(FailureClass::Overloaded)),
        1 => drop(driver.feed(&Input::Lost { call, attempt })),
        2 => drop(driver.answer_with("", 0, Finish::Stop, effect)),
        3 => drop(driver.answer_with("cut", 1, Finish::Length, effect)),
        4 => drop(driver.answer(0, effect)),
        n => drop(driver.answer(usize::from(n) - 4, effect)),
    }
}

/// The alternation grammar, over the letters of `letters`: `(u (c t+)* a)*`, perhaps open at the end.
fn is_well_formed(view: &str) -> bool {
    let rounds: Vec<&str> = view.split('u').collect();
    let closed = |round: &str| round.strip_suffix('a').is_some_and(are_steps);
    let Some((before, rounds)) = rounds.split_first() else { return true };
    before.is_empty()
        && rounds.split_last().is_none_or(|(last, earlier)| {
            earlier.iter().all(|round| closed(round)) && (closed(last) || are_steps(last))
        })
}

fn are_steps(round: &str) -> bool {
    round.is_empty()
        || (round.starts_with('c') && !round.contains('a') && !round.contains("cc") && round.ends_with('t'))
}

#[test]
fn the_grammar_tells_good_from_bad() {
    for good in ["", "u", "ua", "uct", "ucttctauctctta", "uau"] {
        assert!(is_well_formed(good), "{good}");
    }
    for bad in ["a", "t", "uu", "uaa", "uc", "ut", "ucca", "uca", "uata"] {
        assert!(!is_well_formed(bad), "{bad}");
    }
}

/// Every prefix of the journal renders to a view that a provider accepts.
fn every_prefix_is_well_formed(driver: &Driver) {
    let mut turn = Dormant::empty(SessionId::from_bits(1)).awake(&[]);
    for (record, n) in driver.records.iter().zip(1..) {
        turn.apply(record);
        let view = letters(&turn);
        assert!(is_well_formed(&view), "after {n} records: {view}");
    }
}

fn each_run_and_call_ends_once(driver: &Driver, runs: u128) {
    let count =
        |wanted: &dyn Fn(&Body) -> bool| driver.records.iter().filter(|record| wanted(&record.body)).count();
    for n in 1..=runs {
        let ends = count(&|body| matches!(body, Body::RunEnded(ended) if ended.run == super::run(n)));
        assert_eq!(ends, 1, "ends of run {n}");
    }
    for record in &driver.records {
        let Body::CallAdmitted(admitted) = &record.body else { continue };
        let ends = count(&|body| matches!(body, Body::CallEnded(ended) if ended.call == admitted.call));
        assert_eq!(ends, 1, "ends of call {}", admitted.call);
        let started =
            count(&|body| matches!(body, Body::CallStarted(started) if started.call == admitted.call));
        assert!(admitted.effect != EffectClass::Once || started <= 1, "call {} was repeated", admitted.call);
    }
}

/// A call that is started and not due any more was cancelled: its task says so.
fn cancelled(driver: &Driver) -> Option<Input> {
    let Phase::Running(run) = &driver.turn.phase else { return None };
    let started = run.calls().iter().find_map(|call| match &call.state {
        CallState::Started(started, _) => Some(started),
        CallState::Proposed | CallState::Admitted(_) | CallState::Same(_) | CallState::Ended(_) => None,
    })?;
    let end = CallEnd::new(CallStatus::Stopped, "stopped");
    Some(Input::ToolEnded { call: started.call, attempt: started.attempt, end })
}

/// Serves what is due, kindly, until nothing is.
fn come_to_rest(driver: &mut Driver) {
    for _ in 0..10_000 {
        let due = driver.turn.due(driver.now);
        if let (true, Some(input)) = (due.is_empty(), cancelled(driver)) {
            driver.feed(&input);
            continue;
        }
        let Some(effect) = due.iter().find(|effect| !effect.is_timer()).or_else(|| due.first()) else {
            return;
        };
        // 4: the model says its last word, a tool succeeds.
        serve(driver, *effect, if matches!(effect, Effect::Run { .. }) { 2 } else { 4 });
        driver.pass(1);
    }
    panic!("still busy with {:?}", driver.turn.due(driver.now));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_the_promises(chance in proptest::collection::vec(any::<(u8, u8)>(), 0..150)) {
        let (mut driver, mut runs) = (Driver::new(), 0);
        for (what, how) in chance {
            happen(&mut driver, &mut runs, what, how);
        }
        come_to_rest(&mut driver);
        every_prefix_is_well_formed(&driver);
        each_run_and_call_ends_once(&driver, runs);
    }
}
