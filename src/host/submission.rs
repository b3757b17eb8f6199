//! Submissions to a runtime that many callers share: resolves the spec of a run by this process's configuration, adds
//! the endpoints that it needs, and submits it.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use hermod_actors::{
    AcceptedRun, RunRequest, SessionChoice,
    model::{
        AgentName, Lane, LimitIncrease, OccurrenceId, QueueMode, Queueing, RunRow, RunSpec, SessionId,
        ThinkingLevel,
    },
};
use tokio_util::sync::CancellationToken;

use super::{
    conversation::ConversationTarget,
    drain::Drain,
    error::{HostError, StartError},
    model_choice::{self, ModelSelection, RehearsalScript},
    new_run::{RunInput, SpecRequest, first_of_key, ignored_settings, new_spec},
    start::RuntimeHost,
};
use crate::{
    budget_limits::BudgetLimits,
    config::Config,
    control::StoreReader,
    discovery::{RequestedModel, Variables},
    hooks::ConfiguredHooks,
};

/// A task for a shared runtime, with what its caller may set.
#[derive(Debug)]
pub struct Submission {
    /// The task.
    pub input: RunInput,
    /// Id or key of the session; a key that no session has names a new one. `None` is a new session.
    pub session: Option<String>,
    /// The agent; `None` is that of the session, for a new one `default`.
    pub agent: Option<String>,
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
    /// The targets that get the result; `None` takes those of the agent.
    pub deliver_to: Option<Vec<String>>,
    /// Whether an answer is due; `None` is as the agent is configured.
    pub must_answer: Option<bool>,
    /// The lane in which it needs a place, if that has a limit.
    pub lane: Lane,
    /// A repeat with this key gets the first run.
    pub idempotency_key: Option<Arc<str>>,
    /// If it is a message to its session and no task of its own: how it queues.
    pub message: Option<MessageOptions>,
    /// The occurrence of a schedule whose run it is: a repeat gets the first run.
    pub occurrence: Option<OccurrenceId>,
}

impl Submission {
    /// A message to the session with this id or key.
    pub fn of_message(session: String, input: RunInput, message: MessageOptions) -> Self {
        Self {
            input,
            session: Some(session),
            agent: None,
            model: None,
            workspace: None,
            budget: BudgetLimits::default(),
            timeout: None,
            thinking: None,
            system: None,
            deliver_to: None,
            must_answer: None,
            lane: Lane::Main,
            idempotency_key: None,
            message: Some(message),
            occurrence: None,
        }
    }
}

/// How a message to a session queues.
#[derive(Debug, Clone, Copy)]
pub struct MessageOptions {
    /// The mode; `None` is that of the session, else the configured one.
    pub mode: Option<QueueMode>,
    /// Whether it may steer and stop the run under way. If not, it becomes a run of its own instead.
    pub may_steer: bool,
}

impl MessageOptions {
    fn queueing(self, configured: Queueing) -> Queueing {
        let mode = self.mode.unwrap_or(configured.mode);
        let mode = match mode {
            QueueMode::Steer | QueueMode::Interrupt if !self.may_steer => QueueMode::Followup,
            QueueMode::Steer | QueueMode::Interrupt | QueueMode::Followup | QueueMode::Collect => mode,
        };
        Queueing { mode, ..configured }
    }
}

/// What only a client of the command line sets of a submission.
#[derive(Debug, Default)]
pub struct SubmissionOptions {
    /// The provider of the model.
    pub provider: Option<String>,
    /// The script that replaces the models; it goes before that of the submitter.
    pub script: Option<RehearsalScript>,
    /// The folder of a new conversation whose submission names none.
    pub folder: Option<PathBuf>,
    /// Whether a person waits for the run, so that it is not timed out by default.
    pub is_attended: bool,
}

/// A run that was submitted, with its spec.
#[derive(Debug)]
pub(super) struct ResolvedRun {
    /// The run, which is durable.
    pub accepted: AcceptedRun,
    /// Its spec.
    pub spec: RunSpec,
    /// False if the run was accepted before, with the same key.
    pub is_new: bool,
    /// Lines about settings that its models ignore, and about models that are not asked.
    pub notes: Vec<String>,
}

/// What the specs of new runs are resolved by. A reload exchanges it as a whole.
#[derive(Debug)]
pub struct RunSettings {
    /// The configuration.
    pub config: Config,
    /// The variables of the process.
    pub variables: Variables,
}

