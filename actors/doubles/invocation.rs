//! Invocations for tests of a single tool.

use std::{future::ready, sync::Arc};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{MemoryArtifacts, START_MS};
use crate::{
    model::{CallEnd, CallId, RunId, RunSpec, SessionId, Timestamp},
    port::{ArtifactName, Artifacts, AttemptArtifacts, Invocation, ProgressReporter, Tool},
};

/// Prepares a call and runs it; arguments that the tool does not accept end it.
pub fn run_call(tool: &dyn Tool, arguments: &Value, invocation: Invocation) -> BoxFuture<'static, CallEnd> {
    match tool.prepare(arguments, &invocation.workspace) {
        Ok(call) => call.work.run(invocation),
        Err(bad) => Box::pin(ready(bad.into())),
    }
}

/// The first attempt of a call, for tests of a single tool.
pub fn invocation(workspace: &str) -> Invocation {
    let call = CallId { run: RunId::from_bits(7), iteration: 1, n: 1 };
    let name = ArtifactName { session: SessionId::from_bits(1), call, attempt: 1 };
    let artifacts: Arc<dyn Artifacts> = Arc::new(MemoryArtifacts::default());
    Invocation {
        call,
        attempt: name.attempt,
        spec: RunSpec::new(Vec::new(), workspace).into(),
        isolation_key: "task".into(),
        workspace: workspace.into(),
        now: Timestamp(START_MS),
        artifacts: AttemptArtifacts::new(artifacts, name),
        cancel: CancellationToken::new(),
        progress: ProgressReporter::default(),
    }
}
