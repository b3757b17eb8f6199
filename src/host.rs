//! The composition root: the one module that knows all adapters and assembles a runtime from them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hermod_actors::{
    Defaults, Runtime, RuntimeDependencies, RuntimeEnd,
    model::{BreakerPolicy, Hash, ModelRef, RunId, RunSpec},
    port::{DiskSpaceGauge, Journal, ModelProvider, Tool},
};
use rustix::fs::FlockOperation;
use tokio::time::timeout;

use crate::{
    artifacts::FileArtifacts,
    clock::{self, SystemClock},
    config::{Config, ConfigErrors, ProviderDefaults},
    discovery::{self, DiscoveredProvider, DiscoverySource, ModelChoiceError, Variables},
    disk_space::DiskSpaceMonitor,
    files::{self, read_regular},
    maintenance::scripts,
    memory::MemoryFiles,
    process::runner::Runner,
    provider::{HttpProvider, ProviderConfigError},
    provider_account::ProviderAccount,
    rehearsal::{MAX_SCRIPT_BYTES, Rehearsal, RehearsalHandle, Script, ScriptError},
    run_defaults,
    store::redb::{Durability, OpenError, RedbJournal},
    tool,
};

/// Limit of submissions that wait until they are durable.
const MAX_PENDING_SUBMISSIONS: usize = 1_024;
/// Limit of summary calls in progress. A provider's own limit bounds them too.
const MAX_CONCURRENT_SUMMARIES: usize = 16;
/// Time limit of the cleanup at a normal shutdown: stopping a command, and its end.
const CLEANUP_TIMEOUT: Duration = Duration::from_millis(2_600);
/// Time limit of signalling commands to end, with slack; their runners then end them.
const URGENT_CLEANUP_TIMEOUT: Duration = Duration::from_millis(200);
/// The folder of rehearsal scripts in the state directory.
pub(crate) const SCRIPTS: &str = "scripts";
/// This process's own program, also after its file was replaced.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

