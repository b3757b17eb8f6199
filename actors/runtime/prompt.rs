//! Builds the system prompt of a new session, within a time limit. The builder is a port (`port/system_prompt.rs`).

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;

use crate::{
    active_deadline::ActiveDeadline,
    model::RunSpec,
    port::{PromptRequest, SystemPromptError},
    redaction::redact_text,
    runtime::{RunError, Runtime},
    session::SubmitError,
};

/// Most time to build a prompt: the submission waits for it.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(5);

impl Runtime {
    /// Builds the prompt for a first run with this spec.
    pub(super) async fn build_prompt(&self, spec: &RunSpec) -> Result<Arc<str>, RunError> {
        let request = PromptRequest::for_run(spec, self.parts.clock.at());
        let builder = &self.defaults().prompt;
        let build = AssertUnwindSafe(async { builder.build(request).await }).catch_unwind();
        let result = match ActiveDeadline::after(PROMPT_TIMEOUT).bound(build).await {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(SystemPromptError::Failed(
                "what builds it panicked; this is a fault of the program".into(),
            )),
            None => {
                let error = format!(
                    "it took longer than {} s; see whether the folders that it reads answer",
                    PROMPT_TIMEOUT.as_secs()
                );
                Err(SystemPromptError::Failed(error))
            }
        };
        let prompt = result.map_err(SubmitError::NoPrompt)?;
        let mut prompt: Arc<str> = prompt.text().into();
        redact_text(&mut prompt, &*self.parts.redactor);
        Ok(prompt)
    }
}
