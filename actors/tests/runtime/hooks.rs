//! Hooks in Rust, through the whole runtime: where they are asked, about which calls, and what becomes of the calls.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use hermod_actors::{
    HookTally, RunRequest, Runtime, RuntimeDependencies, message_tool,
    model::{Body, CallEnded, CallStatus, EffectClass, HookAnswer, HookPoint, HookVerdict, Outcome},
    port::{DecisionHooks, HookQuestion, HookSubject, Tool},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, ScriptedTool, calls, says, world};
use serde_json::json;

type Decide = dyn Fn(&HookQuestion) -> HookVerdict + Send + Sync;

/// One hook at all points, which notes what it is asked.
struct OneHook {
    decide: Box<Decide>,
    asked: Mutex<Vec<(HookPoint, String)>>,
}

impl fmt::Debug for OneHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneHook").finish_non_exhaustive()
    }
}

impl DecisionHooks for OneHook {
    fn is_asked(&self, _: HookPoint, _: Option<&str>) -> bool {
        true
    }

    fn ask(&self, question: HookQuestion) -> BoxFuture<'static, HookAnswer> {
        let subject = if question.point == HookPoint::BeforeRun { "run" } else { "model" };
        let tool = question.subject.tool().map_or(subject, |tool| tool).to_owned();
        self.asked.lock().unwrap().push((question.point, tool));
        let mut tally = HookTally::new(question.point);
        tally.take(&"one".into(), Ok((self.decide)(&question)));
        Box::pin(std::future::ready(tally.into_answer()))
    }
}

/// Runs an answer with a call of `message` and one of `read`, with this hook.
async fn run(
    decide: impl Fn(&HookQuestion) -> HookVerdict + Send + Sync + 'static,
) -> (Outcome, Vec<CallEnded>, Arc<OneHook>) {
    let provider = ScriptedProvider::new(Duration::ZERO, |view| {
        let is_called = view.iter().any(|message| message["role"] == "tool");
        Ok(if is_called {
            says("done")
        } else {
            calls(&[("message", json!({"target": "a", "text": "x"})), ("read", json!({}))])
        })
    });
    let message = message_tool(["a", "b"].map(|target| (target.to_owned(), String::new())).to_vec());
    let read: Arc<dyn Tool> = Arc::new(ScriptedTool::fixed("read", EffectClass::Once, "read"));
    let hooks = Arc::new(OneHook { decide: Box::new(decide), asked: Mutex::default() });
    let world = world(Arc::new(MemoryJournal::new()), provider, vec![message, read]);
    let world = RuntimeDependencies { hooks: Arc::<OneHook>::clone(&hooks), ..world };
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    let result = runtime.run(RunRequest::new("go")).await.expect("it ends");
    let records = runtime.journal(result.session, 1).await.expect("a journal");
    let ended = records.iter().filter_map(|(_, record)| {
        if let Body::CallEnded(ended) = &record.body { Some(ended.clone()) } else { None }
    });
    (result.ended.outcome, ended.collect(), hooks)
}

#[tokio::test(start_paused = true)]
async fn each_point_is_asked_once() {
    let (outcome, ended, hooks) = run(|_| HookVerdict::Allow).await;
    assert_eq!(outcome, Outcome::Completed);
    assert!(ended.iter().all(|ended| ended.end.status == CallStatus::Ok));
    // The session answers `message` itself: nothing is asked about its result.
    assert_eq!(ended.iter().map(|ended| ended.end.hooks.len()).collect::<Vec<_>>(), [0, 2]);
    let mut asked = hooks.asked.lock().unwrap().clone();
    asked.sort();
    let point = |point, tool: &str| (point, tool.to_owned());
    let mut expect = vec![
        point(HookPoint::BeforeRun, "run"),
        point(HookPoint::BeforeModelCall, "model"),
        point(HookPoint::BeforeModelCall, "model"),
        point(HookPoint::MessageSending, "message"),
        point(HookPoint::PreToolCall, "message"),
        point(HookPoint::PreToolCall, "read"),
        point(HookPoint::PostToolCall, "read"),
        point(HookPoint::ToolResultPersist, "read"),
    ];
    expect.sort();
    assert_eq!(asked, expect);
}

#[tokio::test(start_paused = true)]
async fn a_refused_message_is_not_sent_and_the_other_call_runs() {
    let decide = |question: &HookQuestion| match question.point {
        HookPoint::PreToolCall if question.subject.tool().is_some_and(|tool| **tool == *"message") => {
            HookVerdict::Replace(json!({"target": "b", "text": "x"}))
        }
        HookPoint::MessageSending => {
            let HookSubject::Call { arguments, .. } = &question.subject else { panic!("no call") };
            assert_eq!(*arguments, json!({"target": "b", "text": "x"}), "an earlier hook has replaced them");
            HookVerdict::Refuse("not to b".into())
        }
        HookPoint::BeforeRun
        | HookPoint::PreToolCall
        | HookPoint::PostToolCall
        | HookPoint::ToolResultPersist
        | HookPoint::BeforeModelCall => HookVerdict::Allow,
    };
    let (outcome, ended, _) = run(decide).await;
    assert_eq!(outcome, Outcome::Completed);
    let refused = ended.iter().find(|ended| ended.call.n == 1).expect("it has ended");
    assert_eq!(
        (refused.attempt, refused.end.status, refused.end.hooks.len()),
        (0, CallStatus::NotStarted, 2)
    );
    assert!(refused.end.content.contains("the hook `one` refuses this: not to b"), "{}", refused.end.content);
    let other = ended.iter().find(|ended| ended.call.n == 2).expect("it has ended");
    assert_eq!((&*other.end.content, other.end.status), ("read", CallStatus::Ok));
}

#[tokio::test(start_paused = true)]
async fn a_refused_model_call_ends_the_run_and_reaches_no_model() {
    let decide = |question: &HookQuestion| {
        let is_model_call = question.point == HookPoint::BeforeModelCall;
        if is_model_call { HookVerdict::Refuse("no models today".into()) } else { HookVerdict::Allow }
    };
    let (outcome, ended, hooks) = run(decide).await;
    assert_eq!((outcome, ended.len()), (Outcome::Refused, 0));
    assert_eq!(hooks.asked.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_refused_run_never_begins() {
    let decide = |question: &HookQuestion| {
        let is_run = question.point == HookPoint::BeforeRun;
        if is_run { HookVerdict::Refuse("not today".into()) } else { HookVerdict::Allow }
    };
    let (outcome, ended, hooks) = run(decide).await;
    assert_eq!((outcome, ended.len()), (Outcome::Refused, 0));
    assert_eq!(*hooks.asked.lock().unwrap(), [(HookPoint::BeforeRun, "run".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_panics_before_a_run_refuses_it() {
    let decide = |question: &HookQuestion| -> HookVerdict {
        assert_ne!(question.point, HookPoint::BeforeRun, "the hook has a bug");
        HookVerdict::Allow
    };
    let (outcome, ended, _) = run(decide).await;
    assert_eq!((outcome, ended.len()), (Outcome::Refused, 0));
}
