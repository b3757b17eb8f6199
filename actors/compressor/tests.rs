//! The Compressor's actor without a runtime: the order of admissions, the advice, and restarts.

use std::{sync::Mutex, time::Duration};

use tokio::{sync::watch, task::JoinHandle};

use super::*;
use crate::{
    doubles::VirtualClock,
    inspect::Inspect,
    model::{AsideJob, RunId},
    policy::{LinkVisit, SummaryResult, ViewGrowth},
};

const AHEAD: SummaryUrgency =
    SummaryUrgency::Background(ViewGrowth { fill_percent: 70, slack_ms: Some(60_000) });
const NOW: SummaryUrgency = SummaryUrgency::Foreground;
const LONG: Duration = Duration::from_hours(1);

/// A Compressor with its handle, and the names of the calls in the order of their admission.
struct World {
    handle: Arc<CompressorHandle>,
    clock: Arc<dyn Clock>,
    admitted: Arc<Mutex<Vec<String>>>,
}

impl World {
    async fn new(permits: usize) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::new(1));
        let world =
            Self { handle: Arc::new(CompressorHandle::new(permits)), clock, admitted: Arc::default() };
        world.start_actor().await;
        world
    }

    async fn start_actor(&self) {
        let handlers = HandlerWatch::new(Arc::clone(&self.clock));
        let arguments = (Arc::clone(&self.handle), Arc::clone(&self.clock), handlers);
        let (actor, _) = Actor::spawn(None, CompressorActor, arguments).await.expect("it starts");
        self.handle.actor.set_running(actor);
    }

    /// Waits for an admission in a task: the nth call of a session. The result has the permit.
    fn request(
        &self,
        (name, session, n): (&str, u128, u32),
        urgency: SummaryUrgency,
    ) -> (watch::Sender<SummaryUrgency>, JoinHandle<SummaryAdmission>) {
        let (sender, mut updates) = watch::channel(urgency);
        let (handle, admitted, name) =
            (Arc::clone(&self.handle), Arc::clone(&self.admitted), name.to_owned());
        let call = CallId::aside(RunId::from_bits(session), n, AsideJob::Summary);
        let waiting = tokio::spawn(async move {
            let session = SessionId::from_bits(session);
            let candidates = chain();
            let admission = handle.admit(session, call, &candidates, &mut updates);
            let admission = tokio::time::timeout(LONG, admission).await.expect("it is admitted in time");
            admitted.lock().expect("no panic").push(name);
            admission.expect("the Compressor runs")
        });
        (sender, waiting)
    }

    /// The status, behind all messages that were sent before.
    async fn status(&self) -> CompressorStatus {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let (inspect, status) = Inspect::read(CompressorState::status);
        self.handle.actor.cast(CompressorMsg::Inspect(inspect)).expect("it is there");
        status.await.expect("it answers")
    }

    /// The names of the calls that were admitted since the last time.
    fn admitted(&self) -> String {
        std::mem::take(&mut *self.admitted.lock().expect("no panic")).concat()
    }
}

fn chain() -> Vec<Candidate> {
    let link = |model: &str| Candidate {
        model: model.parse().expect("a model"),
        visit: LinkVisit::First,
        tokens: 0,
    };
    ["p/a", "p/b"].map(link).into()
}

fn report(result: SummaryResult) -> SummaryReport {
    SummaryReport { model: chain()[0].model.clone(), ms: 10_000, result }
}

