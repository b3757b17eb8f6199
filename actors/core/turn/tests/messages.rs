//! Tests of messages to a session: each mode in each state of the session, the cap, held runs, and their rows.

use std::sync::Arc;

use super::{Driver, model, run, tool};
use crate::{
    journal::IndexRow,
    model::{
        Artifact, AttemptId, Body, CallEnd, DropPolicy, EffectClass, FailureClass, Image, ImageFormat,
        Limits, MAX_COLLECTED_BYTES, MAX_COLLECTED_IMAGES, MessageFate, MessageRow,
        MessageState::{self, Answered, Dropped, Injected, Queued},
        QueueMode::{self, Collect, Followup, Interrupt, Steer},
        QueueOverrides, Queueing, RunAccepted, RunId, RunRow, RunSpec, StopReason,
    },
    turn::{DueAction, Input},
};

fn send(driver: &mut Driver, n: u128, queueing: Queueing) -> Vec<&'static str> {
    let spec = Arc::new(RunSpec::new(vec!["p/m".parse().unwrap()], "/w"));
    let accepted = RunAccepted::new(run(n), format!("(message {n})"), spec);
    let accepted = Box::new(RunAccepted { queueing: Some(queueing), ..accepted });
    driver.feed(&Input::Submitted { accepted, key: None })
}

const fn mode(mode: QueueMode) -> Queueing {
    Queueing { mode, cap: 20, drop: DropPolicy::Summarize, collect_ms: 500 }
}

/// What the index rows say of a message, as a client sees it.
fn fate(driver: &Driver, n: u128) -> (MessageState, Option<u128>) {
    let message = |row: &IndexRow| match row {
        IndexRow::Message(row) if row.id == run(n) => Some(MessageRow::clone(row)),
        IndexRow::Message(_)
        | IndexRow::Run(_)
        | IndexRow::Session(_)
        | IndexRow::Model(_)
        | IndexRow::Outbox(_)
        | IndexRow::Occurrence(_) => None,
    };
    let run_row = |id: RunId| {
        driver.index.iter().rev().find_map(|row| match row {
            IndexRow::Run(row) if row.id == id => Some(RunRow::clone(row)),
            IndexRow::Message(_)
            | IndexRow::Run(_)
            | IndexRow::Session(_)
            | IndexRow::Model(_)
            | IndexRow::Outbox(_)
            | IndexRow::Occurrence(_) => None,
        })
    };
    let row = driver.index.iter().rev().find_map(message);
    let id = row.as_ref().map_or(Some(run(n)), |row| row.place.run());
    let fate = MessageFate::of(row.as_ref(), id.and_then(run_row).as_ref());
    (fate.state, fate.run.map(RunId::bits))
}

/// How often the model reads a message.
fn times_shown(driver: &Driver, n: u128) -> usize {
    driver.found(&format!("(message {n})")).iter().map(|(_, times)| times).sum()
}

/// The run under way answers with this number of tool calls.
fn answer(driver: &mut Driver, calls: usize) -> Vec<&'static str> {
    let due = driver.turn.due(driver.now);
    if let Some(AttemptId { call, attempt }) = due.iter().find_map(DueAction::acquired_attempt) {
        driver.lease(call, attempt);
    }
    driver.answer(calls, EffectClass::Once)
}

fn wait(driver: &mut Driver, ms: u64) -> Vec<&'static str> {
    driver.pass(ms);
    driver.feed(&Input::TimerFired)
}

/// A state of a session with run 1 under way, or idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Idle,
    InModelCall,
    InTool,
    Stopping,
}

fn session(when: When) -> Driver {
    let mut driver = Driver::new();
    if when == When::Idle {
        return driver;
    }
    driver.submit(1, Limits { max_tokens: 100, ..Limits::default() });
    driver.lease(model(1, 1), 1);
    if when != When::InModelCall {
        driver.answer(2, EffectClass::Once);
        driver.feed(&Input::Permitted(AttemptId { call: tool(1, 1, 1), attempt: 1 }));
    }
    if when == When::Stopping {
        driver.feed(&Input::Stop { run: None, reason: StopReason::Command });
    }
    driver
}

