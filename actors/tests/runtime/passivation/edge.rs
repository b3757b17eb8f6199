//! Events at the moment in which an idle session is requested to end.

use std::time::Duration;

use hermod_actors::{
    AcceptedRun, RunRequest, Runtime, SessionPhase,
    model::{Body, Kind},
    port::{Journal, WriteOp},
};
use hermod_testkit::{ActorFault, ActorKind, MemoryJournal, inject, inject_if_alive};
use tokio::{task::yield_now, time::sleep};

use super::{LONG, STEP, check_completes, check_forgotten, count, one_run, places, request, start};

/// The time at which a session that was opened at 0 and worked for one step is requested to end: an eighth of the idle
/// time late.
const EDGE: Duration = Duration::from_millis(67_500);
/// Rounds of the scheduler in which the passivation is done.
const ROUNDS: u32 = 40;

/// Runs `deed` at each round of the scheduler around the request for passivation, each time in a new runtime. Returns
/// how often the session was opened again in each.
fn at_the_edge<D>(deed: D) -> Vec<usize>
where
    D: AsyncFn(Runtime, &MemoryJournal, AcceptedRun) -> usize,
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
            assert_eq!(places(&runtime).await, [SessionPhase::Live]);
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

#[test]
fn tasks_at_the_edge_are_run_in_their_order() {
    let revivals = at_the_edge(async |runtime, journal, first| {
        let keyed = RunRequest { idempotency_key: Some("once".into()), ..request("k", "0") };
        let requests = [keyed.clone(), request("k", "1"), keyed, request("k", "2"), request("k", "3")];
        let submits = requests.map(|request| runtime.submit(request));
        let accepted: Vec<AcceptedRun> =
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
        // As another session does: first the inbox row, then the notification.
        journal.commit(vec![WriteOp::Deliver(first.session, "\"hello\"".into())]).await.unwrap();
        runtime.revive(first.session).unwrap();
        sleep(STEP).await;
        assert_eq!(places(&runtime).await, [SessionPhase::Live], "somebody is there to read it");
        count(&runtime, first.session, Kind::SessionRevived).await
    });
    assert!(
        revivals.iter().all(|revivals| *revivals == 1),
        "once for the item, whoever was first: {revivals:?}"
    );
}

#[test]
fn who_dies_at_the_edge_is_forgotten_too() {
    for how in [ActorFault::Panic, ActorFault::Error, ActorFault::Kill] {
        at_the_edge(async |runtime, journal, first| {
            inject_if_alive(&runtime, ActorKind::Session(first.session), how).await;
            let next = one_run(&runtime).await;
            assert_eq!(next.session, first.session);
            check_forgotten(&runtime, journal, "a death").await;
            0
        });
    }
}

#[test]
fn the_directory_may_die_at_the_edge() {
    for how in [ActorFault::Panic, ActorFault::Kill] {
        at_the_edge(async |runtime, journal, first| {
            inject(&runtime, ActorKind::SessionSupervisor, how).await;
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

/// The directory crashes after the session is closed and before it handles a message for it: the next directory handles
/// the message.
#[test]
fn a_call_at_the_edge_outlives_the_directory() {
    for gap in 0..3 {
        at_the_edge(async |runtime, journal, first| {
            journal.commit(vec![WriteOp::Deliver(first.session, "\"hello\"".into())]).await.unwrap();
            runtime.revive(first.session).unwrap();
            for _ in 0..gap {
                yield_now().await;
            }
            inject(&runtime, ActorKind::SessionSupervisor, ActorFault::Kill).await;
            sleep(STEP).await;
            assert_eq!(places(&runtime).await, [SessionPhase::Live], "somebody is there to read it");
            0
        });
    }
}
