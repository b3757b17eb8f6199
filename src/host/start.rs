//! The composition root: the one module that knows all adapters and assembles a runtime from them. It also suspends
//! that runtime, and clears what commands of ended runs have left. A write-only start serves a single change of the
//! store, without providers and configuration.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use hermod_actors::{
    Defaults, RunError, Runtime, RuntimeDependencies, RuntimeEnd,
    model::{RunId, RunSpec},
    port::{CallPolicy, DecisionHooks, Journal, MemoryWriter, ModelProvider, Tool, Verifier},
};
use tokio::{sync::Mutex, time::timeout};

use super::{
    agents::tool_settings,
    endpoints::Endpoints,
    error::{HostError, StartError},
    exchangeable::Exchangeable,
    notes::NoteSink,
    policy::AgentPolicies,
    run_defaults,
    sandbox_rules::note_missing_protections,
};
use crate::{
    artifacts::FileArtifacts,
    clock::{self, SystemClock},
    config::Config,
    delivery::{Deliverer, OutboxJournal, OutboxSignal, TargetOutputs, described_targets},
    discovery::Variables,
    disk_space::DiskSpaceMonitor,
    files::{IoResult as _, off_thread},
    hooks::{ConfiguredHooks, HookObservers, HookedPrompt},
    inbound::InboundEndpoints,
    picture::ModelPictures,
    process::{
        runner::{OWN_PROGRAM, Runner},
        sandbox::remove_temp_folders,
    },
    prompt::skill_folders,
    redaction,
    tool::{
        self, ExpectationVerifier, MemoryFilesWriter,
        skills::{SkillFolders, own_variable},
    },
};

/// Limit of submissions that wait until they are durable.
const MAX_PENDING_SUBMISSIONS: usize = 1_024;
/// Limit of summary calls in progress. A provider's own limit bounds them too.
const MAX_CONCURRENT_SUMMARIES: usize = 16;
/// Time limit of the cleanup at a normal shutdown, in which commands of abandoned runs are stopped and end.
const CLEANUP_TIMEOUT: Duration = Duration::from_millis(2_600);
/// Time limit of telling hooks what has happened, at a normal shutdown. The next process tells them the rest.
const OBSERVERS_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit of signalling commands to end, with slack; their runners then end them.
const URGENT_CLEANUP_TIMEOUT: Duration = Duration::from_millis(200);

/// A running runtime with its endpoints. A program that embeds it may share the runtime.
#[derive(Debug)]
pub struct RuntimeHost {
    /// The runtime.
    pub runtime: Arc<Runtime>,
    /// The endpoints of its runs; the rehearsals among them end with this.
    pub(super) endpoints: Mutex<Endpoints>,
    pub(super) runner: Runner,
    pub(super) journal: Arc<dyn Journal>,
    pub(super) outbox: OutboxSignal,
    /// Delivers messages, with the outputs of targets within the process; once it is started.
    pub(super) deliverer: OnceLock<(Deliverer, TargetOutputs)>,
    pub(super) state: PathBuf,
    pub(super) policy: Arc<Exchangeable<AgentPolicies>>,
    pub(super) hooks: Arc<Exchangeable<ConfiguredHooks>>,
    observers: Mutex<HookObservers>,
    pub(super) inbound: Arc<Exchangeable<InboundEndpoints>>,
    pub(super) notes: Option<Arc<dyn NoteSink>>,
}

/// How urgently a process closes its runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownUrgency {
    /// The work is done.
    Normal,
    /// The process was told to end soon.
    Urgent,
}

impl RuntimeHost {
    /// The state directory.
    pub fn state_dir(&self) -> &Path {
        &self.state
    }

    /// The hooks.
    pub fn hooks(&self) -> Arc<ConfiguredHooks> {
        self.hooks.get()
    }

    /// Exchanges the hooks, and starts the observers anew. Those that were disabled are told again.
    pub(super) async fn exchange_hooks(&self, hooks: ConfiguredHooks) -> Result<(), HostError> {
        self.hooks.exchange(hooks);
        let mut observers = self.observers.lock().await;
        observers.stop(URGENT_CLEANUP_TIMEOUT).await;
        let (hooks, journal) = (self.hooks.get(), &self.journal);
        let started = HookObservers::start(&hooks, &self.runtime, journal, &self.state).await;
        *observers = started.map_err(RunError::Read)?;
        Ok(())
    }

    /// Adds the endpoints that a run with this spec needs; other runs continue.
    pub async fn add_endpoints(&self, spec: &RunSpec, variables: &Variables) -> Result<(), HostError> {
        let mut endpoints = self.endpoints.lock().await;
        let known = endpoints.count();
        let added = endpoints.add_for_run(spec, variables).await;
        if endpoints.count() > known {
            self.runtime.exchange_providers(endpoints.providers())?;
        }
        Ok(added?)
    }