/// Ends what is under way, until the session has nothing to do.
fn run_to_end(driver: &mut Driver) {
    for _ in 0..50 {
        let due = driver.turn.due(driver.now);
        let Some(action) = due.into_iter().next() else { return };
        match action {
            DueAction::CallModel(_) => drop(driver.answer(0, EffectClass::Pure)),
            DueAction::Acquire(id) if id.call.is_model_call() => drop(driver.lease(id.call, id.attempt)),
            DueAction::Acquire(id) => drop(driver.feed(&Input::Permitted(id))),
            DueAction::RunTool(id) | DueAction::EndTool(id) => {
                driver.feed(&Input::ToolEnded { id, end: CallEnd::ok("r") });
            }
            DueAction::WakeAt(at) => {
                let ms = at.ms_since(driver.now.at);
                wait(driver, ms);
            }
            DueAction::AwaitSubagent { .. }
            | DueAction::Begin(_)
            | DueAction::Verify(_)
            | DueAction::SaveMemory(_)
            | DueAction::WakeAtActive(_) => {
                panic!("not of these sessions")
            }
        }
    }
    panic!("the session does not come to rest: {:?}", driver.turn.due(driver.now));
}

/// Sends message 9 in this mode; checks its records, its fate, and, when all is done, the run that has answered it. The
/// model reads it once, also if the session crashes at once, or after any later step.
#[track_caller]
fn check(
    when: When,
    queue_mode: QueueMode,
    records: &[&str],
    at_once: (MessageState, u128),
    answered_by: u128,
) {
    let mut driver = session(when);
    assert_eq!(send(&mut driver, 9, mode(queue_mode)), records, "{when:?} {queue_mode:?}");
    assert_eq!(fate(&driver, 9), (at_once.0, Some(at_once.1)), "{when:?} {queue_mode:?}");
    assert!(send(&mut driver, 9, mode(queue_mode)).is_empty(), "a repeat changes nothing");
    let mut crashed = driver.clone();
    crashed.crash();
    for driver in [&mut driver, &mut crashed] {
        run_to_end(driver);
        assert_eq!(fate(driver, 9), (Answered, Some(answered_by)), "{when:?} {queue_mode:?}");
        assert_eq!(times_shown(driver, 9), 1, "{when:?} {queue_mode:?}");
        assert!(!driver.turn.has_work());
    }
}

#[test]
fn a_message_to_an_idle_session_becomes_a_run() {
    for queue_mode in [Steer, Followup, Interrupt] {
        check(When::Idle, queue_mode, &["run.accepted"], (Injected, 9), 9);
    }
    check(When::Idle, Collect, &["run.accepted"], (Queued, 9), 9);
}

#[test]
fn a_message_to_a_run_under_way_follows_its_mode() {
    check(When::InModelCall, Steer, &["message.steered"], (Queued, 1), 9);
    check(When::InTool, Steer, &["message.steered", "call.ended"], (Queued, 1), 1);
    for when in [When::InModelCall, When::InTool] {
        check(when, Followup, &["run.accepted"], (Queued, 9), 9);
        check(when, Collect, &["run.accepted"], (Queued, 9), 9);
    }
    let records = ["run.accepted", "run.stopping", "model.failed", "run.ended"];
    check(When::InModelCall, Interrupt, &records, (Injected, 9), 9);
    check(When::InTool, Interrupt, &["run.accepted", "run.stopping", "call.ended"], (Queued, 9), 9);
}

#[test]
fn a_message_to_a_run_that_is_being_stopped_becomes_the_next_run() {
    for queue_mode in QueueMode::ALL {
        check(When::Stopping, queue_mode, &["run.accepted"], (Queued, 9), 9);
    }
}

#[test]
fn collected_messages_are_one_run_after_a_quiet_time() {
    let mut driver = session(When::Idle);
    send(&mut driver, 7, mode(Collect));
    assert_eq!(driver.turn.due(driver.now), [DueAction::WakeAt(driver.now.at.plus_ms(500))]);
    assert!(wait(&mut driver, 499).is_empty());
    assert_eq!(send(&mut driver, 8, mode(Collect)), ["message.collected"]);
    assert_eq!(fate(&driver, 8), (Queued, Some(7)));
    driver.crash();
    assert!(wait(&mut driver, 499).is_empty());
    assert_eq!(send(&mut driver, 9, mode(Steer)), ["message.collected"], "it joins what has not begun");
    assert_eq!(wait(&mut driver, 500), ["run.begun"]);
    assert_eq!([7, 8, 9].map(|n| fate(&driver, n)), [(Injected, Some(7)); 3]);
    assert_eq!(driver.found("(message 7)\n\n(message 8)\n\n(message 9)"), [('u', 1)]);
    answer(&mut driver, 0);
    assert_eq!([7, 8, 9].map(|n| fate(&driver, n)), [(Answered, Some(7)); 3]);
}

