//! Tests of lanes: how many runs are under way at once, which of them give their place to others, and what a limit does to
//! runs that wait. On virtual time.

use std::{sync::Arc, time::Duration};

use hermod_actors::{
    AcceptedRun, RunRequest, Runtime, SessionChoice,
    model::{Delegation, Lane, LaneLimits, Outcome, RunState, StopReason},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, calls, says, world};
use serde_json::json;

/// How long a model takes for an answer.
const ANSWER: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_mins(10);

const fn limits(main: Option<u32>, subagent: Option<u32>) -> LaneLimits {
    LaneLimits { main, subagent, cron: None }
}

/// A runtime with these limits. Its model answers at once, or delegates a task that says `delegate` first.
async fn start(store: &MemoryJournal, limits: LaneLimits) -> Runtime {
    let provider = ScriptedProvider::new(ANSWER, |view| {
        let delegates = view[1]["text"].as_str().is_some_and(|text| text.starts_with("delegate"));
        match view.iter().any(|message| message["role"] == "tool") {
            false if delegates => {
                Ok(calls(&[("delegate_task", json!({"tasks": [{"goal": "a"}, {"goal": "b"}]}))]))
            }
            _ => Ok(says("done")),
        }
    });
    let mut world = world(Arc::new(store.clone()), provider, Vec::new());
    world.defaults.spec.tools = vec!["delegate_task".into()];
    world.defaults.spec.delegation = Some(Delegation {
        depth: 0,
        max_depth: 1,
        max_children: 3,
        iterations: 5,
        shares_iterations: false,
        progress_ms: None,
    });
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    runtime.set_lane_limits(limits);
    runtime
}

async fn submit(runtime: &Runtime, text: &str) -> AcceptedRun {
    let accepted = runtime.submit(RunRequest::new(text)).await.expect("it is accepted");
    // Runs of one millisecond have no order.
    tokio::time::sleep(Duration::from_millis(1)).await;
    accepted
}

/// The number of runs in this state.
async fn count(runtime: &Runtime, state: RunState) -> usize {
    let runs = runtime.list(None, 100).await.expect("a list");
    runs.iter().filter(|row| row.state == state).count()
}

