//! A call is prepared once, from its admission to its end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use hermod::tool::{Settings, ToolContext, TypedTool, make};
use hermod_actors::{
    RunRequest, Runtime,
    model::{CallEnd, EffectClass, RunWait, WaitKind},
};
use hermod_testkit::{MemoryJournal, ScriptedProvider, calls, says, world};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::json;
use tokio::{sync::Semaphore, time::timeout};

/// Longer than a call takes on a busy machine.
const SOON: Duration = Duration::from_mins(1);
static PARSED: AtomicU32 = AtomicU32::new(0);
static RELEASED: Semaphore = Semaphore::const_new(0);

/// Counts how often it is parsed.
#[derive(Debug, JsonSchema)]
struct Counted {
    seconds: u64,
}

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Fields {
            seconds: u64,
        }
        PARSED.fetch_add(1, Ordering::SeqCst);
        Fields::deserialize(deserializer).map(|Fields { seconds }| Self { seconds })
    }
}

/// Runs until it is released.
#[derive(Debug)]
struct Gate;

impl TypedTool for Gate {
    const NAME: &'static str = "gate";
    const DESCRIPTION: &'static str = "Waits.";
    const EFFECT: EffectClass = EffectClass::Pure;
    type Arguments = Counted;

    fn limit(arguments: &Counted, _: &Settings) -> Option<Duration> {
        Some(Duration::from_secs(arguments.seconds))
    }

    async fn run(_: Counted, _: ToolContext) -> CallEnd {
        RELEASED.acquire().await.expect("it is never closed").forget();
        CallEnd::ok("released")
    }
}

#[tokio::test]
async fn the_arguments_of_a_call_are_parsed_once() {
    let provider = ScriptedProvider::new(Duration::ZERO, |view| {
        let is_called = view.iter().any(|message| message["role"] == "tool");
        Ok(if is_called { says("done") } else { calls(&[("gate", json!({"seconds": 1_000}))]) })
    });
    let tools = vec![make::<Gate>(Settings::default())];
    let mut world = world(Arc::new(MemoryJournal::new()), provider, tools);
    world.defaults.spec.tools = vec!["gate".into()];
    let runtime = Runtime::start(world).await.unwrap();
    let run = runtime.submit(RunRequest::new("go")).await.unwrap().run;
    let limit_ms = async {
        loop {
            let waits = runtime.waits(run).await.unwrap();
            let is_call = |wait: &&RunWait| matches!(wait.kind, WaitKind::Tool { .. });
            let wait = waits.iter().find(is_call).map(|wait| wait.until.unwrap().ms_since(wait.since));
            // Before the task has begun, the limit is the default of 10 min.
            if let Some(ms) = wait.filter(|ms| *ms > 700_000) {
                break ms;
            }
            tokio::task::yield_now().await;
        }
    };
    let limit_ms = timeout(SOON, limit_ms).await.expect("the call starts");
    assert_eq!(limit_ms, 1_060_000, "the tool's limit, and a minute for a long result");
    RELEASED.add_permits(1);
    let result = timeout(SOON, runtime.wait(run, None)).await.expect("it ends").unwrap();
    assert_eq!((result.text(), PARSED.load(Ordering::SeqCst)), (Some("done"), 1));
}