/// Submits runs of many callers to one runtime.
#[derive(Debug)]
pub struct RunSubmitter {
    host: Arc<RuntimeHost>,
    reader: StoreReader,
    state: PathBuf,
    settings: RwLock<Arc<RunSettings>>,
    script: Option<RehearsalScript>,
    drain: Drain,
    /// Cancelled when unfinished runs may go on.
    pub(super) revivals: CancellationToken,
}

impl RunSubmitter {
    /// Resolves specs by this configuration. With `script`, all runs that name no model are rehearsals. No unfinished run
    /// goes on by this until [`RunSubmitter::allow_revivals`].
    pub fn new(
        host: Arc<RuntimeHost>,
        (reader, state): (StoreReader, PathBuf),
        (config, variables): (Config, Variables),
        script: Option<RehearsalScript>,
    ) -> Self {
        let revivals = CancellationToken::new();
        let settings = RwLock::new(Arc::new(RunSettings { config, variables }));
        Self { host, reader, state, settings, script, drain: Drain::default(), revivals }
    }

    /// A submitter for a command that holds the store: it plays no script of its own.
    pub fn of_command(
        host: &Arc<RuntimeHost>,
        (reader, state): (&StoreReader, &Path),
        (config, variables): (&Config, &Variables),
    ) -> Arc<Self> {
        let (stored, settings) = ((reader.clone(), state.to_owned()), (config.clone(), variables.clone()));
        Arc::new(Self::new(Arc::clone(host), stored, settings, None))
    }

