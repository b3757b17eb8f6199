//! Sessions with nothing to do: their actors end, nothing of them stays in memory, and whatever comes for them, at whatever
//! moment, finds them again. On virtual time.
#![cfg(feature = "testkit")]
#![allow(clippy::unwrap_used)] // a test ends where it fails

use std::{
    collections::BTreeMap,
    future::{pending, ready},
    sync::Arc,
    time::Duration,
};

use hermod_actors::{
    Accepted, RunError, RunRequest, Runtime, SessionChoice, SessionPlace, World,
    model::{
        Body, Doubt, EffectClass, EventBody, Kind, Outcome, RunState, SessionId, StopReason, WhenInDoubt,
    },
    port::{Clock, Found, Journal, Write},
    testkit::{
        MemoryJournal, Part, ScriptedProvider, ScriptedTool, Strike, VirtualClock, calls, says, strike,
        strike_perhaps, world,
    },
};
use serde_json::json;
use tokio::{task::yield_now, time::sleep};

const STEP: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_mins(1);
/// When a session that was opened at 0 and worked for a step is asked to end: an eighth late.
const EDGE: Duration = Duration::from_millis(67_500);
/// Rounds of the scheduler in which all is done that is done at the edge.
const ROUNDS: u32 = 40;
/// Everything has come to its end or hangs.
const LONG: Duration = Duration::from_mins(10);

fn with(journal: &MemoryJournal) -> World {
    let shared: Arc<dyn Journal> = Arc::new(journal.clone());
    world(shared, ScriptedProvider::new(STEP, |_| Ok(says("done"))), Vec::new())
}

async fn start(journal: &MemoryJournal) -> Runtime {
    Runtime::start(with(journal)).await.expect("the runtime starts")
}

fn request(session: &str, text: &str) -> RunRequest {
    RunRequest { session: SessionChoice::Key(session.into()), ..RunRequest::new(text) }
}

/// A run in the session `k` that comes to its end.
async fn one_run(runtime: &Runtime) -> Accepted {
    let accepted = runtime.submit(request("k", "do it")).await.expect("it is accepted");
    check_completes(runtime, accepted).await;
    accepted
}

async fn check_completes(runtime: &Runtime, accepted: Accepted) {
    let result = runtime.wait(accepted.run, Some(LONG)).await.expect("it ends");
    assert_eq!(result.ended.outcome, Outcome::Completed);
}

async fn places(runtime: &Runtime) -> Vec<SessionPlace> {
    let sessions = runtime.tree().await.expect("the runtime is alive").sessions;
    sessions.into_iter().map(|status| status.place).collect()
}

/// Nothing of any session is in memory, once whatever was done has come to its end.
async fn check_forgotten(runtime: &Runtime, journal: &MemoryJournal, what: &str) {
    sleep(LONG).await;
    assert_eq!(places(runtime).await, [], "{what}");
    assert_eq!(journal.open_sessions(), 0, "{what}: in the store");
}

async fn count(runtime: &Runtime, session: SessionId, kind: Kind) -> usize {
    let records = runtime.journal(session, 1).await.expect("the journal is read");
    records.iter().filter(|(_, record)| record.body.kind() == kind).count()
}

/// Does this in each of the rounds of the scheduler around the moment in which an idle session is asked to end, each time in
/// a world of its own, and says how often the session was opened again for that in each.
fn at_the_edge<D>(deed: D) -> Vec<usize>
where
    D: AsyncFn(Runtime, &MemoryJournal, Accepted) -> usize,
{
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).event_interval(1).build().unwrap();
    runtime.block_on(async {
        let mut revivals = Vec::new();
        for round in 0..ROUNDS {
            let journal = MemoryJournal::new();
            let runtime = start(&journal).await;
            let edge = tokio::time::Instant::now() + EDGE;
            let first = one_run(&runtime).await;
            tokio::time::sleep_until(edge - Duration::from_millis(1)).await;
            assert_eq!(places(&runtime).await, [SessionPlace::Live]);
            tokio::time::sleep_until(edge).await;
            for _ in 0..round {
                yield_now().await;
            }
            let deed = deed(runtime, &journal, first);
            let deed = tokio::time::timeout(LONG * 3, deed).await;
            revivals.push(deed.unwrap_or_else(|_| panic!("round {round} hangs")));
        }
        revivals
    })
}