#[test]
fn a_run_collects_for_a_limited_time() {
    let mut driver = session(When::Idle);
    let queueing = Queueing { cap: 1_000, ..mode(Collect) };
    send(&mut driver, 1, queueing);
    for n in 2..=25 {
        driver.pass(400);
        send(&mut driver, n, queueing);
    }
    assert_eq!(wait(&mut driver, 400), ["run.begun"], "20 quiet times after its first message");
}

#[test]
fn messages_collected_during_a_run_begin_after_it_and_after_the_quiet_time() {
    let mut driver = session(When::InTool);
    send(&mut driver, 7, mode(Collect));
    driver.pass(5_000);
    assert_eq!(send(&mut driver, 8, mode(Collect)), ["message.collected"]);
    let id = AttemptId { call: tool(1, 1, 1), attempt: 1 };
    driver.feed(&Input::ToolEnded { id, end: CallEnd::ok("r") });
    driver.permit_all();
    let id = AttemptId { call: tool(1, 1, 2), attempt: 1 };
    driver.feed(&Input::ToolEnded { id, end: CallEnd::ok("r") });
    assert_eq!(answer(&mut driver, 0), ["model.answered", "run.ended"], "it is held for 500 ms more");
    assert_eq!(wait(&mut driver, 500), ["run.begun"]);
    assert_eq!(fate(&driver, 8), (Injected, Some(7)));
}

#[test]
fn an_interrupt_drops_queued_messages_and_no_tasks() {
    let mut driver = session(When::InTool);
    send(&mut driver, 5, mode(Followup));
    driver.submit(6, Limits::default());
    send(&mut driver, 7, mode(Collect));
    send(&mut driver, 8, mode(Collect));
    send(&mut driver, 9, mode(Interrupt));
    assert_eq!([5, 7].map(|n| fate(&driver, n)), [(Dropped, Some(5)), (Dropped, Some(7))]);
    assert_eq!(fate(&driver, 8), (Dropped, Some(7)), "it was in a run that never began");
    run_to_end(&mut driver);
    assert_eq!([6, 9].map(|n| fate(&driver, n)), [(Answered, Some(6)), (Answered, Some(9))]);
}

#[test]
fn a_message_that_interrupts_is_the_next_run_and_stops_no_task_that_waits() {
    // A task waits behind a run that collects, or behind the run under way.
    for when in [When::Idle, When::InModelCall, When::InTool, When::Stopping] {
        let mut driver = session(when);
        send(&mut driver, 5, mode(Collect));
        driver.submit(6, Limits { max_tokens: 100, ..Limits::default() });
        send(&mut driver, 9, mode(Interrupt));
        let mut crashed = driver.clone();
        crashed.crash();
        for driver in [&mut driver, &mut crashed] {
            run_to_end(driver);
            assert_eq!(fate(driver, 5), (Dropped, Some(5)), "{when:?}");
            assert_eq!([6, 9].map(|n| fate(driver, n).0), [Answered; 2], "{when:?}");
            let is_of =
                |body: &Body, n| matches!(body, Body::ModelAnswered(answered) if answered.call.run == run(n));
            let answer_of = |n| driver.records.iter().position(|record| is_of(&record.body, n));
            assert!(answer_of(9) < answer_of(6), "{when:?}");
        }
    }
}