    /// Suspends all sessions and waits for the end of commands of abandoned runs. If urgent, it waits only until they
    /// are signalled.
    pub async fn suspend(&self, urgency: ShutdownUrgency) {
        if let Some((deliverer, _)) = self.deliverer.get() {
            deliverer.stop();
        }
        self.runtime.shut_down().await;
        self.observers
            .lock()
            .await
            .stop(match urgency {
                ShutdownUrgency::Normal => OBSERVERS_TIMEOUT,
                ShutdownUrgency::Urgent => URGENT_CLEANUP_TIMEOUT,
            })
            .await;
        let limit = match urgency {
            ShutdownUrgency::Normal => CLEANUP_TIMEOUT,
            ShutdownUrgency::Urgent => URGENT_CLEANUP_TIMEOUT,
        };
        let cleared = async {
            self.runner.wait_cleared().await;
            if let Some(open) = open_runs(&*self.journal).await {
                remove_temporary_files(&self.state, open).await;
            }
        };
        if timeout(limit, cleared).await.is_err() {
            tracing::debug!("what is kept of commands is cleared at the next start");
        }
    }
}

/// Starts the actors on a store, in a process that runs the `hermod` program. No session is revived by this. What a
/// person has to know of the policy goes to `notes`.
pub async fn start(
    journal: Arc<dyn Journal>,
    endpoints: Endpoints,
    (config, variables): (&Config, &Variables),
    defaults: Defaults,
    notes: Option<Arc<dyn NoteSink>>,
) -> Result<RuntimeHost, StartError> {
    let (providers, state) = (endpoints.providers(), endpoints.state.clone());
    let outbox = OutboxSignal::default();
    let journal: Arc<dyn Journal> = Arc::new(OutboxJournal::new(journal, outbox.clone()));
    let runner = Runner::new(OWN_PROGRAM, &state);
    remove_command_leftovers(&*journal, &runner, &state).await;
    let tools = configured_tools(config, &state, &runner).await;
    note_missing_protections(config, &state, notes.as_ref());
    let policy = Exchangeable::new(checked_policy(config, &state, notes.clone()).await);
    let hooks = Exchangeable::new(ConfiguredHooks::new(config, variables, &state));
    let prompt = HookedPrompt { builder: defaults.prompt, hooks: Arc::clone(&hooks) };
    let defaults = Defaults { prompt: Arc::new(prompt), ..defaults };
    let dependencies = HostDependencies {
        journal: Arc::clone(&journal),
        state: state.clone(),
        providers,
        tools,
        defaults,
        policy: Arc::<Exchangeable<AgentPolicies>>::clone(&policy),
        hooks: Arc::<Exchangeable<ConfiguredHooks>>::clone(&hooks),
    };
    let runtime = Arc::new(runtime(config, dependencies).await?);
    runtime.set_verifier(verifier(config, &state, &runner, &policy));
    runtime.set_memory(memory_writer(config, &state, &runner));
    // Before runs go on, so that none ends unseen.
    let observers = HookObservers::start(&hooks.get(), &runtime, &journal, &state).await;
    let observers =
        Mutex::new(observers.map_err(|error| StartError::Actors(RuntimeEnd::Store(error.to_string())))?);
    Ok(RuntimeHost {
        runtime,
        endpoints: Mutex::new(endpoints),
        runner,
        journal,
        outbox,
        deliverer: OnceLock::new(),
        state,
        policy,
        hooks,
        observers,
        inbound: Exchangeable::new(InboundEndpoints::default()),
        notes,
    })
}

/// The tools of this configuration. What commands get by skills is redacted from now on.
pub(super) async fn configured_tools(config: &Config, state: &Path, runner: &Runner) -> Vec<Arc<dyn Tool>> {
    for (_, config) in config.agents() {
        learn_skill_variables(skill_folders(config, state)).await;
    }
    let mut tools = tool::builtin(tool_settings(config, state, runner));
    if !config.targets.is_empty() {
        let files = config.attachments.limits();
        tools.push(Arc::new(tool::MessageTool::new(described_targets(config), files, state)));
    }
    tools
}

/// Checks the expectations of runs by this configuration.
pub(super) fn verifier(
    config: &Config,
    state: &Path,
    runner: &Runner,
    policy: &Arc<Exchangeable<AgentPolicies>>,
) -> Arc<dyn Verifier> {
    let policy = Arc::<Exchangeable<AgentPolicies>>::clone(policy);
    Arc::new(ExpectationVerifier::new(tool_settings(config, state, runner), policy))
}

/// Writes what memory flushes find to the files of this configuration.
pub(super) fn memory_writer(config: &Config, state: &Path, runner: &Runner) -> Arc<dyn MemoryWriter> {
    Arc::new(MemoryFilesWriter::new(tool_settings(config, state, runner)))
}

