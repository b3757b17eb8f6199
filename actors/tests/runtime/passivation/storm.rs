//! Many sessions that are opened, passivated and crash at random times.

use std::{collections::BTreeMap, time::Duration};

use hermod_actors::{AcceptedRun, model::Body, port::Clock};
use hermod_testkit::{ActorFault, ActorKind, MemoryJournal, VirtualClock, inject};
use tokio::time::sleep;

use super::{LONG, check_completes, check_forgotten, request, start};

/// Submits tasks and messages to many sessions at random times, most of them near the passivation; some sessions crash
/// meanwhile.
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
            let mut accepted: Vec<AcceptedRun> = Vec::new();
            for (at, (pause, dies)) in pauses.into_iter().zip(deaths).enumerate() {
                let next = runtime.submit(request(&format!("s{n}"), &at.to_string())).await.unwrap();
                if dies {
                    inject(runtime, ActorKind::Session(next.session), ActorFault::Panic).await;
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
            // A message that came too late for its run is the input of another run.
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
            |(_, record)| matches!(&record.body, Body::MessageSteered(message) if message.followup_run == *next),
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