#[tokio::test(start_paused = true)]
async fn a_session_rests_when_it_has_been_idle() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    let first = one_run(&runtime).await;
    sleep(IDLE.saturating_sub(STEP)).await;
    assert_eq!(places(&runtime).await, [SessionPlace::Live], "it is still young");
    assert_eq!(journal.open_sessions(), 1);
    sleep(IDLE / 4).await;
    assert_eq!(places(&runtime).await, []);
    assert_eq!(journal.open_sessions(), 0);
    let records = runtime.journal(first.session, 1).await.unwrap().len();
    assert_eq!(count(&runtime, first.session, Kind::SessionRevived).await, 0);
    sleep(LONG).await;
    assert_eq!(runtime.journal(first.session, 1).await.unwrap().len(), records, "it leaves no trace");
}

#[tokio::test(start_paused = true)]
async fn its_first_task_finds_it_again() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    let first = one_run(&runtime).await;
    for again in 1..=3 {
        check_forgotten(&runtime, &journal, "between").await;
        let next = one_run(&runtime).await;
        assert_eq!(next.session, first.session);
        assert_eq!(count(&runtime, first.session, Kind::SessionRevived).await, again);
        assert_eq!(places(&runtime).await, [SessionPlace::Live]);
    }
    check_forgotten(&runtime, &journal, "at the end").await;
}

#[tokio::test(start_paused = true)]
async fn what_is_said_of_ended_runs_wakes_nobody() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    let keyed = RunRequest { idempotency_key: Some("once".into()), ..request("k", "do it") };
    let first = runtime.submit(keyed.clone()).await.unwrap();
    check_completes(&runtime, first).await;
    check_forgotten(&runtime, &journal, "the run").await;
    assert_eq!(runtime.submit(keyed).await.unwrap(), first, "the first run's");
    runtime.stop(first.run, StopReason::Command).await.unwrap();
    runtime.stop_at_rest(first.run, StopReason::Command).await.unwrap();
    assert_eq!(runtime.steer(first.run, "more").await, Err(RunError::Ended(first.run)));
    assert_eq!(places(&runtime).await, []);
    runtime.revive(first.session).unwrap();
    check_forgotten(&runtime, &journal, "a revival without work").await;
}

#[test]
fn tasks_at_the_edge_are_run_in_their_order() {
    let revivals = at_the_edge(async |runtime, journal, first| {
        let keyed = RunRequest { idempotency_key: Some("once".into()), ..request("k", "0") };
        let requests = [keyed.clone(), request("k", "1"), keyed, request("k", "2"), request("k", "3")];
        let submits = requests.map(|request| runtime.submit(request));
        let accepted: Vec<Accepted> =
            futures::future::join_all(submits).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(accepted[0].run, accepted[2].run, "the same key");
        for accepted in &accepted {
            check_completes(&runtime, *accepted).await;
        }
        let records = runtime.journal(first.session, 1).await.unwrap();
        let inputs = records.iter().filter_map(|(_, record)| {
            let Body::RunAccepted(accepted) = &record.body else { return None };
            Some(accepted.input.to_string())
        });
        assert_eq!(inputs.collect::<Vec<_>>(), ["do it", "0", "1", "2", "3"]);
        let revivals = count(&runtime, first.session, Kind::SessionRevived).await;
        check_forgotten(&runtime, journal, "the tasks").await;
        revivals
    });
    assert!(revivals.contains(&0), "some find it live: {revivals:?}");
    assert!(revivals.contains(&1), "some find it gone: {revivals:?}");
    assert!(revivals.iter().all(|revivals| *revivals <= 1), "{revivals:?}");
}

#[test]
fn a_call_at_the_edge_is_heard() {
    at_the_edge(async |runtime, journal, first| {
        runtime.revive(first.session).unwrap();
        check_forgotten(&runtime, journal, "the call").await;
        0
    });
}

#[test]
fn an_item_at_the_edge_keeps_the_session() {
    let revivals = at_the_edge(async |runtime, journal, first| {
        // As whoever writes into an inbox does: the row first, then the bell.
        journal.commit(vec![Write::Deliver(first.session, "\"hello\"".into())]).await.unwrap();
        runtime.revive(first.session).unwrap();
        sleep(STEP).await;
        assert_eq!(places(&runtime).await, [SessionPlace::Live], "somebody is there to read it");
        count(&runtime, first.session, Kind::SessionRevived).await
    });
    assert!(
        revivals.iter().all(|revivals| *revivals == 1),
        "once for the item, whoever was first: {revivals:?}"
    );
}

