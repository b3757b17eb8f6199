//! Invocations for tests of a single tool.

use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{MemoryArtifacts, START_MS};
use crate::{
    model::{CallId, RunId, SessionId, Timestamp},
    port::{ArtifactName, Artifacts, AttemptArtifacts, Invocation, ProgressReporter},
};

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
        now: Timestamp(START_MS),
        artifacts: AttemptArtifacts::new(artifacts, own),
        cancel: CancellationToken::new(),
        progress: ProgressReporter::default(),
    }
}