#[test]
fn the_queue_of_a_session_is_set_once_and_is_in_its_row() {
    let mut driver = session(When::InTool);
    let rows = |driver: &Driver| {
        let queue = |row: &IndexRow| match row {
            IndexRow::Session(row) => Some((row.key.to_string(), row.queue)),
            IndexRow::Message(_)
            | IndexRow::Run(_)
            | IndexRow::Model(_)
            | IndexRow::Outbox(_)
            | IndexRow::Occurrence(_) => None,
        };
        driver.index.iter().filter_map(queue).collect::<Vec<_>>()
    };
    let opened = rows(&driver);
    assert_eq!(opened.len(), 1, "{opened:?}");
    let key = opened[0].0.clone();
    let collects = QueueOverrides { mode: Some(Collect), cap: Some(3), ..QueueOverrides::default() };
    let check = |driver: &mut Driver, queue: QueueOverrides, expect: &[&str]| {
        assert_eq!(driver.feed(&Input::SetQueue(queue)), expect);
        assert_eq!(rows(driver).pop(), Some((key.clone(), queue)));
    };
    check(&mut driver, QueueOverrides::default(), &[]);
    check(&mut driver, collects, &["queue.changed"]);
    check(&mut driver, collects, &[]);
    let configured = Queueing { drop: DropPolicy::Old, ..mode(Steer) };
    let expect = Queueing { mode: Collect, cap: 3, ..configured };
    assert_eq!(collects.apply(configured), expect);
    check(&mut driver, QueueOverrides::default(), &["queue.changed"]);
    run_to_end(&mut driver);
}

#[test]
fn the_oldest_message_is_dropped_also_when_the_clock_was_set_back() {
    let mut driver = session(When::InTool);
    let queueing = |mode| Queueing { mode, cap: 3, drop: DropPolicy::Old, collect_ms: 500 };
    // The ids are of the time: each is less than the one before.
    send(&mut driver, 9, queueing(Steer));
    send(&mut driver, 8, queueing(Collect));
    send(&mut driver, 7, queueing(Collect));
    for (n, dropped) in [(6, 9), (5, 8), (4, 7)] {
        send(&mut driver, n, queueing(Collect));
        assert_eq!(fate(&driver, dropped).0, Dropped, "{dropped}");
    }
    run_to_end(&mut driver);
    assert_eq!([4, 5, 6].map(|n| fate(&driver, n).0), [Answered; 3]);
}

#[test]
fn a_run_collects_no_more_than_one_task_may_have() {
    let message = |n, bytes: usize, images: usize| {
        let spec = Arc::new(RunSpec::new(vec!["p/m".parse().unwrap()], "/w"));
        let artifact = Artifact { handle: "a".into(), bytes: 1, sha256: None };
        let image = Image::new(ImageFormat::Png, artifact);
        let accepted = RunAccepted::new(run(n), "x".repeat(bytes), spec);
        let (images, queueing) = (vec![image; images].into(), Some(mode(Collect)));
        Input::Submitted { accepted: Box::new(RunAccepted { images, queueing, ..accepted }), key: None }
    };
    let mut driver = session(When::InTool);
    let half = MAX_COLLECTED_BYTES / 2;
    for (n, bytes, images, expect) in [
        (5, half, 0, "run.accepted"),
        (6, half, 0, "message.collected"),
        (7, 1, 0, "run.accepted"),
        (8, 1, MAX_COLLECTED_IMAGES, "message.collected"),
        (9, 1, 1, "run.accepted"),
    ] {
        assert_eq!(driver.feed(&message(n, bytes, images)), [expect], "{n}");
    }
    run_to_end(&mut driver);
    let answered = [5, 6, 7, 8, 9].map(|n| fate(&driver, n));
    assert_eq!(answered, [5, 5, 7, 7, 9].map(|n| (Answered, Some(n))));
}

#[test]
fn at_the_cap_a_message_is_dropped_by_the_policy() {
    let check = |drop, expect: [MessageState; 4], shown: &[(char, usize)]| {
        let mut driver = session(When::InTool);
        let queueing = Queueing { cap: 2, drop, ..mode(Followup) };
        for n in 6..=9 {
            send(&mut driver, n, queueing);
        }
        driver.crash();
        run_to_end(&mut driver);
        assert_eq!([6, 7, 8, 9].map(|n| fate(&driver, n).0), expect, "{drop:?}");
        assert_eq!(driver.found("were dropped"), shown, "{drop:?}");
        for n in 6..=9 {
            let times = usize::from(fate(&driver, n).0 == Answered);
            let in_note = driver.found(&format!("- (message {n})")).len();
            assert_eq!(times_shown(&driver, n) - in_note, times, "{drop:?} {n}");
        }
    };
    check(DropPolicy::Old, [Dropped, Dropped, Answered, Answered], &[]);
    check(DropPolicy::New, [Answered, Answered, Dropped, Dropped], &[]);
    // Run 1 reads the note with the results of its tools.
    check(DropPolicy::Summarize, [Dropped, Dropped, Answered, Answered], &[('t', 1)]);
}