/// The policies of this configuration. The list of approved rules is read at each call; a damage is reported before the first
/// one.
pub(crate) async fn checked_policy(
    config: &Config,
    state: &Path,
    notes: Option<Arc<dyn NoteSink>>,
) -> AgentPolicies {
    let policy = AgentPolicies::new(config, state, notes);
    let approved = Arc::clone(policy.approved());
    let (Ok(_) | Err(_)) = off_thread(move || Ok(approved.list())).await;
    policy
}

/// Starts the actors for writing to a store without running anything. No run starts, so no provider is needed and the
/// user's configuration is not read; its errors cannot prevent the write.
pub async fn start_write_only(journal: Arc<dyn Journal>, state: &Path) -> Result<RuntimeHost, StartError> {
    let config = Config::load(&[], &BTreeMap::new())?;
    let defaults = Defaults::fixed(run_defaults::spec(&config, Vec::new(), None, state), "");
    let endpoints = Endpoints::new(Vec::new(), state.to_owned(), config.provider_defaults);
    start(journal, endpoints, (&config, &Variables::new()), defaults, None).await
}

/// Redacts the values that commands get by skills, before a command of an earlier process is attached to.
async fn learn_skill_variables(skills: SkillFolders) {
    let variables = off_thread(move || Ok(skills.read_operators().variables(own_variable))).await;
    match variables {
        Ok(variables) => variables.iter().for_each(|(name, value)| redaction::learn_variable(name, value)),
        Err(error) => tracing::warn!(%error, "the variables that skills declare are not redacted yet"),
    }
}

/// Removes what commands of ended runs have left. Their folders take a while: the runtime works meanwhile.
async fn remove_command_leftovers(journal: &dyn Journal, runner: &Runner, state: &Path) {
    if let Some(open) = open_runs(journal).await {
        tokio::spawn(runner.sweep(|run| open.contains(&run)));
        remove_temporary_files(state, open).await;
    }
}

/// The runs that have not ended; `None` if they cannot be read, so that nothing may be removed.
async fn open_runs(journal: &dyn Journal) -> Option<BTreeSet<RunId>> {
    match journal.rows().open_runs().await {
        Ok(rows) => Some(rows.iter().map(|row| row.id).collect()),
        Err(error) => {
            tracing::warn!(%error, "what ended runs have left is not cleared now");
            None
        }
    }
}

async fn remove_temporary_files(state: &Path, open: BTreeSet<RunId>) {
    let state = state.to_owned();
    if let Err(error) = off_thread(move || remove_temp_folders(&state, |run| open.contains(&run))).await {
        tracing::warn!(%error, "temporary files of ended runs stay until the next start");
    }
}

/// The parts of a runtime that differ between its users.
#[derive(Debug)]
pub(crate) struct HostDependencies {
    /// The open store.
    pub(crate) journal: Arc<dyn Journal>,
    /// The state directory.
    pub(crate) state: PathBuf,
    /// The endpoints by name, each with the limit of its concurrent calls.
    pub(crate) providers: Vec<(Arc<str>, Arc<dyn ModelProvider>, usize)>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    /// The spec and prompt of requests that set none.
    pub(crate) defaults: Defaults,
    /// Judges tool calls.
    pub(crate) policy: Arc<dyn CallPolicy>,
    /// Decide about calls.
    pub(crate) hooks: Arc<dyn DecisionHooks>,
}

/// Starts the actors with these parts and the configured limits.
pub(crate) async fn runtime(config: &Config, dependencies: HostDependencies) -> Result<Runtime, StartError> {
    let HostDependencies { journal, state, providers, tools, defaults, policy, hooks } = dependencies;
    let space = DiskSpaceMonitor::new(&state, config.store.reserve.0);
    let artifacts = FileArtifacts::open(&state).at(&state)?;
    let dependencies = RuntimeDependencies {
        boot: clock::boot_of(journal.restore_generation()),
        journal,
        clock: Arc::new(SystemClock::default()),
        providers,
        breakers: run_defaults::breakers(&config.breaker),
        tools,
        policy,
        hooks,
        tool_calls: usize::try_from(config.tools.calls.0).unwrap_or(usize::MAX),
        submissions: MAX_PENDING_SUBMISSIONS,
        summaries: MAX_CONCURRENT_SUMMARIES,
        idle: config.sessions.idle.0,
        space: Some(Arc::new(space)),
        artifacts: Arc::new(artifacts),
        pictures: Arc::new(ModelPictures::default()),
        redactor: Arc::new(redaction::of_process().clone()),
        defaults,
    };
    let runtime = Runtime::start(dependencies).await.map_err(StartError::Actors)?;
    runtime.set_store_limits(config.limits.by_period());
    runtime.set_lane_limits(config.lanes.limits());
    Ok(runtime)
}
