//! Runtime dependencies made of test doubles, and invocations for tests of single tools.

use std::{sync::Arc, time::Duration};

use crate::{
    Defaults, RuntimeDependencies,
    model::{BreakerPolicy, CallId, Limits, ModelRef, RunId, RunSpec, SessionId, Timestamp},
    port::{ArtifactName, Artifacts, AttemptArtifacts, Invocation, Journal, ProgressReporter, Tool},
    testkit::{MemoryArtifacts, ScriptedProvider, VirtualClock},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Runtime dependencies made of test doubles: one provider `test` with one model `model`, these tools, this journal.
pub fn world(
    journal: Arc<dyn Journal>,
    provider: ScriptedProvider,
    tools: Vec<Arc<dyn Tool>>,
) -> RuntimeDependencies {
    let names = tools.iter().map(|tool| tool.spec().name.clone()).collect();
    let spec = spec(names);
    RuntimeDependencies {
        journal,
        clock: Arc::new(VirtualClock::new(1)),
        boot: "boot-1".into(),
        providers: vec![("test".into(), Arc::new(provider), 1_000)],
        breakers: BreakerPolicy::default(),
        tools,
        tool_calls: 1_000,
        summaries: 1_000,
        submissions: 100_000,
        idle: Duration::from_mins(1),
        space: None,
        artifacts: Arc::new(MemoryArtifacts::default()),
        defaults: Defaults::fixed(spec, "You are a test."),
    }
}

/// A run against the model of [`world`] with these tools.
pub(super) fn spec(tools: Vec<String>) -> RunSpec {
    RunSpec {
        isolation_key: "task".into(),
        tools,
        limits: Limits { max_tokens: 1_000, ..Limits::default() },
        ..RunSpec::new(vec![ModelRef::new("test", "model").expect("two names")], "/workspace")
    }
}

/// The first attempt of a call with these arguments, for tests of a single tool.
pub fn invocation(workspace: &str, arguments: Value) -> Invocation {
    let call = CallId { run: RunId::from_bits(7), iteration: 1, n: 1 };
    let own = ArtifactName { session: SessionId::from_bits(1), call, attempt: 1 };
    let artifacts: Arc<dyn Artifacts> = Arc::new(MemoryArtifacts::default());
    Invocation {
        call,
        attempt: own.attempt,
        isolation_key: "task".into(),
        workspace: workspace.into(),
        arguments,
        now: Timestamp(1_767_225_600_000),
        artifacts: AttemptArtifacts::new(artifacts, own),
        cancel: CancellationToken::new(),
        progress: ProgressReporter::default(),
    }
}
