//! Write-only orders (stop, decide, raise without resume) to sessions whose runs no process carries out, also if the
//! session is revived at the same time. Each order takes effect, and it alone starts nothing. On virtual time.

use std::{
    cell::Cell,
    future::{Ready, pending, ready},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use hermod_actors::{
    AcceptedRun, RunError, RunRequest, Runtime, RuntimeDependencies, SessionChoice, SessionPhase,
    model::{
        ApprovalDecision, CallEnd, CallId, EffectClass, InDoubtAction, InDoubtPolicy, Kind, Outcome,
        RunState, Seq, SessionId, StopReason,
    },
    port::{
        AttachOutcome, Journal, JournalError, ReadFuture, RowReader, StoredRecord, WriteOp, WriteOutcome,
        WriteRefusal,
    },
};
use hermod_testkit::{
    ActorFault, ActorKind, MemoryJournal, ScriptedProvider, ScriptedTool, calls, inject, inject_if_alive,
    says, world,
};
use serde_json::json;
use tokio::task::yield_now;

const STEP: Duration = Duration::from_secs(1);
/// Time after which everything has ended, or hangs.
const LONG: Duration = Duration::from_mins(10);
/// Rounds of the scheduler between the answer of an order and the last of its work.
const AFTER: u32 = 20;

fn provider() -> ScriptedProvider {
    ScriptedProvider::new(STEP, |view| match view.last() {
        Some(last) if last["role"] == "tool" => Ok(says("done")),
        Some(_) | None => Ok(calls(&[("build", json!({}))])),
    })
}

fn endless() -> ScriptedTool {
    ScriptedTool::new("build", EffectClass::Once, |_| pending())
        .with_attach(|_, _| ready(AttachOutcome::Unknown))
}

fn quick() -> ScriptedTool {
    ScriptedTool::new("build", EffectClass::Once, |_| ready(CallEnd::ok("built")))
        .with_attach(|_, _| ready(AttachOutcome::Unknown))
}

fn with(journal: &MemoryJournal, tool: ScriptedTool) -> RuntimeDependencies {
    let shared: Arc<dyn Journal> = Arc::new(journal.clone());
    let mut world = world(shared, provider(), vec![Arc::new(tool)]);
    world.defaults.spec.in_doubt = InDoubtPolicy { action: InDoubtAction::Ask, ..InDoubtPolicy::default() };
    world
}

async fn start(world: RuntimeDependencies) -> Runtime {
    Runtime::start(world).await.expect("the runtime starts")
}

async fn submit(runtime: &Runtime) -> AcceptedRun {
    let request = RunRequest { session: SessionChoice::Key("k".into()), ..RunRequest::new("do it") };
    runtime.submit(request).await.expect("it is accepted")
}

/// A process that has not revived the session of two runs. The first run waits for a person if `parked`, otherwise it
/// was under way; the second one is queued behind it.
async fn left(parked: bool) -> (Runtime, AcceptedRun, AcceptedRun) {
    let mut journal = MemoryJournal::new();
    let runtime = start(with(&journal, endless())).await;
    let (first, second) = (submit(&runtime).await, submit(&runtime).await);
    tokio::time::sleep(STEP * 2).await;
    runtime.suspend().await;
    journal = journal.reopened();
    if parked {
        let runtime = start(with(&journal, endless())).await;
        runtime.revive(first.session).unwrap();
        assert_eq!(runtime.wait_until_ended_or_parked(first.run).await.unwrap().state, RunState::Parked);
        runtime.suspend().await;
        journal = journal.reopened();
    }
    (start(with(&journal, quick())).await, first, second)
}

fn asked(run: AcceptedRun) -> CallId {
    CallId { run: run.run, iteration: 1, n: 1 }
}

async fn count(runtime: &Runtime, accepted: AcceptedRun, kind: Kind) -> usize {
    let records = runtime.journal(accepted.session, 1).await.expect("the journal is read");
    records.iter().filter(|(_, record)| record.body.kind() == kind).count()
}

/// Runs a test on a scheduler that polls one task per round.
fn step_by_step(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).event_interval(1).build().unwrap().block_on(test);
}

/// Runs `meanwhile` at each round of the scheduler, from before a write-only command until all its work is done. Each
/// time a new runtime is used, to which `check` is applied.
fn in_every_round<O, M, C>(parked: bool, order: O, meanwhile: M, check: C)
where
    O: AsyncFn(&Runtime, AcceptedRun),
    M: AsyncFn(&Runtime, AcceptedRun),
    C: AsyncFn(&Runtime, (AcceptedRun, AcceptedRun), u32),
{
    step_by_step(async {
        let (mut round, mut after) = (0, 0);
        while after < AFTER {
            let (runtime, first, second) = left(parked).await;
            let is_done = Cell::new(false);
            let ordered = async {
                order(&runtime, first).await;
                is_done.set(true);
            };
            let meanwhile = async {
                for _ in 0..round {
                    yield_now().await;
                }
                after += u32::from(is_done.get());
                meanwhile(&runtime, first).await;
            };
            let both = async { tokio::join!(ordered, meanwhile) };
            tokio::time::timeout(LONG, both).await.unwrap_or_else(|_| panic!("round {round} hangs"));
            check(&runtime, (first, second), round).await;
            runtime.suspend().await;
            round += 1;
        }
        assert!(round > AFTER + 5, "an order takes some rounds: {round}");
    });
}

