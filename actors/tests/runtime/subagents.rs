//! Subagents, through the whole runtime on virtual time.

use std::{sync::Arc, time::Duration};

use hermod_actors::{
    RunRequest, RunResult, Runtime,
    model::{
        Amounts, BudgetAccount, Delegation, Dimension, EffectClass, ModelAnswer, Outcome, RunRow, RunSpec,
        StopReason,
    },
    port::{Journal, Tool},
};
use hermod_testkit::{
    FaultyJournal, JournalFault, MemoryJournal, ScriptedProvider, ScriptedTool, calls, says, world,
};
use serde_json::{Value, json};

const STEP: Duration = Duration::from_secs(1);

/// The last user's text and, if there is one after it, the last tool result.
fn last(view: &[Value]) -> (String, Option<String>) {
    let at = view.iter().rposition(|message| message["role"] == "user").unwrap_or(0);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let result = view[at..].iter().rev().find(|message| message["role"] == "tool");
    (text(&view[at]["text"]), result.map(|result| text(&result["content"])))
}

/// A model that delegates the rest of a text that begins with `give `, and answers with what it hears of the subagent.
/// It fails for `fail`, and answers any other text with that text.
fn model() -> ScriptedProvider {
    ScriptedProvider::new(STEP, |view| {
        let (text, result) = last(view);
        if text.starts_with("toil") {
            return Ok(toil(&text, view));
        }
        match (text.split_once(' '), result) {
            (Some(("give", arguments)), None) => {
                let arguments =
                    serde_json::from_str(arguments).unwrap_or_else(|_| json!({"goal": arguments}));
                Ok(calls(&[("delegate_task", arguments)]))
            }
            (_, Some(result)) => Ok(says(&format!("heard {result}"))),
            (Some(("work", _)), None) => Ok(calls(&[("work", json!({}))])),
            _ if text == "fail" => Ok(says("")),
            (_, None) => Ok(says(&format!("did {text}"))),
        }
    })
}

/// An answer that calls a tool without end: `aloud` with a text, and `obeying` not if calls are forbidden.
fn toil(text: &str, view: &[Value]) -> ModelAnswer {
    if text.ends_with("obeying") && view[0]["tool_choice"] == "none" {
        return says("what there is");
    }
    let mut answer = calls(&[("work", json!({}))]);
    if text.ends_with("aloud") {
        answer.message.text = if view[0]["tool_choice"] == "none" { " " } else { "still at it" }.into();
    }
    answer
}

fn tools() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(ScriptedTool::fixed("work", EffectClass::Pure, "worked"))]
}

async fn start(journal: &MemoryJournal) -> Runtime {
    start_on(Arc::new(journal.clone())).await
}

async fn start_on(journal: Arc<dyn Journal>) -> Runtime {
    let mut world = world(journal, model(), tools());
    let spec: &mut RunSpec = &mut world.defaults.spec;
    spec.tools.insert(0, "delegate_task".into());
    spec.loop_guard = false;
    spec.limits.budget = Amounts { children: Some(8), tokens: Some(1_000_000), ..Amounts::default() };
    spec.delegation = Some(Delegation {
        depth: 0,
        max_depth: 2,
        max_children: 3,
        iterations: 5,
        shares_iterations: false,
        progress_ms: None,
    });
    Runtime::start(world).await.expect("the runtime starts")
}

async fn run(text: &str) -> (Runtime, MemoryJournal, RunResult) {
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    let result = tokio::time::timeout(Duration::from_hours(1), runtime.run(RunRequest::new(text)));
    let result = result.await.expect("it ends").expect("it is accepted");
    (runtime, journal, result)
}

async fn account(journal: &MemoryJournal, row: &RunRow) -> BudgetAccount {
    journal.rows().account(row.account).await.expect("it is read").expect("the run has an account")
}

/// The JSON behind `heard ` in the answer.
fn heard(result: &RunResult) -> Value {
    assert_eq!(result.ended.outcome, Outcome::Completed, "{:?}", result.ended);
    let text = result.text().unwrap_or_default();
    serde_json::from_str(text.strip_prefix("heard ").expect(text)).expect(text)
}

