//! The admission of an answer's calls delays no session, whatever a tool's `prepare` does.

use std::{
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, Sender},
    },
    time::Duration,
};

use hermod_actors::{
    AcceptedRun, RunRequest, Runtime, RuntimeDependencies, SessionChoice,
    model::{CallEnd, EffectClass, Outcome, StopReason, ToolSpec},
    port::{BadArguments, PreparedCall, Tool},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, calls, says, world};
use serde_json::{Value, json};
use tokio::time::timeout;

/// Limit of each wait.
const PATIENCE: Duration = Duration::from_mins(1);

/// A tool whose `prepare` waits until it is released, if the arguments say so.
#[derive(Debug)]
struct SlowJudge {
    spec: ToolSpec,
    judging: Sender<()>,
    let_go: Mutex<Receiver<()>>,
}

impl Tool for SlowJudge {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn prepare(&self, arguments: &Value, _workspace: &str) -> Result<PreparedCall, BadArguments> {
        if arguments["slow"] == true {
            self.judging.send(()).expect("the test looks on");
            self.let_go.lock().expect("no other judgement panics").recv().expect("the test looks on");
        }
        Ok(PreparedCall::new(EffectClass::Pure, |_| std::future::ready(CallEnd::ok("done"))))
    }
}

/// Dependencies whose model makes one call, a slow one if its task says so. The receiver learns when `prepare`
/// begins, and the sender releases it.
fn slow_world() -> (RuntimeDependencies, Receiver<()>, Sender<()>) {
    let provider = ScriptedProvider::new(Duration::ZERO, |view| {
        let is_called = view.iter().any(|message| message["role"] == "tool");
        let is_slow = view.iter().any(|message| message.to_string().contains("slowly"));
        Ok(if is_called { says("done") } else { calls(&[("judged", json!({"slow": is_slow}))]) })
    });
    let ((judging, begun), (go, let_go)) = (mpsc::channel(), mpsc::channel());
    let spec =
        ToolSpec { name: "judged".into(), description: String::new(), parameters: json!({"type": "object"}) };
    let tool: Arc<dyn Tool> = Arc::new(SlowJudge { spec, judging, let_go: Mutex::new(let_go) });
    (world(Arc::new(MemoryJournal::new()), provider, vec![tool]), begun, go)
}

async fn submit(runtime: &Runtime, key: &str, task: &str) -> AcceptedRun {
    let request = RunRequest { session: SessionChoice::Key(key.into()), ..RunRequest::new(task) };
    runtime.submit(request).await.expect("it is accepted")
}

/// The admission of the run `slow` hangs until it is released. Meanwhile other runs continue; then `slow` completes.
#[tokio::test]
async fn a_judgement_that_does_not_come_back_holds_up_no_session() {
    let (world, begun, go) = slow_world();
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    let slow = submit(&runtime, "slow", "do it slowly").await;
    tokio::task::spawn_blocking(move || begun.recv_timeout(PATIENCE))
        .await
        .expect("it is joined")
        .expect("it is judged");
    let other = submit(&runtime, "other", "do it").await;
    let result = timeout(PATIENCE, runtime.wait(other.run, None)).await.expect("the other run goes on");
    assert_eq!(result.expect("it ends").ended.outcome, Outcome::Completed);
    assert!(runtime.health_probe().stalled_handlers().is_empty(), "no handler waits for it");
    go.send(()).expect("it is judged");
    let result = timeout(PATIENCE, runtime.wait(slow.run, None)).await.expect("it goes on");
    assert_eq!(result.expect("it ends").ended.outcome, Outcome::Completed);
}

/// A run is stopped during the admission of its calls.
#[tokio::test]
async fn a_run_is_stopped_while_its_calls_are_judged() {
    let (world, begun, go) = slow_world();
    let runtime = Runtime::start(world).await.expect("the runtime starts");
    let slow = submit(&runtime, "slow", "do it slowly").await;
    tokio::task::spawn_blocking(move || begun.recv_timeout(PATIENCE))
        .await
        .expect("it is joined")
        .expect("it is judged");
    timeout(PATIENCE, runtime.stop(slow.run, StopReason::Command))
        .await
        .expect("it is heard")
        .expect("it is there");
    let result = timeout(PATIENCE, runtime.wait(slow.run, None)).await.expect("it ends");
    assert_eq!(result.expect("it ends").ended.outcome, Outcome::Stopped);
    go.send(()).expect("it is judged");
}
