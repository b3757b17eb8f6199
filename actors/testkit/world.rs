//! Runtime dependencies made of test doubles.

use std::{sync::Arc, time::Duration};

use crate::{MemoryArtifacts, ScriptedProvider, VirtualClock};
use hermod_actors::{
    Defaults, RuntimeDependencies,
    model::{BreakerPolicy, Limits, ModelRef, RunSpec},
    port::{AllowAllCalls, Journal, NoHooks, NoRedaction, NoScaling, Tool},
};

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
        policy: Arc::new(AllowAllCalls),
        hooks: Arc::new(NoHooks),
        tool_calls: 1_000,
        summaries: 1_000,
        submissions: 100_000,
        idle: Duration::from_mins(1),
        space: None,
        artifacts: Arc::new(MemoryArtifacts::default()),
        pictures: Arc::new(NoScaling),
        redactor: Arc::new(NoRedaction),
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
