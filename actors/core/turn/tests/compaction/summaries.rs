//! Tests of single summaries: what hooks add, what is kept, how urgent they are, and what a run waits for.

use super::*;

/// Hooks are asked once for each compaction: what they add is recorded with the first attempt of its summary, and holds
/// for all attempts.
#[test]
fn what_hooks_add_to_a_summary_holds_for_all_of_its_attempts() {
    for summariser in [Summariser::Good, Summariser::FailsEverySecond, Summariser::Silent] {
        let mut task = Task::new(summariser, 0, false);
        let hooks = HookedSummary { annotation: Some("Keep the key.".into()), ..HookedSummary::default() };
        task.hooks = Some(Arc::new(hooks));
        task.work(300);
        let mut hooked = Vec::new();
        for record in &task.driver.records {
            if let Body::SummaryStarted(started) = &record.body {
                let (id, is_hooked) = (started.started.id(), started.hooks.is_some());
                hooked.push((id.call, id.attempt, is_hooked));
            }
        }
        let is_first = |n: usize| n == 0 || hooked[n - 1].0 != hooked[n].0;
        for (n, one) in hooked.iter().enumerate() {
            assert_eq!(one.2, is_first(n), "{summariser:?}: {one:?}");
        }
        let compactions = (0..hooked.len()).filter(|n| is_first(*n)).count();
        assert!(compactions > 1 && task.hooks_asked == compactions, "{summariser:?}: {hooked:?}");
    }
}

/// The usage of a summary call may show that the view was not too long yet. Then the summary is kept until it is
/// needed.
#[test]
fn a_summary_that_was_waited_for_is_kept_if_it_was_not_needed_yet() {
    let mut task = Task::new(Summariser::Good, 0, false);
    let Some(run) = &mut task.driver.turn.current else { panic!("nothing runs") };
    let compression = Arc::make_mut(&mut run.spec).compaction.as_mut().unwrap();
    Arc::make_mut(compression).chain = vec!["p/m".parse().unwrap()];
    task.halts = true;
    task.work(300);
    let (call, mut driver) = (task.sought().unwrap(), task.driver);
    driver.feed(&Input::Leased { id: AttemptId { call, attempt: 1 }, model: "p/m".parse().unwrap() });
    let started = driver.turn.summary_request().unwrap().started;
    driver.pass(1_500);
    let message = AssistantMessage { text: "Notes.".into(), ..AssistantMessage::default() };
    let usage = Some(Usage { input_tokens: started.bytes / 8, ..Usage::default() });
    let answer = Arc::new(ModelAnswer { message, finish: FinishReason::Stop, usage });
    let records = driver.feed(&Input::Answered { started, answer, admissions: Arc::new([]) });
    assert_eq!(records, ["summary.answered"]);
    let Some(run) = &driver.turn.current else { panic!("nothing runs") };
    let (room, before) = (driver.turn.context_budget(run).unwrap(), run.spec.profiles[0].window.unwrap() / 2);
    assert!(room.trigger as u64 > before * 4, "by the new estimate the view was not too long");
    assert!(run.compaction.summary.is_some());
    let due = driver.turn.due(driver.now);
    assert!(matches!(due[..], [DueAction::Acquire(AttemptId { call, .. })] if call.n == 0), "{due:?}");
}

/// A run ends with results that no request has shown, and is reopened with a view that is too long. The results must be
/// shown first.
#[test]
fn what_a_run_that_goes_on_was_not_shown_yet_stays_in_its_view() {
    check_unshown(|_| (), &[], &["run.ended"]);
    // A request that is given up in the append that starts it shows nothing.
    let lease =
        Input::Leased { id: AttemptId { call: model(1, 22), attempt: 1 }, model: "p/m".parse().unwrap() };
    check_unshown(|_| (), &[lease], &["model.started", "run.stopping", "model.failed", "run.ended"]);
    // A request that the provider rejects shows nothing.
    let turned_away = |driver: &mut Driver| {
        driver.lease(model(1, 22), 1);
        driver.fail(FailureClass::Overloaded);
    };
    check_unshown(turned_away, &[], &["run.ended"]);
}

