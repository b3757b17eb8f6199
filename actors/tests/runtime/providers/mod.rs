//! Providers that fail: failover, return to the first model, waits, exchanges and free probes. Here are the doubles.

mod crashes;
mod exchange;
mod fallback;
mod gates;
mod requests;
mod waits;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use hermod_actors::{
    RunRequest, RunResult, Runtime, RuntimeDependencies,
    model::{EffectClass, Failure, FailureClass, ModelAnswer, ModelRef},
    port::{Clock, Tool},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, ScriptedTool, VirtualClock, calls, says, world};
use serde_json::{Value, json};
use tokio::time::Instant;

type Said = Result<ModelAnswer, Failure>;

/// A provider that records the times of its calls.
struct Side {
    provider: ScriptedProvider,
    asked: Arc<Mutex<Vec<Duration>>>,
}

impl Side {
    /// A provider that answers by `script`: a function of the view, the time since now and the number of earlier calls.
    fn new(script: impl Fn(&[Value], Duration, usize) -> Said + Send + Sync + 'static) -> Self {
        let (since, asked) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&asked);
        let provider = ScriptedProvider::new(Duration::from_millis(10), move |view| {
            let (now, mut seen) = (since.elapsed(), seen.lock().expect("no panic holds it"));
            seen.push(now);
            script(view, now, seen.len() - 1)
        });
        Self { provider, asked }
    }

    /// A provider that fails in this way the first `times` calls, then answers.
    fn failing(times: usize, class: FailureClass) -> Self {
        Self::new(move |_, _, before| match before < times {
            true => Err(Failure::new(class.clone(), "no")),
            false => Ok(says("from the first")),
        })
    }

    fn answering() -> Self {
        Self::new(|_, _, _| Ok(says("from the second")))
    }

    /// The seconds of its calls.
    fn asked(&self) -> Vec<u64> {
        self.asked.lock().expect("no panic holds it").iter().map(Duration::as_secs).collect()
    }
}

const CHAIN: [&str; 2] = ["a/m", "b/n"];

/// Dependencies with these providers, named a, b, c; the chain of a run is in this order.
fn of(sides: &[&Side], (journal, clock): (&MemoryJournal, &Arc<VirtualClock>)) -> RuntimeDependencies {
    let wait = ScriptedTool::new("wait", EffectClass::Pure, |_| async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        hermod_actors::model::CallEnd::ok("waited")
    });
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(wait)];
    let nobody = ScriptedProvider::new(Duration::ZERO, |_| Ok(says("nobody")));
    let mut world = world(Arc::new(journal.clone()), nobody, tools);
    let named = sides.iter().zip(["a", "b", "c"]);
    world.providers =
        named.map(|(side, name)| (name.into(), Arc::new(side.provider.clone()) as _, 1_000)).collect();
    world.clock = Arc::clone(clock) as Arc<dyn Clock>;
    let chain = |link: &&str| link.parse::<ModelRef>().expect("it is well formed");
    world.defaults.spec.chain = CHAIN.iter().take(sides.len()).map(chain).collect();
    world
}

async fn start(sides: &[&Side]) -> Runtime {
    let (journal, clock) = (MemoryJournal::new(), Arc::new(VirtualClock::new(1)));
    Runtime::start(of(sides, (&journal, &clock))).await.expect("the runtime starts")
}

async fn run(runtime: &Runtime) -> RunResult {
    runtime.run(RunRequest::new("do it")).await.expect("it has an outcome")
}

fn limited(seconds: u64) -> FailureClass {
    FailureClass::RateLimited { retry_after_ms: Some(seconds * 1_000), reset_at: None }
}

const SLOW_DOWN: FailureClass = FailureClass::RateLimited { retry_after_ms: None, reset_at: None };

/// A model that calls the tool `times` times, for 10 s each, then answers.
fn works(view: &[Value], times: usize) -> ModelAnswer {
    match view.iter().filter(|message| message["role"] == "tool").count() {
        seen if seen < times => calls(&[("wait", json!({"n": seen}))]),
        seen => says(&format!("{seen} results")),
    }
}
