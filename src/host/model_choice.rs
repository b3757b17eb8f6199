//! Chooses the models of a new run, from the request, the conversation, the configuration and the discovered providers.
//! Decides when a local Ollama is queried, and reads the script of a rehearsal. Failover of a run under way is in
//! `actors/`.

use std::path::{Path, PathBuf};

use hermod_actors::model::{Hash, ModelRef, RunSpec};

use super::{
    endpoints::store_script,
    error::{HostError, StartError},
};
use crate::{
    config::{Config, OLLAMA},
    discovery::{self, DiscoveredProvider, RequestedModel, Variables},
    files::read_regular,
    ollama, redaction,
    rehearsal::{MAX_SCRIPT_BYTES, Script},
};

/// The script of a rehearsal for which the caller names no file.
const DEFAULT_SCRIPT: &[u8] = include_bytes!("../rehearsal/default.json");

/// The script of a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RehearsalScript {
    /// The script that comes with the program.
    Embedded,
    /// The script in a file.
    File {
        /// The path of the file.
        path: PathBuf,
        /// The caller's name of the file, for errors.
        name: String,
    },
}

/// The model that a caller asks for.
#[derive(Debug, Clone, Copy, Default)]
pub struct ModelSelection<'a> {
    /// The script of a rehearsal; it replaces all models of the run.
    pub script: Option<&'a RehearsalScript>,
    /// The provider and the model.
    pub model: RequestedModel<'a>,
}

impl ModelSelection<'_> {
    /// True if it selects no model.
    const fn is_open(&self) -> bool {
        self.script.is_none() && self.model.provider.is_none() && self.model.model.is_none()
    }
}

/// When a local Ollama is queried for its models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OllamaProbe {
    /// Unless the configuration has a provider `ollama`: one of its models is named.
    Requested,
    /// Only if no other provider is found.
    IfNoOther,
    /// Never: no model is needed.
    Never,
}

impl OllamaProbe {
    /// The probe for a run whose request names no model.
    pub fn of(config: &Config) -> Self {
        let links = &config.fallback_providers.0;
        let model = config.model.0.as_deref().is_some_and(|model| model.starts_with("ollama/"));
        if model || links.iter().any(|link| &**link.provider() == OLLAMA) {
            Self::Requested
        } else {
            Self::IfNoOther
        }
    }
}

/// The available providers: the configured ones, and the local Ollama if `probe` asks for it. This process redacts their
/// secrets from now on.
pub async fn discover(config: &Config, variables: &Variables, probe: OllamaProbe) -> Vec<DiscoveredProvider> {
    let mut providers = discovery::discover(config, variables);
    for provider in &providers {
        redaction::learn_url(&provider.name, &provider.base_url);
        provider.account.learn_secrets(variables);
    }
    let probes_ollama = match probe {
        OllamaProbe::Requested => providers.iter().all(|provider| &*provider.name != OLLAMA),
        OllamaProbe::IfNoOther => providers.is_empty(),
        OllamaProbe::Never => false,
    };
    if let (true, Some(address)) = (probes_ollama, &config.ollama.address.0) {
        providers.extend(ollama::discover(address, config.provider_defaults).await);
    }
    providers
}

/// The providers for a run with this request, and for the runs accepted earlier.
pub(super) async fn providers(
    config: &Config,
    variables: &Variables,
    request: ModelSelection<'_>,
    known: &[&RunSpec],
) -> Vec<DiscoveredProvider> {
    let used_before = known.iter().any(|spec| spec.chain.iter().any(|link| &**link.provider() == OLLAMA));
    let all_rehearsed = !known.is_empty() && known.iter().all(|spec| spec.script.is_some());
    let RequestedModel { provider, model } = request.model;
    let is_named = provider == Some(OLLAMA) || model.is_some_and(|model| model.starts_with("ollama/"));
    let probe = match (used_before || is_named, request.is_open()) {
        (true, _) => OllamaProbe::Requested,
        (false, _) if request.script.is_some() => OllamaProbe::Never,
        (false, true) if all_rehearsed => OllamaProbe::Never,
        (false, _) => OllamaProbe::of(config),
    };
    discover(config, variables, probe).await
}

/// The model of the request, else that of the configuration.
fn requested_model<'a>(config: &'a Config, request: ModelSelection<'a>) -> RequestedModel<'a> {
    match request.model {
        RequestedModel { provider: None, model: None } => {
            RequestedModel { provider: None, model: config.model.0.as_deref() }
        }
        requested => requested,
    }
}

/// The models of a new run in the order of failover, and the script if it is a rehearsal. The first model is the
/// requested one, else the conversation's, else the configured or discovered one.
pub(super) fn choose(
    config: &Config,
    request: ModelSelection<'_>,
    before: Option<&RunSpec>,
    providers: &[DiscoveredProvider],
    state: &Path,
) -> Result<(Vec<ModelRef>, Option<Hash>), HostError> {
    if let Some(rehearsal) = request.script {
        return script(rehearsal, state);
    }
    let former = before.filter(|_| request.is_open()).and_then(|spec| {
        let model = spec.chain.first()?;
        let is_available =
            spec.script.is_some() || providers.iter().any(|provider| provider.name == *model.provider());
        is_available.then(|| (model.clone(), spec.script))
    });
    let first = match former {
        Some((model, Some(script))) => return Ok((vec![model], Some(script))),
        Some((model, None)) => model,
        None => {
            discovery::choose(providers, requested_model(config, request)).map_err(StartError::NoModel)?
        }
    };
    let chain =
        discovery::chain(providers, first, &config.fallback_providers.0).map_err(StartError::NoModel)?;
    Ok((chain, None))
}

/// Stores the script of a rehearsal, and returns its hash. Works without the store.
pub fn keep_script(rehearsal: &RehearsalScript, state: &Path) -> Result<Option<Hash>, HostError> {
    script(rehearsal, state).map(|(_, hash)| hash)
}

fn script(rehearsal: &RehearsalScript, state: &Path) -> Result<(Vec<ModelRef>, Option<Hash>), HostError> {
    let (json, script) = rehearsal.read()?;
    let (hash, model) = store_script(state, &json, &script)?;
    Ok((vec![model], Some(hash)))
}

impl RehearsalScript {
    /// Refuses a script that cannot be played, before a run needs it.
    pub fn check(&self) -> Result<(), HostError> {
        self.read().map(drop)
    }

    fn read(&self) -> Result<(Vec<u8>, Script), HostError> {
        let (name, json) = match self {
            Self::Embedded => ("the embedded script".to_owned(), DEFAULT_SCRIPT.to_vec()),
            Self::File { path, name } => {
                let json = read_regular(path, MAX_SCRIPT_BYTES)
                    .map_err(|error| HostError::usage(format!("{name}: {error}")))?;
                (name.clone(), json)
            }
        };
        let script = Script::parse(&json).map_err(|error| HostError::usage(format!("{name}: {error}")))?;
        Ok((json, script))
    }
}
