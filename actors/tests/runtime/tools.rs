//! The ToolExecutor in a whole runtime: permits by class and in turn, exchanges of the tools, and crashes.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hermod_actors::{
    AcceptedRun, RunError, RunRequest, Runtime, RuntimeDependencies, ToolClassStatus, ToolStatus,
    model::{Access, CallEnd, EffectClass, StopReason, ToolClass, ToolSpec},
    port::{BadArguments, PreparedCall, Tool},
};
use hermod_testkit::{
    ActorFault, ActorKind, MemoryJournal, ScriptedProvider, ScriptedTool, calls, inject, says, world,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

const CALL: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_hours(10);

/// A model that makes the calls that its task names, each `TOOL*COUNT` as one answer, then answers with the results.
fn model() -> ScriptedProvider {
    ScriptedProvider::new(Duration::ZERO, |view| {
        let task = view.iter().find(|message| message["role"] == "user").expect("a task");
        let answers = view.iter().filter(|message| message["calls"].is_array()).count();
        let Some(next) = task["text"].as_str().expect("a text").split(' ').nth(answers) else {
            let results = view.iter().filter(|message| message["role"] == "tool");
            let results: Vec<&str> = results.filter_map(|result| result["content"].as_str()).collect();
            return Ok(says(&results.join(",")));
        };
        let (name, count) = next.split_once('*').unwrap_or((next, "1"));
        let each = (0..count.parse().expect("a number")).map(|n: usize| (name, json!({"n": n})));
        Ok(calls(&each.collect::<Vec<_>>()))
    })
}

async fn start(tools: &[&Arc<ScriptedTool>], tool_calls: usize) -> Runtime {
    let tools = tools.iter().map(|tool| Arc::clone(tool) as Arc<dyn Tool>).collect();
    let world = world(Arc::new(MemoryJournal::new()), model(), tools);
    Runtime::start(RuntimeDependencies { tool_calls, ..world }).await.expect("it starts")
}

async fn submit(runtime: &Runtime, task: &str) -> AcceptedRun {
    runtime.submit(RunRequest::new(task)).await.expect("it is accepted")
}

async fn answer(runtime: &Runtime, accepted: AcceptedRun) -> String {
    let result = runtime.wait(accepted.run, Some(LONG)).await.expect("it ends");
    result.text().unwrap_or_default().to_owned()
}

/// A tool whose calls take `CALL`, and the most calls that ran at the same time.
fn slow(name: &str) -> (Arc<ScriptedTool>, Arc<AtomicUsize>) {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let tool = ScriptedTool::new(name, EffectClass::Pure, move |_| {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(CALL).await;
            running.fetch_sub(1, Ordering::SeqCst);
            CallEnd::ok("slow")
        }
    });
    (Arc::new(tool), seen)
}

async fn status(runtime: &Runtime) -> ToolStatus {
    runtime.tool_status().await.expect("it runs")
}

/// Waits until the executor's status meets the condition.
async fn until(runtime: &Runtime, is_so: impl Fn(&ToolStatus) -> bool) {
    let wait = async {
        while !runtime.tool_status().await.as_ref().is_some_and(&is_so) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LONG, wait).await.expect("the status becomes so");
}