/// `then` happens after the results. `last` is decided together with the end of the run's time; `expect` are the
/// records of that decision.
#[track_caller]
fn check_unshown(then: impl FnOnce(&mut Driver), last: &[Input], expect: &[&str]) {
    let trigger = |spec: &mut Arc<RunSpec>, percent| {
        let compression = Arc::make_mut(spec).compaction.as_mut().unwrap();
        Arc::make_mut(compression).trigger = percent;
    };
    let mut task = Task::new(Summariser::Nobody, 0, false);
    let Some(run) = &mut task.driver.turn.current else { panic!("nothing runs") };
    trigger(&mut run.spec, 100);
    Arc::make_mut(&mut run.spec).limits.wall_ms = Some(WALL);
    for iteration in 1..=21 {
        task.ask();
        task.result = if iteration == 21 { 30_000 } else { 1_800 };
        task.answer(iteration, 1);
    }
    let mut driver = task.driver;
    then(&mut driver);
    driver.pass(WALL);
    assert_eq!(driver.feed_all(&[last, &[Input::TimerFired]].concat()), expect);
    trigger(&mut driver.turn.reopenable.as_mut().unwrap().spec, 50);
    let by = LimitIncrease { wall_ms: Some(WALL), ..LimitIncrease::default() };
    assert_eq!(driver.feed(&Input::Raise { run: super::run(1), by }), ["run.reopened", "context.compacted"]);
    let (view, _) = driver.turn.render(RenderCursor::default());
    let has = |text: &str| view.iter().any(|message| content(message).starts_with(text));
    assert_eq!((has("20: xxx"), has("21: xxx")), (false, true));
}

#[test]
fn the_urgency_of_a_summary_follows_the_growth_of_its_view() {
    let mut task = Task::new(Summariser::Good, 0, true);
    // Results that are too short to be left out, so that a summary is wanted ahead.
    (task.halts, task.result) = (true, 150);
    task.work(300);
    let urgency = |task: &Task| task.driver.turn.summary_urgency(task.driver.now);
    let SummaryUrgency::Background(growth) = urgency(&task) else { panic!("the run continues") };
    assert!((69..75).contains(&growth.fill_percent), "{growth:?}");
    // Each iteration takes 10 ms; the slack ends one iteration before the trigger.
    let expected = growth.slack_ms.expect("the rate is known") / 10 + 1;
    let mut iterations = 0;
    while urgency(&task) != SummaryUrgency::Foreground {
        let Some(run) = &task.driver.turn.current else { panic!("nothing runs") };
        let (iteration, call) = (run.iteration, run.model_call());
        task.driver.lease(call, 1);
        task.answer(iteration, 1);
        iterations += 1;
    }
    assert_eq!(iterations, expected, "{growth:?}");
}

#[test]
fn a_run_reports_the_summary_that_it_waits_for() {
    let mut task = Task::new(Summariser::Good, 0, false);
    task.halts = true;
    task.work(300);
    let waits = |task: &Task| -> Vec<&str> {
        let mut tracker = WaitTracker::new(SessionId::from_bits(1));
        task.driver.records.iter().for_each(|record| tracker.take(record));
        let waits = tracker.waits_running(run(1), task.driver.now.at, &Fixed);
        waits.iter().map(|wait| wait.kind.name()).filter(|name| *name != "limit").collect()
    };
    assert_eq!(waits(&task), ["lease"]);
    let call = task.sought().expect("a summary is wanted");
    task.driver.lease(call, 1);
    assert_eq!(waits(&task), ["model"]);
    let failure = Box::new(Failure::new(FailureClass::Server, "x"));
    let failover = FailoverOptions::default();
    task.driver.feed(&Input::ModelFailed { id: call.attempt(1), failure, failover });
    assert_eq!(waits(&task), ["retry"]);
}
