//! The system prompt of a session that is about to begin.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;

use crate::{
    active_deadline::ActiveDeadline,
    model::RunSpec,
    port::{ContextError, Occasion},
    runtime::{RunError, Runtime},
    session::NotAccepted,
};

/// How long building a prompt may take: somebody waits for the run to be accepted.
const PATIENCE: Duration = Duration::from_secs(5);

impl Runtime {
    /// Has it built for a first run with this spec.
    pub(super) async fn build_prompt(&self, spec: &RunSpec) -> Result<Arc<str>, RunError> {
        let occasion = Occasion::of(spec, self.doors.wiring.clock.at());
        let engine = &self.defaults().prompt;
        let building = AssertUnwindSafe(async { engine.prompt(occasion).await }).catch_unwind();
        let built = match ActiveDeadline::after(PATIENCE).bound(building).await {
            Some(Ok(built)) => built,
            Some(Err(_)) => {
                Err(ContextError("what builds it panicked; this is a fault of the program".into()))
            }
            None => {
                let error = format!(
                    "it took longer than {} s; see whether the folders that it reads answer",
                    PATIENCE.as_secs()
                );
                Err(ContextError(error))
            }
        };
        let prompt = built.map_err(|error| RunError::NotAccepted(NotAccepted::NoPrompt(error)))?;
        Ok(prompt.text().into())
    }
}
