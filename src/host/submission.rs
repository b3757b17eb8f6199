//! Submissions to a runtime that many callers share: resolves the spec of a run by this process's configuration, adds
//! the endpoints that it needs, and submits it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use hermod_actors::{AcceptedRun, RunRequest, SessionChoice, model::ThinkingLevel};

use super::{
    budget_limits::BudgetLimits,
    conversation::ConversationTarget,
    error::HostError,
    model_choice::{ModelSelection, RehearsalScript},
    new_run::{RunInput, SpecRequest, first_of_key, new_spec},
    start::RuntimeHost,
};
use crate::{
    config::Config,
    control::StoreReader,
    discovery::{RequestedModel, Variables},
};

/// A task for a shared runtime, with what its caller may set.
#[derive(Debug)]
pub struct Submission {
    /// The task.
    pub input: RunInput,
    /// Id or key of the session; a key that no session has names a new one. `None` is a new session.
    pub session: Option<String>,
    /// The model, as `provider/model` or a name that one provider has.
    pub model: Option<String>,
    /// The folder in which the tools work; it must exist.
    pub workspace: Option<PathBuf>,
    /// Limits of the budget.
    pub budget: BudgetLimits,
    /// Time after which the run ends as timed out.
    pub timeout: Option<Duration>,
    /// How much the models are to think.
    pub thinking: Option<ThinkingLevel>,
    /// A system message for this run only.
    pub system: Option<String>,
    /// A repeat with this key gets the first run.
    pub idempotency_key: Option<Arc<str>>,
}

/// Submits runs of many callers to one runtime.
#[derive(Debug)]
pub struct RunSubmitter {
    host: Arc<RuntimeHost>,
    reader: StoreReader,
    state: PathBuf,
    config: Config,
    variables: Variables,
    script: Option<RehearsalScript>,
}

impl RunSubmitter {
    /// Resolves specs by this configuration. With `script`, all runs are rehearsals.
    pub fn new(
        host: Arc<RuntimeHost>,
        (reader, state): (StoreReader, PathBuf),
        (config, variables): (Config, Variables),
        script: Option<RehearsalScript>,
    ) -> Self {
        Self { host, reader, state, config, variables, script }
    }

    /// Submits a task. When this resolves with `Ok`, the run is durable and will reach an outcome.
    pub async fn submit(&self, submission: Submission) -> Result<AcceptedRun, HostError> {
        let target = match &submission.session {
            Some(session) => ConversationTarget::for_submission(&self.reader, session).await?,
            None => ConversationTarget::new(SessionChoice::New),
        };
        if let Some(first) = self.first_of_key(&submission, &target).await? {
            return Ok(first);
        }
        let folder = submission.workspace;
        let workspace = target.workspace(folder, self.config.sandbox.workspace, &self.state)?;
        let request = SpecRequest {
            model: ModelSelection {
                script: self.script.as_ref().filter(|_| submission.model.is_none()),
                model: RequestedModel { provider: None, model: submission.model.as_deref() },
            },
            budget: submission.budget,
            timeout: submission.timeout,
            thinking: submission.thinking,
            system: submission.system.as_deref(),
            is_unattended: true,
        };
        let spec = {
            let endpoints = self.host.endpoints.lock().await;
            new_spec((&self.config, &request), &target, &endpoints, (&workspace, &self.state))?
        };
        self.host.add_endpoints(&spec, &self.variables).await?;
        let RunInput { text, images, history, isolation_key, request_hash } = submission.input;
        let request = RunRequest {
            session: target.choice,
            images,
            history,
            task: isolation_key,
            spec: Some(spec),
            idempotency_key: submission.idempotency_key,
            request_hash,
            ..RunRequest::new(text)
        };
        Ok(self.host.runtime.submit(request).await?)
    }

    /// The first run of the submission's key. What the spec is made of may have changed since.
    async fn first_of_key(
        &self,
        submission: &Submission,
        target: &ConversationTarget,
    ) -> Result<Option<AcceptedRun>, HostError> {
        let Some(key) = &submission.idempotency_key else { return Ok(None) };
        let row = first_of_key(&self.reader, key, &submission.input, &target.choice, &self.state).await?;
        Ok(row.map(|row| AcceptedRun { run: row.id, session: row.session, at: row.accepted_at }))
    }
}
