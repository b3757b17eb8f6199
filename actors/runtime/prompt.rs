//! Builds the system prompt of a new session, within a time limit. The builder is a port (`port/system_prompt.rs`).

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;

use crate::{
    active_deadline::ActiveDeadline,
    model::RunSpec,
    port::{PromptRequest, SystemPromptError},
    runtime::{RunError, Runtime},
    session::SubmitError,
};

/// Most time to build a prompt: the submission waits for it.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(5);

impl Runtime {
    /// Builds the prompt for a first run with this spec.
    pub(super) async fn build_prompt(&self, spec: &RunSpec) -> Result<Arc<str>, RunError> {
        let occasion = PromptRequest::for_run(spec, self.handles.wiring.clock.at());
        let engine = &self.defaults().prompt;
        let building = AssertUnwindSafe(async { engine.build(occasion).await }).catch_unwind();
        let built = match ActiveDeadline::after(PROMPT_TIMEOUT).bound(building).await {
            Some(Ok(built)) => built,
            Some(Err(_)) => {
                Err(SystemPromptError("what builds it panicked; this is a fault of the program".into()))
            }
            None => {
                let error = format!(
                    "it took longer than {} s; see whether the folders that it reads answer",
                    PROMPT_TIMEOUT.as_secs()
                );
                Err(SystemPromptError(error))
            }
        };
        let prompt = built.map_err(|error| RunError::NotAccepted(SubmitError::NoPrompt(error)))?;
        Ok(prompt.text().into())
    }
}