#[tokio::test(start_paused = true)]
async fn a_task_is_done_by_a_subagent() {
    let (runtime, journal, result) = run("give count").await;
    let told = heard(&result);
    assert_eq!((&told["outcome"], &told["answer"]), (&json!("completed"), &json!("did count")));
    let rows = runtime.list(None, 10).await.unwrap();
    let [parent, child] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(told["trace"]["run"], child.id.to_string());
    assert_eq!(child.parent.map(|parent| parent.call.run), Some(parent.id));
    let (above, below) = (account(&journal, parent).await, account(&journal, child).await);
    for (dimension, account) in Dimension::ALL.into_iter().zip([above, below].into_iter().cycle()) {
        assert_eq!(account.reserved.get(dimension).unwrap_or(0), 0, "{dimension:?}");
    }
    assert!(above.spent.tokens > below.spent.tokens, "{above:?} {below:?}");
    assert_eq!((above.spent.iterations, below.spent.iterations), (Some(2), Some(1)));
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_told_as_one_with_what_failed_in_it() {
    let tasks = json!({"tasks": [{"goal": "one"}, {"goal": "fail"}, {"goal": "give deeper"}]});
    let (_, _, result) = run(&format!("give {tasks}")).await;
    let told = heard(&result);
    let of = |n: usize, what: &str| told["results"][n][what].clone();
    assert_eq!((of(0, "outcome"), of(0, "answer")), (json!("completed"), json!("did one")));
    assert_eq!(of(1, "outcome"), json!("failed"));
    assert!(of(1, "reason").as_str().unwrap_or_default().starts_with("empty_answer"), "{told}");
    assert!(of(2, "answer").as_str().unwrap_or_default().contains("did deeper"), "{told}");
}

/// What the parent reads of a subagent that exhausts its iterations.
async fn exhausted(task: &str) -> Value {
    let (_, _, result) = run(&format!("give {task}")).await;
    let told = heard(&result);
    assert_eq!(told["outcome"], "budget_exhausted", "{told}");
    told
}

#[tokio::test(start_paused = true)]
async fn a_subagent_without_budget_is_asked_for_a_text_and_can_call_nothing() {
    let told = exhausted("toil obeying").await;
    assert_eq!((&told["answer"], &told["note"]), (&json!("what there is"), &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn what_a_subagent_said_last_stands_for_an_empty_last_answer() {
    let told = exhausted("toil aloud").await;
    assert_eq!((&told["answer"], &told["answer_source"]), (&json!("still at it"), &json!("partial")));
}

#[tokio::test(start_paused = true)]
async fn a_subagent_that_has_written_nothing_is_not_told_as_an_empty_answer() {
    let told = exhausted("toil").await;
    assert_eq!((&told["answer"], told.get("answer_source")), (&Value::Null, None));
    assert!(told["note"].as_str().unwrap_or_default().contains("had written any text"), "{told}");
    assert!(told["reason"].as_str().unwrap_or_default().contains("iterations limit of 5"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn what_works_in_the_background_is_heard_before_the_end() {
    let order = json!({"goal": "work hard", "background": true});
    let (runtime, _, result) = run(&format!("give {order}")).await;
    assert_eq!(result.ended.outcome, Outcome::Completed);
    let text = result.text().unwrap();
    assert!(text.contains("a subagent in the background has ended"), "{text}");
    assert!(text.contains("heard worked"), "{text}");
    assert!(runtime.open_runs().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_is_too_deep_does_it_alone() {
    let (_, _, result) = run("give give give deepest").await;
    let text = result.text().unwrap();
    assert!(text.contains("there is no tool `delegate_task`"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_is_stopped_stops_what_is_below() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal).await;
    let accepted = runtime.submit(RunRequest::new("give give slow")).await.unwrap();
    tokio::time::sleep(STEP * 5 / 2).await;
    assert_eq!(runtime.open_runs().await.unwrap().len(), 3);
    runtime.stop(accepted.run, StopReason::Command).await.unwrap();
    let result = runtime.wait(accepted.run, Some(STEP)).await.unwrap();
    assert_eq!(result.ended.outcome, Outcome::Stopped);
    let rows = runtime.list(None, 10).await.unwrap();
    let outcomes: Vec<_> = rows.iter().map(|row| row.ended.as_ref().map(|ended| ended.outcome)).collect();
    assert_eq!(outcomes, [Some(Outcome::Stopped); 3]);
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_was_being_stopped_ends_at_rest_with_what_is_below() {
    let behind = json!({"goal": "work hard", "background": true});
    for task in ["give slow", "give give slow", &format!("give {behind}")] {
        let journal = MemoryJournal::new();
        let slow = FaultyJournal::new(Arc::new(journal.clone()), JournalFault::Slow(STEP), 1);
        let dead = start_on(Arc::new(slow)).await;
        let run = dead.submit(RunRequest::new(task)).await.unwrap().run;
        while dead.open_runs().await.unwrap().len() < 2 {
            tokio::time::sleep(STEP / 4).await;
        }
        dead.stop(run, StopReason::Command).await.unwrap();
        // The process ends before the subagent gets the stop.
        let journal = journal.reopened();
        let runtime = start(&journal).await;
        assert_eq!(runtime.open_runs().await.unwrap().len(), 2, "{task}");
        let stopped = runtime.stop_without_resume(run, StopReason::Command);
        tokio::time::timeout(STEP * 60, stopped).await.expect(task).unwrap();
        assert!(runtime.open_runs().await.unwrap().is_empty(), "{task}");
        let outcome = runtime.row(run).await.unwrap().ended.map(|ended| ended.outcome);
        assert_eq!(outcome, Some(Outcome::Stopped), "{task}");
        assert!(journal.inboxes().is_empty(), "{task}");
    }
}

#[tokio::test(start_paused = true)]
async fn parent_and_child_meet_again_after_a_crash() {
    for ms in (500..8_000).step_by(500) {
        let journal = MemoryJournal::new();
        let runtime = start(&journal).await;
        let accepted = runtime.submit(RunRequest::new("give give count")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(ms)).await;
        runtime.suspend().await;
        let journal = journal.reopened();
        let runtime = start(&journal).await;
        runtime.revive_all().await.unwrap();
        let result = runtime.wait(accepted.run, Some(Duration::from_hours(1))).await.unwrap();
        let told = heard(&result);
        assert!(told["answer"].as_str().unwrap_or_default().contains("did count"), "{ms}: {told}");
        assert_eq!(runtime.list(None, 10).await.unwrap().len(), 3, "{ms}");
    }
}