#[test]
fn at_the_cap_unread_and_collected_messages_are_dropped_too() {
    let mut driver = session(When::InTool);
    let queueing = |mode| Queueing { mode, cap: 2, drop: DropPolicy::Old, collect_ms: 500 };
    send(&mut driver, 5, queueing(Steer));
    send(&mut driver, 6, queueing(Collect));
    assert_eq!(send(&mut driver, 7, queueing(Collect)), ["message.dropped", "message.collected"]);
    assert_eq!(fate(&driver, 5), (Dropped, Some(1)));
    // The run 6 goes on without its own message, which was the oldest.
    assert_eq!(send(&mut driver, 8, queueing(Collect)), ["message.dropped", "message.collected"]);
    assert_eq!(fate(&driver, 6), (Dropped, Some(6)));
    run_to_end(&mut driver);
    assert_eq!([7, 8].map(|n| fate(&driver, n)), [(Answered, Some(6)); 2]);
    assert_eq!([5, 6, 7, 8].map(|n| times_shown(&driver, n)), [0, 0, 1, 1]);
}

#[test]
fn a_run_whose_last_message_is_dropped_ends() {
    let mut driver = session(When::InTool);
    let queueing = Queueing { cap: 1, drop: DropPolicy::Old, ..mode(Collect) };
    send(&mut driver, 6, queueing);
    assert_eq!(send(&mut driver, 7, queueing), ["message.dropped", "run.ended", "run.accepted"]);
    run_to_end(&mut driver);
    assert_eq!((fate(&driver, 6).0, fate(&driver, 7)), (Dropped, (Answered, Some(7))));
}

#[test]
fn a_stop_of_a_held_run_lets_the_next_one_begin() {
    let mut driver = session(When::Idle);
    send(&mut driver, 7, mode(Collect));
    send(&mut driver, 8, mode(Followup));
    driver.feed(&Input::Stop { run: Some(run(7)), reason: StopReason::Command });
    assert_eq!(fate(&driver, 7), (Dropped, Some(7)));
    assert_eq!(fate(&driver, 8), (Injected, Some(8)));
}

#[test]
fn the_time_of_a_run_begins_when_it_does() {
    let mut driver = session(When::Idle);
    let spec = RunSpec {
        limits: Limits { timeout_ms: Some(1_000), ..Limits::default() },
        ..RunSpec::new(vec!["p/m".parse().unwrap()], "/w")
    };
    let queueing = Queueing { collect_ms: 60_000, ..mode(Collect) };
    let accepted = RunAccepted::new(run(7), "x", Arc::new(spec));
    let accepted = Box::new(RunAccepted { queueing: Some(queueing), ..accepted });
    driver.feed(&Input::Submitted { accepted, key: None });
    assert_eq!(wait(&mut driver, 60_000), ["run.begun"]);
    assert!(wait(&mut driver, 999).is_empty());
    assert_eq!(wait(&mut driver, 1), ["run.ended"]);
}

#[test]
fn an_unread_message_waits_for_the_next_run_if_its_own_fails() {
    let mut driver = session(When::InModelCall);
    send(&mut driver, 9, mode(Steer));
    driver.fail(FailureClass::Auth);
    assert!(driver.records.iter().any(|record| matches!(record.body, Body::RunEnded(_))));
    assert_eq!(fate(&driver, 9), (Queued, Some(1)));
    send(&mut driver, 10, mode(Steer));
    assert_eq!(fate(&driver, 9), (Injected, Some(10)));
    run_to_end(&mut driver);
    assert_eq!([9, 10].map(|n| fate(&driver, n)), [(Answered, Some(10)); 2]);
}

#[test]
fn an_idle_session_takes_a_message_whatever_was_left_unread() {
    for queue_mode in QueueMode::ALL {
        let mut driver = session(When::InModelCall);
        let queueing = |mode| Queueing { mode, cap: 1, drop: DropPolicy::New, collect_ms: 500 };
        send(&mut driver, 8, queueing(Steer));
        driver.fail(FailureClass::Auth);
        assert_eq!(send(&mut driver, 9, queueing(queue_mode)), ["run.accepted"], "{queue_mode:?}");
        run_to_end(&mut driver);
        assert_eq!([8, 9].map(|n| fate(&driver, n)), [(Answered, Some(9)); 2], "{queue_mode:?}");
    }
}
