//! Delegation while sessions crash: no end of a subagent is lost, and accounts stay right. On virtual time.

use std::{sync::Arc, time::Duration};

use hermod_actors::{
    AcceptedRun, RunRequest, Runtime,
    model::{Amounts, BudgetAccount, Delegation, Outcome, OutcomeCause, RunId, RunRow, RunState},
    port::Journal,
};
use hermod_testkit::{
    ActorFault, ActorKind, FaultyJournal, JournalFault, MemoryJournal, ScriptedProvider, calls,
    inject_if_alive, says, world,
};
use serde_json::json;

/// The duration of a commit: long enough for a crash during it.
const COMMIT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_hours(1);
/// The rights of a run that delegates to one level of subagents.
pub(crate) const DELEGATION: Delegation = Delegation {
    depth: 0,
    max_depth: 1,
    max_children: 3,
    iterations: 5,
    shares_iterations: false,
    progress_ms: None,
};

/// A runtime whose model delegates its task to a subagent, which answers.
async fn start(store: &MemoryJournal, answers_in: Duration) -> Runtime {
    let provider = ScriptedProvider::new(answers_in, |view| {
        let is_subagent = view[1]["text"].as_str().unwrap().starts_with("count");
        match view.iter().any(|message| message["role"] == "tool") {
            _ if is_subagent => Ok(says("three")),
            false => Ok(calls(&[("delegate_task", json!({"goal": "count"}))])),
            true => Ok(says("it is three")),
        }
    });
    let slow = FaultyJournal::new(Arc::new(store.clone()), JournalFault::Slow(COMMIT), 1);
    let mut world = world(Arc::new(slow), provider, Vec::new());
    world.defaults.spec.tools = vec!["delegate_task".into()];
    world.defaults.spec.delegation = Some(DELEGATION);
    Runtime::start(world).await.expect("the runtime starts")
}

async fn subagent(runtime: &Runtime, of: AcceptedRun) -> Option<RunRow> {
    let runs = runtime.list(None, 9).await.unwrap();
    runs.into_iter().find(|row| row.id != of.run)
}

async fn account(store: &MemoryJournal, run: RunId) -> BudgetAccount {
    store.rows().account(run.into()).await.unwrap().expect("the run has an account")
}

/// Kills the session of the run, or of its subagent, at each tenth of a commit, while a caller waits for the run.
async fn check(kills: Kills) {
    for tenths in 1..120 {
        let store = MemoryJournal::new();
        let runtime = start(&store, COMMIT / 4).await;
        let accepted = runtime.submit(RunRequest::new("how many?")).await.unwrap();
        let kill = async {
            tokio::time::sleep(COMMIT / 10 * tenths).await;
            let session = match kills {
                Kills::Run => Some(accepted.session),
                Kills::Subagent => subagent(&runtime, accepted).await.map(|row| row.session),
            };
            if let Some(session) = session {
                inject_if_alive(&runtime, ActorKind::Session(session), ActorFault::Kill).await;
            }
        };
        let (result, ()) = tokio::join!(runtime.wait(accepted.run, Some(LONG)), kill);
        let result = result.unwrap_or_else(|error| panic!("killed after {tenths} tenths: {error}"));
        assert_eq!(result.ended.outcome, Outcome::Completed, "killed after {tenths} tenths");
        assert!(store.inboxes().is_empty(), "killed after {tenths} tenths: {:?}", store.inboxes());
    }
}

#[derive(Debug, Clone, Copy)]
enum Kills {
    Run,
    Subagent,
}

/// The subagent's session crashes when its end is durable: the parent receives the end, and continues.
#[tokio::test(start_paused = true)]
async fn an_end_is_heard_though_whoever_tells_it_dies() {
    check(Kills::Subagent).await;
}

/// The run's session crashes when its end is durable: the waiting caller gets the outcome.
#[tokio::test(start_paused = true)]
async fn an_outcome_is_told_though_whoever_came_to_it_dies() {
    check(Kills::Run).await;
}

#[tokio::test(start_paused = true)]
async fn the_row_of_a_subagent_names_its_parent_for_ever() {
    let store = MemoryJournal::new();
    let runtime = start(&store, COMMIT).await;
    let accepted = runtime.submit(RunRequest::new("how many?")).await.unwrap();
    runtime.wait(accepted.run, Some(LONG)).await.unwrap();
    let row = subagent(&runtime, accepted).await.unwrap();
    assert_eq!(row.state, RunState::Ended);
    assert_eq!(row.parent.map(|parent| parent.call.run), Some(accepted.run));
}

/// The session of a run crashes until the run is force-failed, while its subagent has reserved the cost of a call.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_given_up_pays_for_its_own_calls_alone() {
    let store = MemoryJournal::new();
    let runtime = start(&store, COMMIT * 20).await;
    let accepted = runtime.submit(RunRequest::new("how many?")).await.unwrap();
    let is_asked = |account: &BudgetAccount| account.reserved.tokens.is_some_and(|tokens| tokens > 0);
    let subagent = loop {
        tokio::time::sleep(COMMIT).await;
        if let Some(row) = subagent(&runtime, accepted).await
            && is_asked(&account(&store, row.id).await)
        {
            break row;
        }
    };
    while runtime.row(accepted.run).await.unwrap().state != RunState::Ended {
        inject_if_alive(&runtime, ActorKind::Session(accepted.session), ActorFault::Kill).await;
        tokio::time::sleep(COMMIT / 3).await;
    }
    let result = runtime.wait(accepted.run, Some(LONG)).await.unwrap();
    assert!(matches!(result.ended.cause, Some(OutcomeCause::CrashLoop { .. })), "{}", result.ended);
    let stopped = runtime.wait(subagent.id, Some(LONG)).await.unwrap();
    assert_eq!(stopped.ended.outcome, Outcome::Stopped, "{}", stopped.ended);
    tokio::time::sleep(LONG).await;
    let [all, own] = [account(&store, accepted.run).await, account(&store, subagent.id).await];
    let nothing = |amounts: &Amounts| {
        [amounts.tokens, amounts.iterations, amounts.tool_calls, amounts.children]
            .into_iter()
            .flatten()
            .all(|amount| amount == 0)
    };
    assert!(nothing(&all.reserved) && nothing(&own.reserved), "{all:?} {own:?}");
    // 15 tokens for the one answered call of the run.
    assert_eq!(all.spent.tokens, own.spent.tokens.map(|tokens| tokens + 15));
    assert_eq!((all.spent.children.unwrap_or(0), all.spent.tool_calls), (0, Some(1)));
}
