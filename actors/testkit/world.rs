use std::sync::Arc;

use crate::{
    Defaults, World,
    model::{Limits, ModelRef, RunSpec},
    port::{Journal, Tool},
    testkit::{ScriptedProvider, VirtualClock},
};

/// A whole world of test doubles: one provider `test` with one model `model`, these tools, this journal.
pub fn world(journal: Arc<dyn Journal>, provider: ScriptedProvider, tools: Vec<Arc<dyn Tool>>) -> World {
    let names = tools.iter().map(|tool| tool.spec().name.clone()).collect();
    let spec = spec(names);
    World {
        journal,
        clock: Arc::new(VirtualClock::new(1)),
        boot: "boot-1".into(),
        providers: vec![("test".into(), Arc::new(provider), 1_000)],
        tools,
        tool_calls: 1_000,
        submissions: 100_000,
        defaults: Defaults { spec, prompt: "You are a test.".into() },
    }
}

/// A run against the model of [`world`] with these tools.
pub(super) fn spec(tools: Vec<String>) -> RunSpec {
    RunSpec {
        chain: vec![ModelRef { provider: "test".into(), model: "model".into() }],
        workspace: "/workspace".into(),
        task: "task".into(),
        tools,
        limits: Limits { max_tokens: 1_000, ..Limits::default() },
        system: None,
        script: None,
    }
}