    /// The settings of runs that are submitted now.
    pub fn settings(&self) -> Arc<RunSettings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Resolves further runs by these settings.
    pub fn exchange_settings(&self, settings: RunSettings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// Whether runs that name no model play a script.
    pub(super) const fn has_script(&self) -> bool {
        self.script.is_some()
    }

    /// Ends the process once its runs have ended. No new run is taken after its request.
    pub const fn drain(&self) -> &Drain {
        &self.drain
    }

    /// True once the owner has decided about its own unfinished runs. Before, new work would be beside the runs on trial.
    pub fn may_submit(&self) -> bool {
        self.revivals.is_cancelled()
    }

    /// Raises limits of a run, whose endpoints are added if it goes on.
    pub async fn raise(&self, row: &RunRow, by: LimitIncrease) -> Result<RunRow, HostError> {
        let spec = self.reader.acceptance(row).await?.spec;
        self.revivals.cancelled().await;
        self.add_endpoints(&spec).await?;
        Ok(self.host.runtime.raise(row.id, by).await?)
    }

    /// The hooks.
    pub fn hooks(&self) -> Arc<ConfiguredHooks> {
        self.host.hooks()
    }

    /// The names of the agents: `default` first, then the others by name.
    pub fn agents(&self) -> Vec<AgentName> {
        self.settings().config.agents().map(|(name, _)| name).collect()
    }

    /// Lets unfinished runs go on from now on when a client asks for it: the owner has decided about its own.
    pub fn allow_revivals(&self) {
        self.revivals.cancel();
    }

    /// The reader of the store.
    pub(super) const fn reader(&self) -> &StoreReader {
        &self.reader
    }

    /// The state directory.
    pub(super) const fn state(&self) -> &PathBuf {
        &self.state
    }

    /// Submits a task. When this resolves with `Ok`, the run is durable and will reach an outcome.
    pub async fn submit(&self, submission: Submission) -> Result<AcceptedRun, HostError> {
        let target = match &submission.session {
            Some(session) => ConversationTarget::for_submission(&self.reader, session).await?,
            None => ConversationTarget::new(SessionChoice::New),
        };
        if let Some(row) = self.first_of_key(&submission, &target).await? {
            return Ok(AcceptedRun { run: row.id, session: row.session, at: row.accepted_at });
        }
        Ok(self.submit_to(target, submission, SubmissionOptions::default()).await?.accepted)
    }

    /// Submits a task to a conversation whose key stands for no run yet.
    pub(super) async fn submit_to(
        &self,
        target: ConversationTarget,
        submission: Submission,
        options: SubmissionOptions,
    ) -> Result<ResolvedRun, HostError> {
        self.drain.check_not_requested()?;
        let settings = self.settings();
        let config = target.config(&settings.config, submission.agent.as_deref())?;
        // Unfinished runs of the conversation go on with its session, and a crash while one is on trial must be its own.
        self.revivals.cancelled().await;
        for (_, spec) in &target.open {
            self.add_endpoints(spec).await?;
        }
        let folders = (submission.workspace, options.folder);
        let workspace = target.workspace(folders, config, &self.state)?;
        let names_model = submission.model.is_some() || options.provider.is_some();
        let own_script = self.script.as_ref().filter(|_| !names_model);
        let request = SpecRequest {
            model: ModelSelection {
                script: options.script.as_ref().or(own_script),
                model: RequestedModel {
                    provider: options.provider.as_deref(),
                    model: submission.model.as_deref(),
                },
            },
            budget: submission.budget,
            timeout: submission.timeout,
            thinking: submission.thinking,
            system: submission.system.as_deref(),
            deliver_to: submission.deliver_to.as_deref(),
            is_unattended: !options.is_attended,
            must_answer: submission.must_answer,
            lane: submission.lane,
        };
        let spec = self.resolve((config, &settings.variables), &request, &target, &workspace).await?;
        self.add_endpoints(&spec).await?;
        let mut notes = ignored_settings(&spec, &submission.input);
        for (model, error) in self.host.endpoints.lock().await.missing_auxiliary_models() {
            notes.push(format!("beside    {model} is not asked for summaries or titles: {error}"));
        }
        let RunInput { text, images, history, isolation_key, expects, request_hash } = submission.input;
        let request = RunRequest {
            session: target.choice,
            images,
            history,
            task: isolation_key,
            expects,
            spec: Some(spec.clone()),
            idempotency_key: submission.idempotency_key,
            request_hash,
            occurrence: submission.occurrence,
            queueing: submission
                .message
                .map(|message| message.queueing(target.queue.apply(config.queue.queueing()))),
            ..RunRequest::new(text)
        };
        let accepted = self.host.runtime.submit(request).await?;
        Ok(ResolvedRun { accepted, spec, is_new: true, notes })
    }

    /// The spec of a new run. If the known providers have no model for it, they are discovered again: the owner has looked
    /// only for those of its own runs.
    async fn resolve(
        &self,
        (config, variables): (&Config, &Variables),
        request: &SpecRequest<'_>,
        target: &ConversationTarget,
        workspace: &Path,
    ) -> Result<RunSpec, HostError> {
        let folders = (workspace, self.state.as_path());
        let endpoints = self.host.endpoints.lock().await;
        let resolved = new_spec((config, request), target, &endpoints, folders);
        drop(endpoints);
        let Err(HostError::Start(StartError::NoModel(_))) = resolved else { return resolved };
        let known: Vec<&RunSpec> = target.last_spec.iter().collect();
        let providers = model_choice::providers(config, variables, request.model, &known).await;
        let mut endpoints = self.host.endpoints.lock().await;
        endpoints.add_discovered(providers);
        new_spec((config, request), target, &endpoints, folders)
    }

    /// Adds the endpoints that a run with this spec needs.
    async fn add_endpoints(&self, spec: &RunSpec) -> Result<(), HostError> {
        let settings = self.settings();
        let RunSettings { config, variables } = &*settings;
        match self.host.add_endpoints(spec, variables).await {
            Err(HostError::Start(StartError::NoModel(_))) => {}
            added => return added,
        }
        let request = ModelSelection::default();
        let providers = model_choice::providers(config, variables, request, &[spec]).await;
        self.host.endpoints.lock().await.add_discovered(providers);
        self.host.add_endpoints(spec, variables).await
    }

    /// Lets the unfinished runs of a session go on, with their endpoints. Waits until revivals are allowed.
    pub(super) async fn revive_session(&self, session: SessionId) -> Result<(), HostError> {
        self.revivals.cancelled().await;
        if self.host.runtime.health_probe().runs(session).await {
            return Ok(());
        }
        let open = self.reader.read(|rows| rows.open_runs()).await?;
        for row in open.iter().filter(|row| row.session == session) {
            let spec = self.reader.acceptance(row).await?.spec;
            self.add_endpoints(&spec).await?;
        }
        Ok(self.host.runtime.revive(session)?)
    }

    /// The first run of the submission's key. What the spec is made of may have changed since.
    pub(super) async fn first_of_key(
        &self,
        submission: &Submission,
        target: &ConversationTarget,
    ) -> Result<Option<RunRow>, HostError> {
        let Some(key) = &submission.idempotency_key else { return Ok(None) };
        first_of_key(&self.reader, key, &submission.input, &target.choice, &self.state).await
    }
}
