//! Runs from submission to outcome, on virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hermod_actors::{
    RunError, RunRequest, Runtime, SessionChoice,
    model::{
        Access, Amounts, Body, CallEnd, EffectClass, EventBody, Failure, FailureClass, Limits, Outcome,
        StopReason,
    },
    port::{Journal, Tool},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, ScriptedTool, calls, says, world};
use serde_json::{Value, json};

const NO_TIME: Duration = Duration::ZERO;

/// A model that calls `tool` `times` times, then answers with the number of its results.
fn loops(tool: &'static str, times: usize) -> ScriptedProvider {
    ScriptedProvider::new(Duration::from_millis(100), move |view| {
        match view.iter().filter(|message| message["role"] == "tool").count() {
            seen if seen < times => Ok(calls(&[(tool, json!({"n": seen}))])),
            seen => Ok(says(&format!("{seen} results"))),
        }
    })
}

fn reader() -> Arc<dyn Tool> {
    Arc::new(ScriptedTool::fixed("read", EffectClass::Pure, "content"))
}

async fn start(journal: &MemoryJournal, provider: ScriptedProvider, tools: Vec<Arc<dyn Tool>>) -> Runtime {
    let journal: Arc<dyn Journal> = Arc::new(journal.clone());
    Runtime::start(world(journal, provider, tools)).await.expect("the runtime starts")
}

#[tokio::test(start_paused = true)]
async fn a_task_goes_through_tools_to_its_answer() {
    let runtime = start(&MemoryJournal::new(), loops("read", 3), vec![reader()]).await;
    let result = runtime.run(RunRequest::new("count")).await.unwrap();
    assert_eq!(result.ended.outcome, Outcome::Completed);
    assert_eq!(result.text(), Some("3 results"));
    assert_eq!(result.iterations, 4);
    assert_eq!(result.usage.input_tokens, 40);
    let kinds: Vec<_> = runtime
        .journal(result.session, 1)
        .await
        .unwrap()
        .iter()
        .map(|(_, record)| record.body.kind().name())
        .collect();
    assert_eq!(kinds[..4], ["session.opened", "run.accepted", "model.started", "model.answered"]);
    assert_eq!(kinds[4..7], ["call.admitted", "call.started", "call.ended"]);
    assert_eq!(kinds[kinds.len() - 2..], ["model.answered", "run.ended"]);
}