/// Requests these calls while the only permit is taken, then returns it, and checks the order of admission.
async fn check(requests: &[(&str, u128, u32, SummaryUrgency)], expect: &str) {
    let world = World::new(1).await;
    let (_first, first) = world.request(("", 99, 1), NOW);
    let first = first.await.expect("it is admitted");
    let mut waiting = Vec::new();
    for (name, session, n, urgency) in requests {
        waiting.push(world.request((name, *session, *n), *urgency));
        world.status().await;
    }
    assert_eq!(world.admitted(), "", "the permit is taken");
    drop(first);
    for (updates, call) in waiting {
        // The admitted call drops its permit at once, so the next call gets it.
        tokio::spawn(async move { drop((call.await, updates)) });
    }
    while world.admitted.lock().expect("no panic").len() < requests.len() {
        world.status().await;
    }
    assert_eq!(world.admitted(), expect);
    assert_eq!(world.status().await.running, 0, "all permits are back");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_run_waits_for_comes_before_those_made_ahead() {
    check(&[("a", 1, 1, AHEAD), ("b", 2, 1, AHEAD), ("C", 3, 1, NOW)], "Cab").await;
}

#[tokio::test(start_paused = true)]
async fn a_session_with_twenty_calls_starves_no_other() {
    let mut requests: Vec<_> = (1..=20).map(|n| ("a", 1, n, NOW)).collect();
    requests.push(("b", 2, 1, NOW));
    check(&requests, &format!("ab{}", "a".repeat(19))).await;
}

#[tokio::test(start_paused = true)]
async fn calls_made_ahead_leave_the_last_permit_to_runs_that_wait() {
    let world = World::new(2).await;
    let ahead = world.request(("a", 1, 1), AHEAD);
    let held = world.request(("b", 2, 1), AHEAD);
    let status = world.status().await;
    assert_eq!((status.running, status.background), (1, 1));
    let waits = world.request(("c", 3, 1), NOW);
    assert_eq!(world.status().await.running, 2);
    assert_eq!(world.admitted(), "ac");
    drop((ahead.1.await, waits.1.await));
    world.status().await;
    assert_eq!(world.admitted(), "b");
    drop(held.1.await);
}

#[tokio::test(start_paused = true)]
async fn a_call_becomes_urgent_while_it_waits() {
    let world = World::new(1).await;
    let (_first, first) = world.request(("", 99, 1), NOW);
    let first = first.await.expect("it is admitted");
    let (_updates, early) = world.request(("a", 1, 1), AHEAD);
    world.status().await;
    let (updates, late) = world.request(("b", 2, 1), AHEAD);
    world.status().await;
    updates.send(NOW).expect("it waits");
    assert_eq!(world.status().await.foreground, 1);
    drop(first);
    drop(late.await);
    world.status().await;
    assert_eq!(world.admitted(), "ba");
    drop(early.await);
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_takes_no_permit() {
    let world = World::new(1).await;
    let (_first, first) = world.request(("", 99, 1), NOW);
    let first = first.await.expect("it is admitted");
    let (_updates, given_up) = world.request(("a", 1, 1), NOW);
    assert_eq!(world.status().await.foreground, 1);
    given_up.abort();
    assert_eq!(world.status().await.foreground, 0);
    drop(first);
    assert_eq!(world.status().await.running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_summariser_that_fails_is_called_after_the_others() {
    let world = World::new(1).await;
    for n in 1..=3 {
        let (_updates, call) = world.request(("a", 1, n), NOW);
        let admission = call.await.expect("it is admitted");
        assert_eq!(admission.candidates, chain(), "after {n} reports");
        admission.permit.end_call(Some(report(SummaryResult::Failed)));
    }
    let (_updates, call) = world.request(("a", 1, 4), NOW);
    let advised = call.await.expect("it is admitted").candidates;
    assert_eq!(advised.iter().map(|link| link.model.to_string()).collect::<Vec<_>>(), ["p/b", "p/a"]);
    let [status] = &world.status().await.summarizers[..] else { panic!("one summariser") };
    assert_eq!((status.attempts, status.failed, status.is_poor), (3, 3, true));
}

#[tokio::test(start_paused = true)]
async fn a_summary_ahead_waits_for_its_moment_once_its_duration_is_known() {
    let world = World::new(1).await;
    let (_updates, call) = world.request(("a", 1, 1), AHEAD);
    let usable = SummaryResult::Usable { read: 10_000, written: 1_000 };
    let permit = call.await.expect("nothing is known yet").permit;
    permit.end_call(Some(report(usable)));
    let (updates, held) = world.request(("b", 1, 2), AHEAD);
    assert_eq!(world.status().await.background, 1);
    assert_eq!(world.admitted(), "a");
    let growth = ViewGrowth { fill_percent: 75, slack_ms: Some(30_000) };
    updates.send(SummaryUrgency::Background(growth)).expect("it waits");
    drop(held.await);
    assert_eq!(world.admitted(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_crash_loses_no_call_and_no_permit() {
    let world = World::new(1).await;
    let (_first, first) = world.request(("", 99, 1), NOW);
    let first = first.await.expect("it is admitted");
    let (_updates, queued) = world.request(("a", 1, 1), NOW);
    let (updates, changed) = world.request(("b", 2, 1), AHEAD);
    assert_eq!(world.status().await.foreground, 1);
    let fails = Inspect::new(|_: &CompressorState| Err(ActorProcessingErr::from("struck")));
    world.handle.actor.cast(CompressorMsg::Inspect(fails)).expect("it is there");
    tokio::time::sleep(Duration::from_millis(1)).await;
    updates.send(NOW).expect("it waits");
    tokio::time::sleep(Duration::from_millis(1)).await;
    world.start_actor().await;
    let status = world.status().await;
    assert_eq!((status.running, status.foreground), (1, 2), "the permit is still taken");
    drop(first);
    drop(queued.await);
    drop(changed.await);
    assert_eq!(world.admitted(), "ab");
}