fn revive(runtime: &Runtime, first: AcceptedRun) -> Ready<()> {
    runtime.revive(first.session).unwrap();
    ready(())
}

async fn decide(runtime: &Runtime, first: AcceptedRun) {
    runtime.decide_without_resume(asked(first), ApprovalDecision::Allow).await.unwrap();
}

/// Decides, unless the decision was made already.
async fn decide_perhaps(runtime: &Runtime, first: AcceptedRun) {
    match runtime.decide_without_resume(asked(first), ApprovalDecision::Allow).await {
        Ok(_) | Err(RunError::NoPendingApproval(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

async fn stop(runtime: &Runtime, first: AcceptedRun) {
    runtime.stop_without_resume(first.run, StopReason::Command).await.unwrap();
}

#[test]
fn a_run_that_is_decided_about_while_its_session_is_taken_up_goes_on() {
    in_every_round(true, decide, revive, async |runtime, (first, second), round| {
        for run in [first, second] {
            let result = runtime.wait(run.run, Some(LONG)).await;
            let result = result.unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert_eq!(result.ended.outcome, Outcome::Completed, "round {round}");
        }
        assert!(runtime.health_probe().runs(first.session).await);
    });
}

#[test]
fn what_waits_behind_a_run_that_is_stopped_while_its_session_is_taken_up_goes_on() {
    in_every_round(false, stop, revive, async |runtime, (first, second), round| {
        for (run, outcome) in [(first, Outcome::Stopped), (second, Outcome::Completed)] {
            let result = runtime.wait(run.run, Some(LONG)).await;
            let result = result.unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert_eq!(result.ended.outcome, outcome, "round {round}");
        }
    });
}

#[tokio::test(start_paused = true)]
async fn an_order_at_rest_to_a_session_that_goes_on_does_not_stop_it() {
    let (runtime, first, second) = left(true).await;
    runtime.revive(first.session).unwrap();
    decide(&runtime, first).await;
    tokio::time::sleep(STEP / 2).await;
    stop(&runtime, second).await;
    let revivals = count(&runtime, first, Kind::SessionRevived).await;
    assert_eq!(runtime.wait(first.run, Some(LONG)).await.unwrap().ended.outcome, Outcome::Completed);
    assert_eq!(runtime.wait(second.run, Some(LONG)).await.unwrap().ended.outcome, Outcome::Stopped);
    assert_eq!(count(&runtime, first, Kind::SessionRevived).await, revivals);
    assert_eq!(count(&runtime, first, Kind::ModelStarted).await, 2, "no answer was lost");
}

/// Checks that the session was not revived: none of its calls is started.
async fn check_is_left(runtime: &Runtime, (first, second): (AcceptedRun, AcceptedRun), round: u32) {
    tokio::time::sleep(LONG).await;
    assert!(!runtime.health_probe().runs(first.session).await, "round {round}");
    assert_eq!(runtime.supervision_tree().await.unwrap().sessions, [], "round {round}: it is forgotten");
    assert_eq!(count(runtime, first, Kind::ModelStarted).await, 1, "round {round}");
    assert_eq!(count(runtime, first, Kind::CallStarted).await, 1, "round {round}");
    assert_ne!(runtime.row(second.run).await.unwrap().state, RunState::Ended, "round {round}");
}

#[test]
fn orders_at_rest_that_meet_take_nothing_up() {
    let again = async |runtime: &Runtime, first: AcceptedRun| {
        assert!(!runtime.health_probe().runs(first.session).await, "it is only open at rest");
        decide_perhaps(runtime, first).await;
    };
    in_every_round(true, decide_perhaps, again, check_is_left);
}

#[test]
fn a_session_that_dies_of_an_order_at_rest_is_not_taken_up() {
    let die = async |runtime: &Runtime, first: AcceptedRun| {
        if !runtime.supervision_tree().await.unwrap().sessions.is_empty() {
            inject_if_alive(runtime, ActorKind::Session(first.session), ActorFault::Kill).await;
        }
    };
    in_every_round(false, stop, die, async |runtime, runs, round| {
        check_is_left(runtime, runs, round).await;
        let row = runtime.row(runs.0.run).await.unwrap();
        assert_eq!(row.state, RunState::Ended, "round {round}: its end is written all the same");
    });
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_run_goes_on_when_one_behind_it_is_given_up() {
    let journal = MemoryJournal::new();
    let limited = |journal: &MemoryJournal| {
        let mut world = with(journal, endless());
        world.defaults.spec.limits.timeout_ms = Some(10_000);
        world
    };
    let runtime = start(limited(&journal)).await;
    let (first, second) = (submit(&runtime).await, submit(&runtime).await);
    tokio::time::sleep(STEP * 6).await;
    // The last record of the session tells its active time.
    runtime.steer(first.run, "go on").await.unwrap();
    runtime.suspend().await;
    let mut world = limited(&journal.reopened());
    world.tools = vec![Arc::new(endless().with_attach(|_, _| pending()))];
    let runtime = start(world).await;
    runtime.force_fail(second.run, "it dies").await.unwrap();
    assert_eq!(runtime.row(second.run).await.unwrap().state, RunState::Ended);
    let began = tokio::time::Instant::now();
    runtime.revive_all().await.unwrap();
    // Six of the run's ten seconds have passed. A call that does not end by itself gets three more.
    let ended = runtime.wait(first.run, None).await.unwrap().ended;
    assert_eq!((ended.outcome, began.elapsed().as_secs()), (Outcome::TimedOut, 7));
}

fn plain(journal: MemoryJournal) -> Arc<dyn Journal> {
    Arc::new(journal)
}

async fn places(runtime: &Runtime) -> Vec<SessionPhase> {
    let sessions = runtime.supervision_tree().await.expect("the runtime is alive").sessions;
    sessions.into_iter().map(|status| status.phase).collect()
}

/// Checks that no session stays in memory when all work has ended.
async fn check_forgotten(runtime: &Runtime, journal: &MemoryJournal, what: &str) {
    tokio::time::sleep(LONG).await;
    assert_eq!(places(runtime).await, [], "{what}");
    assert_eq!(journal.open_sessions(), 0, "{what}: in the store");
}

/// A process over the store of one that was suspended in the middle of a run, with a journal that `over` makes.
async fn left_in(over: fn(MemoryJournal) -> Arc<dyn Journal>) -> (Runtime, MemoryJournal, AcceptedRun) {
    let journal = MemoryJournal::new();
    let runtime = start(with(&journal, quick())).await;
    let run = submit(&runtime).await;
    runtime.suspend().await;
    let journal = journal.reopened();
    let world = RuntimeDependencies { journal: over(journal.clone()), ..with(&journal, quick()) };
    (start(world).await, journal, run)
}

#[test]
fn a_directory_that_dies_while_a_session_is_opened_leaves_it_to_the_next() {
    step_by_step(async {
        for round in 0..AFTER * 2 {
            let (runtime, journal, run) = left_in(plain).await;
            let rounds = async {
                for _ in 0..round {
                    yield_now().await;
                }
            };
            tokio::select! {
                biased;
                stopped = runtime.stop_without_resume(run.run, StopReason::Command) => stopped.unwrap(),
                // The order is not repeated.
                () = rounds => {}
            }
            inject(&runtime, ActorKind::SessionSupervisor, ActorFault::Kill).await;
            check_forgotten(&runtime, &journal, &format!("round {round}")).await;
        }
    });
}

/// A store that refuses every append.
#[derive(Debug)]
struct Refusing(MemoryJournal);

impl Journal for Refusing {
    fn commit(&self, batch: Vec<WriteOp>) -> BoxFuture<'static, Result<Vec<WriteOutcome>, JournalError>> {
        if batch.iter().any(|write| matches!(write, WriteOp::Append(_))) {
            let refused = |_| WriteOutcome::Refused(WriteRefusal::Malformed("no appends".into()));
            let written = batch.into_iter().map(refused).collect();
            return Box::pin(ready(Ok(written)));
        }
        self.0.commit(batch)
    }

    fn records(&self, session: SessionId, from: Seq, max: usize) -> ReadFuture<Vec<StoredRecord>> {
        self.0.records(session, from, max)
    }

    fn rows(&self) -> &dyn RowReader {
        self.0.rows()
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_runs_cannot_be_ended_is_let_go() {
    let (runtime, journal, run) = left_in(|journal| Arc::new(Refusing(journal))).await;
    let given_up = runtime.force_fail(run.run, "it dies").await;
    assert_eq!(given_up, Err(RunError::WaitTimedOut(run.run)));
    check_forgotten(&runtime, &journal, "the refusal").await;
    assert_ne!(runtime.row(run.run).await.unwrap().state, RunState::Ended);
}

#[tokio::test(start_paused = true)]
async fn what_waits_in_an_inbox_is_taken_in_by_the_order_that_opens_its_session() {
    let (runtime, journal, run) = left_in(plain).await;
    journal.commit(vec![WriteOp::Deliver(run.session, "\"hello\"".into())]).await.unwrap();
    runtime.stop_without_resume(run.run, StopReason::Command).await.unwrap();
    check_forgotten(&runtime, &journal, "the order").await;
    assert!(journal.inboxes().is_empty());
    let next = submit(&runtime).await;
    assert_eq!(next.session, run.session);
    assert_eq!(places(&runtime).await, [SessionPhase::Live]);
}