/// Checks how long four calls of one answer take together; each takes a second.
async fn check_time(access: Access, seconds: u64) {
    let tool = ScriptedTool::new("work", EffectClass::Idempotent, |invocation| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        CallEnd::ok(invocation.call.n.to_string())
    });
    let provider = ScriptedProvider::new(NO_TIME, |view| {
        let results = view.iter().filter(|message| message["role"] == "tool");
        let seen: Vec<_> = results.filter_map(|result| result["content"].as_str()).collect();
        let ask: Vec<_> = (1..5).map(|n| ("work", json!({"n": n}))).collect();
        Ok(if seen.is_empty() { calls(&ask) } else { says(&seen.join(" ")) })
    });
    let runtime = start(&MemoryJournal::new(), provider, vec![Arc::new(tool.with_access(access))]).await;
    let began = tokio::time::Instant::now();
    let answer = runtime.chat("work").await.expect("it completes");
    assert_eq!((answer.as_str(), began.elapsed()), ("1 2 3 4", Duration::from_secs(seconds)));
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_answer_run_together_unless_they_conflict() {
    check_time(Access::Anything, 1).await;
    check_time(Access::reads("/w/a"), 1).await;
    check_time(Access::writes("/w/a"), 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_run_of_a_session_sees_the_first() {
    let provider = ScriptedProvider::new(NO_TIME, |view| Ok(says(&format!("{} messages", view.len()))));
    let runtime = start(&MemoryJournal::new(), provider, vec![]).await;
    let request =
        |text: &str| RunRequest { session: SessionChoice::Key("k".into()), ..RunRequest::new(text) };
    assert_eq!(runtime.run(request("a")).await.unwrap().text(), Some("2 messages"));
    assert_eq!(runtime.run(request("b")).await.unwrap().text(), Some("4 messages"));
    assert!(matches!(runtime.chat(" ").await, Err(RunError::Invalid { field: "input", .. })));
}

#[tokio::test(start_paused = true)]
async fn runs_of_one_session_queue_up() {
    let runtime = start(&MemoryJournal::new(), loops("read", 1), vec![reader()]).await;
    let request =
        |text: &str| RunRequest { session: SessionChoice::Key("k".into()), ..RunRequest::new(text) };
    let (a, b) = tokio::join!(runtime.run(request("a")), runtime.run(request("b")));
    assert_eq!(a.unwrap().session, b.as_ref().unwrap().session);
    assert_eq!(b.unwrap().ended.outcome, Outcome::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_submission_gets_the_first_run() {
    let journal = MemoryJournal::new();
    let runtime = start(&journal, loops("read", 1), vec![reader()]).await;
    let request = RunRequest { idempotency_key: Some("once".into()), ..RunRequest::new("a") };
    let (first, again) = tokio::join!(runtime.submit(request.clone()), runtime.submit(request.clone()));
    assert_eq!(first.as_ref().unwrap().run, again.unwrap().run);
    runtime.suspend().await;
    let runtime = start(&journal.reopened(), loops("read", 1), vec![reader()]).await;
    assert_eq!(runtime.submit(request).await.unwrap().run, first.unwrap().run);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_what_runs() {
    let endless: Arc<dyn Tool> = Arc::new(ScriptedTool::endless("wait", EffectClass::Once));
    let runtime = start(&MemoryJournal::new(), loops("wait", 1), vec![endless]).await;
    let accepted = runtime.submit(RunRequest::new("a")).await.unwrap();
    let mut watch = runtime.watch(accepted.session, 1);
    loop {
        let event = watch.next().await.unwrap();
        if let EventBody::Recorded { record, .. } = &event.body
            && matches!(record.body, Body::CallStarted(_))
        {
            break;
        }
    }
    runtime.stop(accepted.run, StopReason::Command).await.unwrap();
    let result = runtime.wait(accepted.run, None).await.unwrap();
    assert_eq!(result.ended.outcome, Outcome::Stopped);
    assert_eq!(result.ended.to_string(), "stopped (by command)");
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_the_middle_of_a_model_call_does_not_wait_for_it() {
    let provider = ScriptedProvider::new(Duration::from_hours(1), |_| Ok(says("late")));
    let runtime = start(&MemoryJournal::new(), provider, vec![]).await;
    let accepted = runtime.submit(RunRequest::new("a")).await.unwrap();
    let begin = tokio::time::Instant::now();
    runtime.stop(accepted.run, StopReason::Signal).await.unwrap();
    let result = runtime.wait(accepted.run, None).await.unwrap();
    assert_eq!(result.ended.outcome, Outcome::Stopped);
    assert!(begin.elapsed() < Duration::from_millis(50), "took {:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_again_and_then_told() {
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let provider = ScriptedProvider::new(NO_TIME, move |_| match counted.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => Err(Failure::new(FailureClass::Overloaded, "busy")),
        _ => Ok(says("at last")),
    });
    let runtime = start(&MemoryJournal::new(), provider, vec![]).await;
    assert_eq!(runtime.chat("a").await.unwrap(), "at last");
    assert_eq!(tries.load(Ordering::SeqCst), 3);

    let provider = ScriptedProvider::new(NO_TIME, |_| Err(Failure::new(FailureClass::Auth, "no such key")));
    let runtime = start(&MemoryJournal::new(), provider, vec![]).await;
    let error = runtime.chat("a").await.unwrap_err();
    assert_eq!(error.to_string(), "failed (provider: auth: no such key)");
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_tool_or_a_model_is_a_lost_attempt() {
    let provider = ScriptedProvider::new(NO_TIME, |view| match view.last().map(|last| &last["role"]) {
        Some(role) if role == "tool" => {
            Ok(says(view.last().and_then(|last| last["content"].as_str()).unwrap_or("")))
        }
        _ => Ok(calls(&[("bad", json!({}))])),
    });
    let bad = ScriptedTool::new("bad", EffectClass::Once, |_| async { panic!("in a tool") });
    let runtime = start(&MemoryJournal::new(), provider, vec![Arc::new(bad)]).await;
    let text = runtime.chat("a").await.unwrap();
    assert!(text.contains("its effect is unknown"), "{text}");

    let provider = ScriptedProvider::new(NO_TIME, |_| panic!("in a model"));
    let runtime = start(&MemoryJournal::new(), provider, vec![]).await;
    let error = runtime.chat("a").await.unwrap_err();
    assert!(error.to_string().starts_with("failed (provider: lost"), "{error}");
}

fn limited(runtime: &Runtime, limits: Limits) -> RunRequest {
    let mut spec = runtime.defaults().spec.clone();
    spec.limits = limits;
    RunRequest { spec: Some(spec), ..RunRequest::new("a") }
}

#[tokio::test(start_paused = true)]
async fn a_limit_is_kept_before_the_spend() {
    let runtime = start(&MemoryJournal::new(), loops("read", 100), vec![reader()]).await;
    let budget = Amounts { iterations: Some(3), ..Amounts::default() };
    let result =
        runtime.run(limited(&runtime, Limits { budget, max_tokens: 10, ..Limits::default() })).await.unwrap();
    assert_eq!(result.ended.outcome, Outcome::BudgetExhausted);
    assert_eq!(result.iterations, 3);

    let budget = Amounts { tool_calls: Some(2), ..Amounts::default() };
    let result =
        runtime.run(limited(&runtime, Limits { budget, max_tokens: 10, ..Limits::default() })).await.unwrap();
    assert_eq!(result.ended.outcome, Outcome::BudgetExhausted);
    let journal = runtime.journal(result.session, 1).await.unwrap();
    let started = journal.iter().filter(|(_, record)| matches!(record.body, Body::CallStarted(_))).count();
    assert_eq!(started, 2);
}

#[tokio::test(start_paused = true)]
async fn time_limits_end_a_run() {
    let runtime = start(&MemoryJournal::new(), loops("read", 100), vec![reader()]).await;
    let begin = tokio::time::Instant::now();
    let limits = Limits { timeout_ms: Some(1_050), max_tokens: 10, ..Limits::default() };
    let result = runtime.run(limited(&runtime, limits)).await.unwrap();
    assert_eq!(result.ended.outcome, Outcome::TimedOut);
    assert_eq!(begin.elapsed().as_millis() / 100, 10);
    let limits = Limits { wall_ms: Some(250), max_tokens: 10, ..Limits::default() };
    assert_eq!(runtime.run(limited(&runtime, limits)).await.unwrap().ended.outcome, Outcome::BudgetExhausted);
}

#[tokio::test(start_paused = true)]
async fn an_unfinished_run_goes_on_in_the_next_process() {
    let journal = MemoryJournal::new();
    let done = Arc::new(AtomicUsize::new(0));
    let tool = |done: &Arc<AtomicUsize>, then: fn() -> CallEnd| -> Arc<dyn Tool> {
        let done = Arc::clone(done);
        Arc::new(ScriptedTool::new("do", EffectClass::Once, move |_| {
            done.fetch_add(1, Ordering::SeqCst);
            async move {
                tokio::time::sleep(Duration::from_mins(1)).await;
                then()
            }
        }))
    };
    let script = |view: &[Value]| match view.last() {
        Some(last) if last["role"] == "tool" => Ok(says(last["content"].as_str().unwrap_or("nothing"))),
        _ => Ok(calls(&[("do", json!({}))])),
    };
    let runtime =
        start(&journal, ScriptedProvider::new(NO_TIME, script), vec![tool(&done, || CallEnd::ok("x"))]).await;
    let accepted = runtime.submit(RunRequest::new("a")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(done.load(Ordering::SeqCst), 1);
    runtime.suspend().await;

    let journal = journal.reopened();
    let runtime =
        start(&journal, ScriptedProvider::new(NO_TIME, script), vec![tool(&done, || CallEnd::ok("x"))]).await;
    assert_eq!(runtime.revive_all().await.unwrap(), 1);
    let result = runtime.wait(accepted.run, None).await.unwrap();
    assert_eq!(result.ended.outcome, Outcome::Completed);
    assert!(result.text().unwrap().contains("its effect is unknown"));
    assert_eq!(done.load(Ordering::SeqCst), 1, "a `once` call was repeated");
}

#[tokio::test(start_paused = true)]
async fn a_watcher_misses_no_record() {
    let runtime = start(&MemoryJournal::new(), loops("read", 200), vec![reader()]).await;
    let accepted = runtime.submit(RunRequest::new("a")).await.unwrap();
    let mut watch = runtime.watch(accepted.session, 1);
    let mut seen = Vec::new();
    // The watcher reads nothing until the run has ended: there are far more events than its buffer holds.
    runtime.wait(accepted.run, None).await.unwrap();
    loop {
        let event = watch.next().await.unwrap();
        if let EventBody::Recorded { record } = event.body {
            seen.push(event.seq);
            if matches!(record.body, Body::RunEnded(_)) {
                break;
            }
        }
    }
    assert!(seen.len() > 800);
    assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_budget_too_small_for_one_call_ends_the_run() {
    let runtime = start(&MemoryJournal::new(), loops("read", 1), vec![reader()]).await;
    let budget = Amounts { tokens: Some(5), ..Amounts::default() };
    let limits = Limits { budget, max_tokens: 1_000, ..Limits::default() };
    let result = runtime.run(limited(&runtime, limits)).await.unwrap();
    assert_eq!((result.ended.outcome, result.iterations), (Outcome::BudgetExhausted, 0));
}