#[test]
fn who_dies_at_the_edge_is_forgotten_too() {
    for how in [Strike::Panic, Strike::Error, Strike::Kill] {
        at_the_edge(async |runtime, journal, first| {
            strike_perhaps(&runtime, Part::Session(first.session), how).await;
            let next = one_run(&runtime).await;
            assert_eq!(next.session, first.session);
            check_forgotten(&runtime, journal, "a death").await;
            0
        });
    }
}

#[test]
fn the_directory_may_die_at_the_edge() {
    for how in [Strike::Panic, Strike::Kill] {
        at_the_edge(async |runtime, journal, first| {
            strike(&runtime, Part::SessionSupervisor, how).await;
            let next = one_run(&runtime).await;
            assert_eq!(next.session, first.session);
            check_forgotten(&runtime, journal, "the directory's death").await;
            0
        });
    }
}

#[test]
fn all_may_be_suspended_at_the_edge() {
    at_the_edge(async |runtime, journal, first| {
        let waiting = runtime.submit(request("k", "more"));
        let accepted = tokio::time::timeout(STEP / 10, waiting).await;
        runtime.suspend().await;
        let runtime = start(&journal.reopened()).await;
        assert!(runtime.revive_all().await.unwrap() <= 1);
        if let Ok(accepted) = accepted {
            check_completes(&runtime, accepted.unwrap()).await;
        }
        assert_eq!(one_run(&runtime).await.session, first.session);
        check_forgotten(&runtime, journal, "the next process").await;
        0
    });
}

