//! Tests of a summary that is made ahead: when the view takes it, which context pressure texts requests carry before,
//! and what the waiting summary survives.

use super::{
    compaction::{GOAL, Summariser, Task, WINDOW},
    *,
};
use crate::model::{
    AttemptId, CallEnd, CompactionMethod, CompactionPolicy, ContextCompacted, ModelProfile, StopReason,
};

/// The tokens above which a view is compacted.
const TRIGGER: u64 = WINDOW / 2;

fn compacted(driver: &Driver) -> Vec<&ContextCompacted> {
    let bodies = driver.records.iter().map(|record| &record.body);
    bodies
        .filter_map(
            |body| if let Body::ContextCompacted(compacted) = body { Some(&**compacted) } else { None },
        )
        .collect()
}

fn started_summaries(driver: &Driver) -> usize {
    driver.records.iter().filter(|record| matches!(record.body, Body::SummaryStarted(_))).count()
}

/// The percentage of the trigger in the context pressure text of the present request, and whether the text urges.
fn named_pressure(turn: &Turn) -> Option<(u64, bool)> {
    let told = turn.transient_prompt()?.prompt;
    let (_, rest) = told.split_once("this conversation fills ")?;
    let (percent, rest) = rest.split_once(" %")?;
    Some((percent.parse().unwrap(), rest.contains("Write down now")))
}

/// Checks a task of 300 iterations with results of `result` bytes. Views are compacted at the trigger and not before.
/// Between two compactions requests say at 70 % and at 85 % of the trigger how full the view is.
#[track_caller]
fn check_switches(summariser: Summariser, (slow, ahead): (u32, bool), result: usize) {
    let mut task = Task::new(summariser, slow, ahead);
    task.result = result;
    let mut seen: Vec<Vec<(u64, bool)>> = vec![Vec::new()];
    for iteration in 1..=300 {
        task.ask();
        let times = compacted(&task.driver).len();
        seen.resize(times + 1, Vec::new());
        seen[times].extend(named_pressure(&task.driver.turn));
        task.answer(iteration, usize::from(iteration < 300));
    }
    assert!(!task.driver.turn.has_work());
    let compacted = compacted(&task.driver);
    assert!(compacted.len() > 1, "{compacted:?}");
    for compacted in &compacted {
        assert!(compacted.tokens_before >= TRIGGER, "{compacted:?} of a trigger of {TRIGGER}");
        assert!(compacted.tokens_after <= TRIGGER / 2, "{compacted:?} of a target of {}", TRIGGER / 2);
    }
    let all: Vec<(u64, bool)> = seen.concat();
    assert!(all.iter().all(|(percent, urges)| (70..=100).contains(percent) && *urges == (*percent >= 85)));
    for notes in &seen[..seen.len() - 1] {
        let both = [false, true].map(|urgent| notes.iter().any(|(_, urges)| *urges == urgent));
        assert_eq!(both, [true, true], "{notes:?}");
    }
}

#[test]
fn a_view_switches_at_the_trigger_and_requests_say_before_how_full_it_is() {
    check_switches(Summariser::Good, (0, true), 500);
    check_switches(Summariser::Good, (0, true), 1_800);
    check_switches(Summariser::Good, (4, true), 1_800);
    check_switches(Summariser::Good, (0, false), 1_800);
    check_switches(Summariser::FailsEverySecond, (1, true), 500);
    check_switches(Summariser::Silent, (1, true), 500);
    check_switches(Summariser::Nobody, (0, true), 1_800);
}

/// A task whose summary is ready and not yet in its view.
fn waiting() -> Task {
    let mut task = Task::new(Summariser::Good, 0, true);
    // Results so short that they are not left out.
    task.result = 500;
    for iteration in 1.. {
        task.ask();
        let is_answered = |record: &Durable<Arc<Record>>| matches!(record.body, Body::SummaryAnswered(_));
        if task.driver.records.iter().any(is_answered) {
            break;
        }
        task.answer(iteration, 1);
    }
    assert_eq!((compacted(&task.driver).len(), started_summaries(&task.driver)), (0, 1));
    task
}

/// Checks that the task continues until the view is compacted with the waiting summary, which is not requested again.
/// `from` is the least size at the compaction: the trigger, or less where another run starts.
#[track_caller]
fn check_outlives(from: u64, then: impl FnOnce(&mut Task)) {
    let mut task = waiting();
    then(&mut task);
    for _ in 0..300 {
        if !compacted(&task.driver).is_empty() {
            break;
        }
        let started = task.driver.turn.model_started().unwrap().clone();
        task.answer(started.call.iteration, 1);
        task.ask();
    }
    let compacted = compacted(&task.driver);
    assert!(
        compacted[0].method == CompactionMethod::Summarised && compacted[0].tokens_before >= from,
        "{compacted:?}"
    );
    assert!(compacted[0].tokens_after <= TRIGGER / 2, "{compacted:?}");
    assert_eq!(started_summaries(&task.driver), 1);
    assert!(task.driver.found("Goal: the keel. Progress").len() == 1);
}

