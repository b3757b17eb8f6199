//! Chooses the models of a new run: from arguments, conversation, configuration and discovery.

use std::path::Path;

use hermod_actors::model::{Hash, ModelRef, RunSpec};

use super::args::{RehearsalScript, RunArgs};
use crate::{
    cli::exit::CliError,
    config::{Config, OLLAMA},
    discovery::{self, DiscoveredProvider, RequestedModel, Variables},
    files::read_regular,
    host::{self, StartError},
    ollama,
    rehearsal::{MAX_SCRIPT_BYTES, Script},
};

/// The script of a rehearsal without a file.
const DEFAULT_SCRIPT: &[u8] = include_bytes!("../../rehearsal/default.json");

/// The models of a new run, and the script if it is a rehearsal.
#[derive(Debug)]
pub(crate) struct ModelChoice {
    /// The models, in the order of failover.
    pub(crate) chain: Vec<ModelRef>,
    pub(crate) script: Option<Hash>,
}

/// When a local Ollama is queried for its models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OllamaProbe {
    /// It is requested by name.
    Requested,
    /// Only if no other provider is found.
    IfNoOther,
    /// Never: no model is needed.
    Never,
}

impl OllamaProbe {
    /// The probe for a run whose arguments name no model.
    pub(crate) fn of(config: &Config) -> Self {
        let links = &config.fallback_providers.0;
        let model = config.model.0.as_deref().is_some_and(|model| model.starts_with("ollama/"));
        if model || links.iter().any(|link| &**link.provider() == OLLAMA) {
            Self::Requested
        } else {
            Self::IfNoOther
        }
    }
}

/// The available providers.
pub(crate) async fn discover(
    config: &Config,
    variables: &Variables,
    local: OllamaProbe,
) -> Vec<DiscoveredProvider> {
    let mut found = discovery::discover(config, variables);
    let asked = match local {
        OllamaProbe::Requested => found.iter().all(|found| &*found.name != OLLAMA),
        OllamaProbe::IfNoOther => found.is_empty(),
        OllamaProbe::Never => false,
    };
    if let (true, Some(address)) = (asked, &config.ollama.address.0) {
        found.extend(ollama::discover(address, config.provider_defaults).await);
    }
    found
}

/// The providers for a run with these arguments, and for the runs accepted earlier.
pub(crate) async fn providers(
    (config, variables): (&Config, &Variables),
    args: &RunArgs,
    known: &[&RunSpec],
) -> Vec<DiscoveredProvider> {
    let before = known.iter().any(|spec| spec.chain.iter().any(|link| &**link.provider() == OLLAMA));
    let goes_on = !known.is_empty() && known.iter().all(|spec| spec.script.is_some());
    let said = args.model.wanted();
    let named = said.provider == Some(OLLAMA) || said.model.is_some_and(|model| model.starts_with("ollama/"));
    let local = match (before || named, args.model.is_open()) {
        (true, _) => OllamaProbe::Requested,
        (false, _) if args.model.rehearse.is_some() => OllamaProbe::Never,
        (false, true) if goes_on => OllamaProbe::Never,
        (false, _) => OllamaProbe::of(config),
    };
    discover(config, variables, local).await
}

/// The model of the command line, else that of the configuration.
fn wanted<'a>(config: &'a Config, args: &'a RunArgs) -> RequestedModel<'a> {
    match args.model.wanted() {
        RequestedModel { provider: None, model: None } => {
            RequestedModel { provider: None, model: config.model.0.as_deref() }
        }
        said => said,
    }
}

/// The models of a new run: the first is the requested one, else the conversation's, else the configured or
/// discovered one.
pub(crate) fn choose(
    (config, args): (&Config, &RunArgs),
    before: Option<&RunSpec>,
    found: &[DiscoveredProvider],
    state: &Path,
) -> Result<ModelChoice, CliError> {
    if let Some(play) = &args.model.rehearse {
        return script(play, state);
    }
    let goes_on = before.filter(|_| args.model.is_open()).and_then(|spec| {
        let model = spec.chain.first()?;
        let here = spec.script.is_some() || found.iter().any(|found| found.name == *model.provider());
        here.then(|| (model.clone(), spec.script))
    });
    let first = match goes_on {
        Some((model, Some(script))) => return Ok(ModelChoice { chain: vec![model], script: Some(script) }),
        Some((model, None)) => model,
        None => discovery::choose(found, wanted(config, args)).map_err(StartError::NoModel)?,
    };
    let chain = discovery::chain(found, first, &config.fallback_providers.0).map_err(StartError::NoModel)?;
    Ok(ModelChoice { chain, script: None })
}

fn script(play: &RehearsalScript, state: &Path) -> Result<ModelChoice, CliError> {
    let (name, json) = match play {
        RehearsalScript::Embedded => ("the embedded script".to_owned(), DEFAULT_SCRIPT.to_vec()),
        RehearsalScript::File(path) => {
            let name = format!("--rehearse={}", path.display());
            let json = read_regular(path, MAX_SCRIPT_BYTES)
                .map_err(|error| CliError::usage(format!("{name}: {error}")))?;
            (name, json)
        }
    };
    let script = Script::parse(&json).map_err(|error| CliError::usage(format!("{name}: {error}")))?;
    let (hash, model) = host::store_script(state, &json, &script)?;
    Ok(ModelChoice { chain: vec![model], script: Some(hash) })
}