#[tokio::test(start_paused = true)]
async fn who_watches_goes_on() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    let first = one_run(&runtime).await;
    let mut watch = runtime.watch(first.session, 1);
    check_forgotten(&runtime, &journal, "the first run").await;
    let next = one_run(&runtime).await;
    let (mut seen, mut last) = (0, None);
    while last != Some(next.run) {
        let event = tokio::time::timeout(LONG, watch.next()).await.expect("it goes on").unwrap();
        if let EventBody::Recorded { record } = event.body {
            seen += 1;
            assert_eq!(event.seq, seen, "no record is missed");
            last = if let Body::RunEnded(ended) = &record.body { Some(ended.run) } else { None };
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_keeps_what_was_refused() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    runtime.revive(SessionId::from_bits(17)).unwrap();
    let keyed = |key: &str| RunRequest { idempotency_key: Some("once".into()), ..request(key, "do it") };
    let (one, other) = tokio::join!(runtime.submit(keyed("a")), runtime.submit(keyed("b")));
    assert_eq!(one.unwrap().run, other.unwrap().run);
    let (one, other) = tokio::join!(runtime.submit(request("c", "1")), runtime.submit(request("c", "2")));
    assert_eq!(one.unwrap().session, other.unwrap().session, "one session got the key first");
    check_forgotten(&runtime, &journal, "what was refused").await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_waits_for_a_person_stays() {
    let mut journal = MemoryJournal::new();
    let with = |journal: &MemoryJournal| {
        let tool = ScriptedTool::new("build", EffectClass::Once, |_| pending());
        let tool = tool.finding(|_, _| ready(Found::Unknown));
        let asks = ScriptedProvider::new(STEP, |_| Ok(calls(&[("build", json!({}))])));
        let mut world = world(Arc::new(journal.clone()), asks, vec![Arc::new(tool)]);
        world.defaults.spec.in_doubt = Doubt { then: WhenInDoubt::Ask, ..Doubt::default() };
        world
    };
    let runtime = Runtime::start(with(&journal)).await.unwrap();
    let run = runtime.submit(request("k", "do it")).await.unwrap();
    sleep(STEP * 2).await;
    runtime.suspend().await;
    journal = journal.reopened();
    let runtime = Runtime::start(with(&journal)).await.unwrap();
    runtime.revive(run.session).unwrap();
    assert_eq!(runtime.settled(run.run).await.unwrap().state, RunState::Parked);
    sleep(LONG).await;
    assert!(runtime.vitals().runs(run.session).await, "the question's time goes on");
    runtime.stop(run.run, StopReason::Command).await.unwrap();
    check_forgotten(&runtime, &journal, "its end").await;
}

#[tokio::test(start_paused = true)]
async fn runs_are_given_up_one_after_the_other() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    let mut runs = Vec::new();
    for text in ["1", "2", "3"] {
        runs.push(runtime.submit(request("k", text)).await.unwrap());
    }
    runtime.suspend().await;
    let journal = journal.reopened();
    let runtime = start(&journal).await;
    for run in &runs {
        runtime.give_up(run.run, "it dies").await.unwrap();
        assert_eq!(runtime.row(run.run).await.unwrap().state, RunState::Ended);
    }
    check_forgotten(&runtime, &journal, "those given up").await;
}

/// Tasks and messages for many sessions at random times, near the edge more often than not; some sessions die meanwhile.
async fn storm(seed: u64) {
    const SESSIONS: u64 = 200;
    let chance = VirtualClock::new(seed);
    let pick = |below: u64| u64::try_from(chance.random() % u128::from(below)).unwrap();
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    let (runtime, steered) = (&runtime, &std::cell::RefCell::new(Vec::new()));
    let sessions = (0..SESSIONS).map(|n| {
        let pauses: Vec<u64> = (0..6)
            .map(|_| match pick(4) {
                0 => pick(3_000),
                1 => 60_000 + pick(8_000),
                2 => pick(150_000),
                _ => 67_500 - pick(1_010),
            })
            .collect();
        let deaths: Vec<bool> = (0..6).map(|_| pick(12) == 0).collect();
        async move {
            let mut accepted: Vec<Accepted> = Vec::new();
            for (at, (pause, dies)) in pauses.into_iter().zip(deaths).enumerate() {
                let next = runtime.submit(request(&format!("s{n}"), &at.to_string())).await.unwrap();
                if dies {
                    strike(runtime, Part::Session(next.session), Strike::Panic).await;
                }
                if at % 2 == 0 {
                    let told = runtime.steer(next.run, format!("{n}/{at}")).await.unwrap();
                    steered.borrow_mut().push((next.session, told.next));
                }
                accepted.push(next);
                sleep(Duration::from_millis(pause)).await;
            }
            accepted
        }
    });
    let all = tokio::time::timeout(LONG * 10, futures::future::join_all(sessions)).await.expect("no hang");
    let mut inputs = BTreeMap::new();
    for accepted in &all {
        let records = runtime.journal(accepted[0].session, 1).await.unwrap();
        let texts = records.iter().filter_map(|(_, record)| {
            let Body::RunAccepted(accepted) = &record.body else { return None };
            // A message that came too late for its run is the input of another.
            (accepted.input.len() == 1).then(|| accepted.input.to_string())
        });
        assert_eq!(texts.collect::<Vec<_>>(), ["0", "1", "2", "3", "4", "5"], "seed {seed}");
        inputs.insert(accepted[0].session, records);
        for run in accepted {
            check_completes(runtime, *run).await;
        }
    }
    for (session, next) in steered.borrow().iter() {
        let heard = inputs[session].iter().any(
            |(_, record)| matches!(&record.body, Body::MessageSteered(message) if message.next == *next),
        );
        assert!(heard, "seed {seed}: a message to {session} is not on disk");
    }
    check_forgotten(runtime, &journal, &format!("seed {seed}")).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_among_many_sessions_that_come_and_go() {
    for seed in 1..=2 {
        storm(seed).await;
    }
}

/// Whoever hears of a call only after it has let the session go, and dies before it hears of it, leaves it to the next.
#[test]
fn a_call_at_the_edge_outlives_the_directory() {
    for gap in 0..3 {
        at_the_edge(async |runtime, journal, first| {
            journal.commit(vec![Write::Deliver(first.session, "\"hello\"".into())]).await.unwrap();
            runtime.revive(first.session).unwrap();
            for _ in 0..gap {
                yield_now().await;
            }
            strike(&runtime, Part::SessionSupervisor, Strike::Kill).await;
            sleep(STEP).await;
            assert_eq!(places(&runtime).await, [SessionPlace::Live], "somebody is there to read it");
            0
        });
    }
}

#[tokio::test(start_paused = true)]
async fn any_time_to_be_idle_will_do() {
    let check = async |idle: Duration, early: Vec<SessionPlace>, late: Vec<SessionPlace>| {
        let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new());
        let quick = ScriptedProvider::new(Duration::from_millis(20), |_| Ok(says("done")));
        let runtime = Runtime::start(World { idle, ..world(journal, quick, Vec::new()) }).await.unwrap();
        one_run(&runtime).await;
        sleep(Duration::from_millis(40)).await;
        assert_eq!(places(&runtime).await, early, "{idle:?}");
        sleep(LONG).await;
        assert_eq!(places(&runtime).await, late, "{idle:?}");
    };
    // It is not looked for the idle at every turn.
    check(Duration::from_micros(1), vec![SessionPlace::Live], vec![]).await;
    check(Duration::MAX, vec![SessionPlace::Live], vec![SessionPlace::Live]).await;
}