#[tokio::test(start_paused = true)]
async fn no_more_runs_are_under_way_than_the_lane_allows() {
    let runtime = start(&MemoryJournal::new(), limits(Some(2), None)).await;
    let mut accepted = Vec::new();
    for n in 0..6 {
        accepted.push(submit(&runtime, &format!("task {n}")).await);
    }
    for done in [0, 2, 4] {
        tokio::time::sleep(ANSWER / 2).await;
        assert_eq!(runtime.lane_counts(Lane::Main), (2, 4 - done));
        assert_eq!(count(&runtime, RunState::Running).await, 2);
        assert_eq!(count(&runtime, RunState::Ended).await, done);
        tokio::time::sleep(ANSWER / 2 + Duration::from_millis(100)).await;
    }
    let mut begun = Vec::new();
    for run in &accepted {
        let row = runtime.wait(run.run, Some(LONG)).await.expect("it ends");
        assert_eq!(row.ended.outcome, Outcome::Completed);
        begun.push(runtime.row(run.run).await.expect("a row").started_at);
    }
    assert!(begun.is_sorted(), "in the order of acceptance: {begun:?}");
    assert_eq!(runtime.lane_counts(Lane::Main), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_parent_gives_its_place_to_others_while_it_waits_for_subagents() {
    let runtime = start(&MemoryJournal::new(), limits(Some(1), Some(1))).await;
    let parent = submit(&runtime, "delegate").await;
    let other = submit(&runtime, "other").await;
    tokio::time::sleep(ANSWER + ANSWER / 2).await;
    // The parent waits for its two subagents, of which one is under way; so the other run has begun.
    assert_eq!(runtime.lane_counts(Lane::Main), (1, 0));
    assert_eq!(runtime.lane_counts(Lane::Subagent), (1, 1));
    let begun = runtime.row(other.run).await.expect("a row").started_at;
    assert!(begun.is_some());
    for run in [other, parent] {
        let result = runtime.wait(run.run, Some(LONG)).await.expect("it ends");
        assert_eq!(result.ended.outcome, Outcome::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_begins_when_the_limit_allows_it_and_can_be_stopped() {
    let runtime = start(&MemoryJournal::new(), limits(Some(0), None)).await;
    let runs = [submit(&runtime, "a").await, submit(&runtime, "b").await, submit(&runtime, "c").await];
    tokio::time::sleep(LONG).await;
    assert_eq!(runtime.lane_counts(Lane::Main), (0, 3));
    runtime.stop(runs[0].run, StopReason::Command).await.expect("it is stopped");
    assert_eq!(runtime.lane_counts(Lane::Main), (0, 2));
    runtime.set_lane_limits(limits(Some(1), None));
    tokio::time::sleep(ANSWER / 2).await;
    assert_eq!(runtime.lane_counts(Lane::Main), (1, 1));
    runtime.set_lane_limits(LaneLimits::default());
    for (run, outcome) in runs.into_iter().zip([Outcome::Stopped, Outcome::Completed, Outcome::Completed]) {
        let result = runtime.wait(run.run, Some(LONG)).await.expect("it ends");
        assert_eq!(result.ended.outcome, outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_runs_that_have_begun_go_on_and_the_others_wait_again() {
    let store = MemoryJournal::new();
    let runtime = start(&store, limits(Some(1), None)).await;
    let runs = [submit(&runtime, "a").await, submit(&runtime, "b").await, submit(&runtime, "c").await];
    tokio::time::sleep(ANSWER / 2).await;
    runtime.suspend().await;
    let runtime = start(&store.reopened(), limits(Some(1), None)).await;
    let left = runtime.open_runs().await.expect("a list");
    runtime.keep_lane_places(&left);
    for run in runs.iter().rev() {
        runtime.revive(run.session).expect("it is revived");
    }
    tokio::time::sleep(ANSWER / 2).await;
    assert_eq!(runtime.lane_counts(Lane::Main), (1, 2));
    let mut ended = Vec::new();
    for run in &runs {
        let result = runtime.wait(run.run, Some(LONG)).await.expect("it ends");
        assert_eq!(result.ended.outcome, Outcome::Completed);
        ended.push(runtime.row(run.run).await.expect("a row").ended_at);
    }
    assert!(ended.is_sorted(), "in the order of acceptance: {ended:?}");
}

#[tokio::test(start_paused = true)]
async fn the_place_of_a_run_that_is_not_revived_is_kept_for_a_minute_only() {
    let store = MemoryJournal::new();
    let runtime = start(&store, limits(Some(1), None)).await;
    let left = submit(&runtime, "a").await;
    tokio::time::sleep(ANSWER / 2).await;
    runtime.suspend().await;
    let runtime = start(&store.reopened(), limits(Some(1), None)).await;
    let rows = runtime.open_runs().await.expect("a list");
    runtime.keep_lane_places(&rows);
    assert_eq!(runtime.lane_counts(Lane::Main), (1, 0), "{rows:?}");
    submit(&runtime, "b").await;
    tokio::time::sleep(Duration::from_secs(59)).await;
    let row = runtime.row(left.run).await.expect("a row");
    assert_eq!(runtime.lane_counts(Lane::Main), (1, 1), "{row:?}");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(runtime.lane_counts(Lane::Main), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_session_with_many_runs_takes_turns_with_others() {
    let runtime = start(&MemoryJournal::new(), limits(Some(1), None)).await;
    let of = |key: &str| RunRequest { session: SessionChoice::Key(key.into()), ..RunRequest::new("task") };
    let mut runs = Vec::new();
    for key in ["many", "many", "other", "many"] {
        runs.push(runtime.submit(of(key)).await.expect("it is accepted").run);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut ended = Vec::new();
    for run in runs {
        runtime.wait(run, Some(LONG)).await.expect("it ends");
        ended.push(runtime.row(run).await.expect("a row").ended_at);
    }
    // The second run of `many` asks for a place when the first has ended. It was accepted before the run of `other`, but
    // that waits already.
    assert!(ended[2] < ended[1] && ended[1] < ended[3], "{ended:?}");
}