#[test]
fn a_summary_that_waits_for_the_trigger_outlives_what_happens_meanwhile() {
    check_outlives(TRIGGER, |_| ());
    check_outlives(TRIGGER, |task| {
        task.driver.crash();
        task.ask();
    });
    check_outlives(TRIGGER, |task| {
        task.driver.steer(1, 2);
    });
    check_outlives(TRIGGER, |task| {
        task.driver.fail(FailureClass::Overloaded);
        task.driver.pass(60_000);
        task.ask();
    });
    // The next run of the session, after a completed one and after a stopped one.
    check_outlives(TRIGGER / 10 * 7, |task| {
        task.driver.answer(0, EffectClass::Once);
        task.driver.crash();
        task.driver.submit_with(2, "and the mast", |_| {});
        task.ask();
    });
    check_outlives(TRIGGER / 10 * 7, |task| {
        task.driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
        task.driver.submit_with(2, "and the mast", |_| {});
        task.ask();
    });
}

/// The next run starts with the waiting summary, on a model with this window. Returns the compactions up to its
/// `iterations`th call.
fn next_run(window: u64, iterations: u32) -> (Task, Vec<ContextCompacted>) {
    let mut task = waiting();
    task.driver.answer(0, EffectClass::Once);
    task.driver.submit_with(2, "and the mast", |spec| {
        spec.chain = vec!["p/other".parse().unwrap()];
        let known = ModelProfile { window: Some(window), ..ModelProfile::default() };
        spec.profiles = vec![known];
        let mut compression = CompactionPolicy::clone(spec.compaction.as_deref().unwrap());
        compression.profiles = vec![known; 2];
        spec.compaction = Some(Arc::new(compression));
    });
    for iteration in 1..=iterations {
        task.ask();
        if iteration < iterations {
            task.answer(iteration, 1);
        }
    }
    let all = compacted(&task.driver).into_iter().cloned().collect();
    (task, all)
}

#[test]
fn a_summary_is_taken_by_a_model_with_another_window() {
    // A smaller window: the summary is needed at once.
    let (task, taken) = next_run(WINDOW / 4 * 3, 1);
    assert_eq!(taken.iter().map(|taken| taken.method).collect::<Vec<_>>(), [CompactionMethod::Summarised]);
    assert_eq!(started_summaries(&task.driver), 1);
    // A larger window: the summary waits for the new trigger, and is extended until then.
    let (_, taken) = next_run(WINDOW * 4, 1);
    assert_eq!(taken, []);
    let (task, taken) = next_run(WINDOW * 4, 700);
    let first = &taken[0];
    assert!(first.method == CompactionMethod::Chunked && first.tokens_before >= TRIGGER * 4, "{taken:?}");
    assert!(first.tokens_after <= TRIGGER * 2, "{taken:?}");
    let from = task.driver.records.iter().find_map(|record| {
        let Body::SummaryStarted(started) = &record.body else { return None };
        (started.started.call.run == run(2)).then_some(started.call_end)
    });
    assert!(
        from.is_some_and(|upto| upto > crate::model::HistoryPosition::default()),
        "it was not asked to go on"
    );
}

/// Between two runs a waiting summary is taken early only if it removes no more than a cut would now. Short runs are
/// the latest messages, which stay.
#[test]
fn between_runs_a_summary_is_not_taken_early_if_the_latest_messages_would_go() {
    let mut task = Task::new(Summariser::Good, 0, true);
    for n in 2..200 {
        task.ask();
        task.driver.answer(0, EffectClass::Once);
        if !compacted(&task.driver).is_empty() {
            break;
        }
        task.driver.submit_with(n, &"b".repeat(1_600), |_| {});
    }
    let taken = compacted(&task.driver);
    assert!(taken.len() == 1 && taken[0].method == CompactionMethod::Summarised, "{taken:?}");
    // The latest 20 messages are 10 runs, besides the one that starts.
    let stayed = taken[0].run.bits() - 1 - u128::from(taken[0].end.round);
    assert!(stayed >= 10 && taken[0].tokens_after <= TRIGGER / 2, "{taken:?}");
    assert_eq!(started_summaries(&task.driver), 1);
}

/// One step makes the view much larger than the trigger, while a summary of a smaller part waits.
#[test]
fn a_summary_that_covers_too_little_goes_on_before_it_is_taken() {
    for size in [10_000, 20_000, 30_000, 40_000] {
        let mut task = waiting();
        let started = task.driver.turn.model_started().unwrap().clone();
        let iteration = started.call.iteration;
        task.driver.answer(3, EffectClass::Idempotent);
        for n in task.driver.permit_all() {
            let end = CallEnd::ok("y".repeat(size / 3));
            task.driver
                .feed(&Input::ToolEnded { id: AttemptId { call: tool(1, iteration, n), attempt: 1 }, end });
        }
        task.ask();
        let taken = compacted(&task.driver);
        let is_over = taken.iter().any(|taken| taken.tokens_before >= TRIGGER);
        assert!(taken.iter().all(|taken| taken.tokens_after <= TRIGGER / 10 * 7), "{size}: {taken:?}");
        assert!(is_over || size < 20_000, "{size}: {taken:?}");
        assert!(task.driver.found(GOAL).len() == 1);
    }
}