/// Why a runtime could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No environment variable names a place for the state.
    #[error("there is no place for state: set HERMOD_HOME, XDG_STATE_HOME or HOME")]
    NoHome,
    /// The configuration has errors.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The state directory cannot be used.
    #[error("{}: {source}; the state directory must be writable by this user", path.display())]
    State {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The tools cannot work in this folder.
    #[error("workspace {}: {reason}", path.display())]
    Workspace {
        /// The folder.
        path: PathBuf,
        /// The problem and its remedy.
        reason: String,
    },
    /// Two providers or two tools have the same name.
    #[error("there are two {what}s `{name}`; give each a name of its own")]
    DuplicateName {
        /// `provider` or `tool`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A required model is not available.
    #[error(transparent)]
    NoModel(#[from] ModelChoiceError),
    /// A provider's configuration is not usable.
    #[error(transparent)]
    Provider(#[from] ProviderConfigError),
    /// No model was given.
    #[error("no model was given; name at least one")]
    NoModels,
    /// The script of a resumed rehearsal cannot be read.
    #[error("{}: {reason}; the rehearsal that needs it cannot go on without it", path.display())]
    Script {
        /// The script's expected path.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// The rehearsal could not listen on its port.
    #[error("the rehearsal cannot listen on 127.0.0.1: {0}")]
    Listen(io::Error),
    /// The actors did not start.
    #[error("{0}")]
    Actors(RuntimeEnd),
}

/// The state directory: `HERMOD_HOME`, else `$XDG_STATE_HOME/hermod`, else `~/.local/state/hermod`.
pub fn state_dir(variables: &Variables) -> Result<PathBuf, StartError> {
    let set = |key: &str| variables.get(key).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("HERMOD_HOME")
        .or_else(|| Some(set("XDG_STATE_HOME")?.join("hermod")))
        .or_else(|| Some(set("HOME")?.join(".local/state/hermod")))
        .ok_or(StartError::NoHome)
}

/// The reason why tools must not work in this folder, given by its real path; `None` if they may. A folder above the
/// state directory, such as `$HOME`, is allowed: file tools leave the state directory out.
pub(crate) fn workspace_problem(folder: &Path, state: &Path) -> Option<String> {
    if !folder.is_dir() {
        return Some("it is no folder".to_owned());
    }
    if folder.to_str().is_none() {
        return Some("its path is not UTF-8; use another folder".to_owned());
    }
    folder.starts_with(state).then(|| {
        format!(
            "it lies in Hermod's state directory {}, which no tool may change; use another folder, or move the state with \
             HERMOD_HOME",
            state.display()
        )
    })
}

/// Creates the state directory if it is missing, and returns its real path.
pub fn create_state_dir(dir: &Path) -> Result<PathBuf, StartError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.and_then(|()| dir.canonicalize())
        .map_err(|source| StartError::State { path: dir.to_owned(), source })
}

/// Opens the store in the state directory.
pub fn open(state: &Path, durability: Durability) -> Result<Arc<RedbJournal>, StartError> {
    Ok(Arc::new(RedbJournal::open(state, durability)?))
}

/// The name of the rehearsal provider for a script.
fn rehearsal_provider_name(script: Hash) -> Arc<str> {
    let mut name = format!("rehearsal-{script}");
    name.truncate("rehearsal-".len() + 8);
    name.into()
}

/// Stores a script under its hash for as long as a run may need it. Returns the hash, and the model name for the
/// run's chain.
pub fn store_script(state: &Path, json: &[u8], script: &Script) -> Result<(Hash, ModelRef), StartError> {
    let hash = Hash::of(json);
    let (folder, path) = (state.join(SCRIPTS), script_path(state, hash));
    let write = || {
        // Another process may be writing the same script.
        let part = path.with_extension(format!("{}.part", std::process::id()));
        files::remove(&part)?;
        files::write(&part, json)?;
        fs::rename(&part, &path)?;
        files::sync_folder(&folder)
    };
    let keep = || {
        files::make_folder(&folder)?;
        let _no_sweep = scripts::lock_folder(&folder, FlockOperation::LockShared)?;
        if path.exists() { scripts::touch(&path) } else { write() }
    };
    keep().map_err(|source| StartError::State { path: path.clone(), source })?;
    let model = script.model();
    let model = model.strip_prefix("rehearsal/").unwrap_or(&model);
    Ok((hash, ModelRef::new(rehearsal_provider_name(hash), model).map_err(ModelChoiceError::Name)?))
}

fn script_path(state: &Path, hash: Hash) -> PathBuf {
    state.join(SCRIPTS).join(format!("{hash}.json"))
}

/// The endpoints that runs need; each is created when the first run needs it.
#[derive(Debug)]
pub struct Endpoints {
    discovered_providers: Vec<DiscoveredProvider>,
    state: PathBuf,
    /// Settings of the rehearsal providers.
    limits: ProviderDefaults,
    providers: BTreeMap<Arc<str>, (Arc<dyn ModelProvider>, usize)>,
    rehearsals: Vec<RehearsalHandle>,
    missing_auxiliary_models: Vec<(ModelRef, String)>,
}

impl Endpoints {
    /// No endpoints yet; they are created from the discovered providers and from the scripts stored in `state`.
    pub fn new(
        discovered_providers: Vec<DiscoveredProvider>,
        state: PathBuf,
        limits: ProviderDefaults,
    ) -> Self {
        Self {
            discovered_providers,
            state,
            limits,
            providers: BTreeMap::new(),
            rehearsals: Vec::new(),
            missing_auxiliary_models: Vec::new(),
        }
    }

    /// Auxiliary models that are not available, each with the reason.
    pub fn missing_auxiliary_models(&self) -> &[(ModelRef, String)] {
        &self.missing_auxiliary_models
    }

    /// The discovered providers.
    pub fn discovered_providers(&self) -> &[DiscoveredProvider] {
        &self.discovered_providers
    }

    /// Adds the endpoints for a run with this spec. The providers' keys are read only here.
    pub async fn add_for_run(&mut self, spec: &RunSpec, variables: &Variables) -> Result<(), StartError> {
        match self.add_available(spec, variables).await.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(()),
        }
    }

    /// Adds the endpoints as `add_for_run` does, and returns the unavailable providers, each with the
    /// reason.
    pub async fn add_available(
        &mut self,
        spec: &RunSpec,
        variables: &Variables,
    ) -> Vec<(Arc<str>, StartError)> {
        let mut missing = Vec::new();
        for link in &spec.chain {
            if let Err(error) = self.add_provider(link.provider(), spec, variables).await {
                missing.push((Arc::clone(link.provider()), error));
            }
        }
        // An auxiliary model is not required for the run.
        for link in spec.auxiliary_models() {
            if let Err(error) = self.add_provider(link.provider(), spec, variables).await {
                tracing::warn!(model = %link, %error, "it cannot be asked beside runs");
                if self.missing_auxiliary_models.iter().all(|(known, _)| known != link) {
                    self.missing_auxiliary_models.push((link.clone(), error.to_string()));
                }
            }
        }
        missing
    }

    async fn add_provider(
        &mut self,
        name: &Arc<str>,
        spec: &RunSpec,
        variables: &Variables,
    ) -> Result<(), StartError> {
        if self.providers.contains_key(name) {
            return Ok(());
        }
        let provider = match spec.script.filter(|script| rehearsal_provider_name(*script) == *name) {
            Some(script) => self.start_rehearsal(script).await,
            None => self.connect(name, variables),
        }?;
        self.providers.insert(Arc::clone(name), provider);
        Ok(())
    }

    fn connect(
        &self,
        name: &str,
        variables: &Variables,
    ) -> Result<(Arc<dyn ModelProvider>, usize), StartError> {
        let found = self.discovered_providers.iter().find(|found| *found.name == *name);
        let found = found.ok_or_else(|| discovery::unknown_provider(&self.discovered_providers, name))?;
        endpoint(found, variables, &self.state)
    }

    async fn start_rehearsal(&mut self, hash: Hash) -> Result<(Arc<dyn ModelProvider>, usize), StartError> {
        let path = script_path(&self.state, hash);
        let wrong = |reason: String| StartError::Script { path: path.clone(), reason };
        let json = read_regular(&path, MAX_SCRIPT_BYTES).map_err(|error| wrong(error.to_string()))?;
        let script = Script::parse(&json).map_err(|error: ScriptError| wrong(error.to_string()))?;
        let running = Rehearsal::start("127.0.0.1:0", Arc::new(script)).await.map_err(StartError::Listen)?;
        let player = DiscoveredProvider {
            name: rehearsal_provider_name(hash),
            source: DiscoverySource::Local,
            base_url: running.base_url.clone(),
            wire: "chat_completions",
            account: ProviderAccount::default(),
            model: Err("it plays a script".into()),
            limits: self.limits,
        };
        self.rehearsals.push(running);
        let provider = HttpProvider::new(player.config(&Variables::new(), &self.state)?)?;
        Ok((Arc::new(provider.without_model_list()), max_calls(&player)))
    }
}

/// A provider's adapter, and the limit of its concurrent calls.
pub(crate) fn endpoint(
    found: &DiscoveredProvider,
    variables: &Variables,
    state: &Path,
) -> Result<(Arc<dyn ModelProvider>, usize), StartError> {
    Ok((Arc::new(HttpProvider::new(found.config(variables, state)?)?), max_calls(found)))
}

fn max_calls(found: &DiscoveredProvider) -> usize {
    usize::try_from(found.limits.calls.0).unwrap_or(usize::MAX)
}

/// A running runtime with its rehearsals.
#[derive(Debug)]
pub struct RuntimeHost {
    /// The runtime.
    pub runtime: Runtime,
    runner: Runner,
    _rehearsals: Vec<RehearsalHandle>,
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
    /// Suspends all sessions and waits for the end of commands of abandoned runs. If urgent, it waits only until they
    /// are signalled.
    pub async fn suspend(self, leave: ShutdownUrgency) {
        self.runtime.suspend().await;
        let limit = match leave {
            ShutdownUrgency::Normal => CLEANUP_TIMEOUT,
            ShutdownUrgency::Urgent => URGENT_CLEANUP_TIMEOUT,
        };
        if timeout(limit, self.runner.wait_cleared()).await.is_err() {
            tracing::debug!("what is kept of commands is cleared at the next start");
        }
    }
}

/// Starts the actors on a store, in a process that runs the `hermod` program. No session is revived by this.
pub async fn start(
    journal: Arc<dyn Journal>,
    endpoints: Endpoints,
    (config, defaults): (&Config, Defaults),
) -> Result<RuntimeHost, StartError> {
    let Endpoints { providers, rehearsals: stages, state, .. } = endpoints;
    let providers = providers.into_iter().map(|(name, (adapter, calls))| (name, adapter, calls)).collect();
    let breakers = run_defaults::breakers(&config.breaker);
    let runner = Runner::new(OWN_PROGRAM, &state);
    remove_command_leftovers(&*journal, &runner).await;
    let [for_work, for_user] = [config.memory.memory_chars.0, config.memory.user_chars.0]
        .map(|chars| usize::try_from(chars).unwrap_or(usize::MAX));
    let memory = config.memory.enabled.0.then(|| MemoryFiles::new(&state, for_work, for_user));
    let tools = tool::builtin(tool::Settings {
        state: Some(state.clone()),
        memory,
        shell_timeout: config.tools.shell.timeout.0,
        runner: Some(runner.clone()).filter(|_| Path::new(OWN_PROGRAM).exists()),
        skills: run_defaults::skills(config, &state),
    });
    let runtime = runtime(HostDependencies {
        journal,
        space: space(config, &state),
        state,
        providers,
        breakers,
        tools,
        tool_calls: tool_calls(config),
        idle: config.sessions.idle.0,
        defaults,
    })
    .await?;
    Ok(RuntimeHost { runtime, runner, _rehearsals: stages })
}

/// Starts the actors for writing to a store without running anything. No run starts, so no provider is needed and the
/// user's configuration is not read; its errors cannot prevent the write.
pub async fn start_write_only(
    (journal, state): (Arc<dyn Journal>, &Path),
) -> Result<RuntimeHost, StartError> {
    let config = Config::load(&[], &BTreeMap::new())?;
    let defaults = Defaults::fixed(run_defaults::spec(&config, Vec::new(), None, state), "");
    let endpoints = Endpoints::new(Vec::new(), state.to_owned(), config.provider_defaults);
    start(journal, endpoints, (&config, defaults)).await
}

/// Starts to remove what commands of ended runs left, beside the working runtime.
async fn remove_command_leftovers(journal: &dyn Journal, runner: &Runner) {
    match journal.rows().open_runs().await {
        Ok(rows) => {
            let open: BTreeSet<RunId> = rows.iter().map(|row| row.id).collect();
            tokio::spawn(runner.sweep(|run| open.contains(&run)));
        }
        Err(error) => tracing::warn!(%error, "what ended runs have left is not cleared now"),
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
    /// How long a failing model is not called.
    pub(crate) breakers: BreakerPolicy,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    /// Limit of concurrent tool calls.
    pub(crate) tool_calls: usize,
    /// How long an idle session stays in memory.
    pub(crate) idle: Duration,
    /// Reports when the disk has too little free space to accept more work.
    pub(crate) space: Arc<dyn DiskSpaceGauge>,
    /// The spec and prompt of requests that set none.
    pub(crate) defaults: Defaults,
}

/// The configured limit of concurrent tool calls.
pub(crate) fn tool_calls(config: &Config) -> usize {
    usize::try_from(config.tools.calls.0).unwrap_or(usize::MAX)
}

/// Compares the free space on the disk of the state directory with the configured reserve.
pub(crate) fn space(config: &Config, state: &Path) -> Arc<dyn DiskSpaceGauge> {
    Arc::new(DiskSpaceMonitor::new(state, config.store.reserve.0))
}

/// Starts the actors with these parts.
pub(crate) async fn runtime(parts: HostDependencies) -> Result<Runtime, StartError> {
    let HostDependencies { journal, state, providers, breakers, tools, tool_calls, idle, space, defaults } =
        parts;
    let artifacts =
        FileArtifacts::open(&state).map_err(|source| StartError::State { path: state, source })?;
    let world = RuntimeDependencies {
        boot: clock::boot_of(journal.restore_generation()),
        journal,
        clock: Arc::new(SystemClock::default()),
        providers,
        breakers,
        tools,
        tool_calls,
        submissions: MAX_PENDING_SUBMISSIONS,
        summaries: MAX_CONCURRENT_SUMMARIES,
        idle,
        space: Some(space),
        artifacts: Arc::new(artifacts),
        defaults,
    };
    Runtime::start(world).await.map_err(StartError::Actors)
}

#[cfg(test)]
#[path = "daemon_tests.rs"]
mod tests;