/// Waits until this many calls are running and waiting.
async fn until_files(runtime: &Runtime, running: usize, waiting: usize) {
    until(runtime, |status| status.classes[&ToolClass::Files] == ToolClassStatus { running, waiting }).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_many_calls_delays_another_run_by_one_call() {
    let (tool, most) = slow("slow");
    let runtime = start(&[&tool], 2).await;
    let many = submit(&runtime, "slow*100").await;
    until_files(&runtime, 2, 98).await;
    let from = Instant::now();
    for _ in 0..3 {
        let few = submit(&runtime, "slow").await;
        assert_eq!(answer(&runtime, few).await, "slow");
    }
    assert!(from.elapsed() < 7 * CALL, "{:?}", from.elapsed());
    assert_eq!(answer(&runtime, many).await.matches("slow").count(), 100);
    assert!(from.elapsed() > 50 * CALL, "{:?}", from.elapsed());
    assert_eq!((most.load(Ordering::SeqCst), status(&runtime).await.ended["slow"]), (2, 103));
}

#[tokio::test(start_paused = true)]
async fn commands_delay_no_calls_that_declare_their_paths() {
    let shell = ScriptedTool::endless("shell", EffectClass::Once).with_access(Access::Anything);
    let read = ScriptedTool::fixed("read", EffectClass::Pure, "content").with_access(Access::reads("/w"));
    let runtime = start(&[&Arc::new(shell), &Arc::new(read)], 1).await;
    let command = submit(&runtime, "shell*5").await;
    let class = ToolClassStatus { running: 1, waiting: 4 };
    until(&runtime, |status| status.classes[&ToolClass::Processes] == class).await;
    let from = Instant::now();
    let reading = submit(&runtime, "read*5").await;
    assert_eq!(answer(&runtime, reading).await, ["content"; 5].join(","));
    assert!(from.elapsed() < CALL, "{:?}", from.elapsed());
    runtime.stop(command.run, StopReason::Command).await.expect("it stops");
    until(&runtime, |status| status.classes.values().all(|class| *class == ToolClassStatus::default())).await;
}

#[tokio::test(start_paused = true)]
async fn waiting_calls_outlive_the_actor_and_no_permit_is_lost() {
    for fault in [ActorFault::Panic, ActorFault::Error, ActorFault::Kill] {
        let (tool, most) = slow("slow");
        let panics = ScriptedTool::new("panics", EffectClass::Pure, |_| async { panic!("by the test") });
        let runtime = start(&[&tool, &Arc::new(panics)], 2).await;
        let runs = [submit(&runtime, "slow*5").await, submit(&runtime, "panics*5 slow*4").await];
        until_files(&runtime, 2, 3).await;
        for _ in 0..3 {
            inject(&runtime, ActorKind::ToolExecutor, fault).await;
            sleep(CALL).await;
        }
        for run in runs {
            assert!(answer(&runtime, run).await.ends_with("slow,slow,slow,slow"), "{fault:?}");
        }
        let stopped = submit(&runtime, "slow*50").await;
        until_files(&runtime, 2, 48).await;
        runtime.stop(stopped.run, StopReason::Command).await.expect("it stops");
        until_files(&runtime, 0, 0).await;
        assert_eq!(most.load(Ordering::SeqCst), 2, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_keep_their_tools_when_the_tools_are_exchanged() {
    let version = |content: &'static str| {
        Arc::new(ScriptedTool::new("work", EffectClass::Pure, move |_| async move {
            sleep(CALL).await;
            CallEnd::ok(content)
        }))
    };
    let (first, second) = (version("first"), version("second"));
    let kept = Arc::new(ScriptedTool::fixed("kept", EffectClass::Pure, "kept"));
    let gone = Arc::new(ScriptedTool::fixed("gone", EffectClass::Pure, "gone"));
    let closed = || [&first, &second, &kept, &gone].map(|tool| tool.closed());
    let runtime = start(&[&first, &kept, &gone], 10).await;
    let accepted = submit(&runtime, "work work kept gone").await;
    until_files(&runtime, 1, 0).await;
    let tools: Vec<Arc<dyn Tool>> =
        vec![Arc::<ScriptedTool>::clone(&second), Arc::<ScriptedTool>::clone(&kept)];
    assert_eq!(runtime.exchange_tools(tools), Ok(2));
    assert_eq!(runtime.tools(), ["clarify", "delegate_task", "kept", "todo", "work"]);
    sleep(CALL / 2).await;
    assert_eq!((closed(), status(&runtime).await.generation), ([0, 0, 0, 1], 2));
    inject(&runtime, ActorKind::ToolExecutor, ActorFault::Kill).await;
    let answer = answer(&runtime, accepted).await;
    assert!(answer.starts_with("first,second,kept,"), "{answer}");
    assert!(answer.contains("there is no tool `gone`"), "{answer}");
    assert_eq!(closed(), [1, 0, 0, 1]);
    assert_eq!(first.forgotten_attempts().len(), 1, "before it was closed");
    runtime.shut_down().await;
    assert_eq!(closed(), [1; 4]);
    let ended = runtime.exchange_tools(Vec::new());
    assert!(matches!(ended, Err(RunError::Terminated(_))), "{ended:?}");
}

/// A tool with this name and these parameters.
#[derive(Debug)]
struct Named(ToolSpec);

impl Tool for Named {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn prepare(&self, _: &Value, _: &str) -> Result<PreparedCall, BadArguments> {
        Ok(PreparedCall::new(EffectClass::Pure, |_| std::future::ready(CallEnd::ok(""))))
    }
}

fn named(name: &str, parameters: Value) -> Arc<dyn Tool> {
    Arc::new(Named(ToolSpec { name: name.into(), description: String::new(), parameters }))
}

#[tokio::test(start_paused = true)]
async fn invalid_tools_are_refused_as_a_whole() {
    let tool = Arc::new(ScriptedTool::fixed("read", EffectClass::Pure, "content"));
    let runtime = start(&[&tool], 1).await;
    let object = || json!({"type": "object"});
    for (name, parameters, error) in [
        ("", object(), "\"\" is no name of a tool"),
        ("a b", object(), "\"a b\" is no name of a tool"),
        ("a\u{7}", object(), "\"a\\u{7}\" is no name of a tool"),
        (&"x".repeat(129), object(), "take 1 to 128 bytes"),
        ("write", object(), "there are two tools `write`"),
        ("todo", object(), "there are two tools `todo`"),
        ("list", json!("text"), "the parameters of `list` are no JSON schema of an object: \"text\""),
        ("list", json!({"type": "array"}), "the parameters of `list`"),
    ] {
        let refused = runtime.exchange_tools(vec![named("write", object()), named(name, parameters)]);
        let Err(RunError::Invalid { field: "tools", error: reason }) = refused else { panic!("{refused:?}") };
        assert!(reason.contains(error), "{reason}");
    }
    assert_eq!((runtime.tools().len(), status(&runtime).await.generation), (4, 1));
    assert_eq!((tool.closed(), runtime.chat("read").await), (0, Ok("content".to_owned())));
    let world = world(Arc::new(MemoryJournal::new()), model(), vec![named("a b", object())]);
    let error = Runtime::start(world).await.expect_err("its tools are invalid").to_string();
    assert!(error.contains("\"a b\" is no name of a tool"), "{error}");
}

/// A tool that panics when it is closed does not keep others from being closed.
#[tokio::test(start_paused = true)]
async fn each_tool_is_closed_once_at_the_end() {
    #[derive(Debug)]
    struct Closing(ToolSpec, Arc<Mutex<Vec<String>>>);
    impl Tool for Closing {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }
        fn prepare(&self, _: &Value, _: &str) -> Result<PreparedCall, BadArguments> {
            Ok(PreparedCall::new(EffectClass::Pure, |_| std::future::pending()))
        }
        fn close(&self) {
            self.1.lock().expect("a list").push(self.0.name.clone());
            panic!("by the test");
        }
    }
    let closed = Arc::new(Mutex::new(Vec::new()));
    let tools = ["a", "b"].map(|name| {
        let spec = ToolSpec { name: name.into(), description: String::new(), parameters: json!({}) };
        Arc::new(Closing(spec, Arc::clone(&closed))) as Arc<dyn Tool>
    });
    let world = world(Arc::new(MemoryJournal::new()), model(), tools.into());
    let runtime = Runtime::start(world).await.expect("it starts");
    submit(&runtime, "a").await;
    until_files(&runtime, 1, 0).await;
    assert_eq!(*closed.lock().expect("a list"), [""; 0]);
    runtime.shut_down().await;
    closed.lock().expect("a list").sort();
    assert_eq!(*closed.lock().expect("a list"), ["a", "b"]);
}
