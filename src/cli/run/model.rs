use std::path::Path;

use hermod_actors::model::{Hash, ModelRef, RunSpec};

use super::args::{Play, RunArgs};
use crate::{
    cli::exit::Failure,
    config::{Config, OLLAMA},
    daemon::{self, StartError},
    environment::{self, Found, Variables, Wanted},
    files::read_regular,
    ollama,
    rehearsal::{MAX_SCRIPT_BYTES, Script},
};

/// The script that is played when none is named.
const STOCK: &[u8] = include_bytes!("../../rehearsal/default.json");

/// The model of a new run, and the script if it is a rehearsal.
#[derive(Debug)]
pub(crate) struct Choice {
    /// The models: the first, and those behind it.
    pub(crate) chain: Vec<ModelRef>,
    /// The script.
    pub(crate) script: Option<Hash>,
}

/// When a local Ollama is asked for its models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Local {
    /// It is meant.
    Meant,
    /// Nothing else is there.
    IfAlone,
    /// No model is needed.
    Never,
}

impl Local {
    /// What a run without a word about models needs.
    pub(crate) fn of(config: &Config) -> Self {
        let links = &config.fallback_providers.0;
        let model = config.model.0.as_deref().is_some_and(|model| model.starts_with("ollama/"));
        if model || links.iter().any(|link| &**link.provider() == OLLAMA) {
            Self::Meant
        } else {
            Self::IfAlone
        }
    }
}

/// The providers that there are.
pub(crate) async fn discover(config: &Config, variables: &Variables, local: Local) -> Vec<Found> {
    let mut found = environment::found(config, variables);
    let asked = match local {
        Local::Meant => found.iter().all(|found| &*found.name != OLLAMA),
        Local::IfAlone => found.is_empty(),
        Local::Never => false,
    };
    if let (true, Some(address)) = (asked, &config.ollama.address.0) {
        found.extend(ollama::ask(address, config.provider_defaults).await);
    }
    found
}

/// The providers for a run with these arguments, and for those that were accepted before.
pub(crate) async fn providers(
    (config, variables): (&Config, &Variables),
    args: &RunArgs,
    known: &[&RunSpec],
) -> Vec<Found> {
    let before = known.iter().any(|spec| spec.chain.iter().any(|link| &**link.provider() == OLLAMA));
    let goes_on = !known.is_empty() && known.iter().all(|spec| spec.script.is_some());
    let said = args.model.wanted();
    let named = said.provider == Some(OLLAMA) || said.model.is_some_and(|model| model.starts_with("ollama/"));
    let local = match (before || named, args.model.is_open()) {
        (true, _) => Local::Meant,
        (false, _) if args.model.rehearse.is_some() => Local::Never,
        (false, true) if goes_on => Local::Never,
        (false, _) => Local::of(config),
    };
    discover(config, variables, local).await
}

/// What the command line asks for, else the configuration.
fn wanted<'a>(config: &'a Config, args: &'a RunArgs) -> Wanted<'a> {
    match args.model.wanted() {
        Wanted { provider: None, model: None } => Wanted { provider: None, model: config.model.0.as_deref() },
        said => said,
    }
}

/// The model of a new run: what is asked for, else that of the conversation so far, else what is configured or found.
pub(crate) fn choose(
    (config, args): (&Config, &RunArgs),
    before: Option<&RunSpec>,
    found: &[Found],
    state: &Path,
) -> Result<Choice, Failure> {
    if let Some(play) = &args.model.rehearse {
        return script(play, state);
    }
    let goes_on = before.filter(|_| args.model.is_open()).and_then(|spec| {
        let model = spec.chain.first()?;
        let here = spec.script.is_some() || found.iter().any(|found| found.name == *model.provider());
        here.then(|| (model.clone(), spec.script))
    });
    let first = match goes_on {
        Some((model, Some(script))) => return Ok(Choice { chain: vec![model], script: Some(script) }),
        Some((model, None)) => model,
        None => environment::choose(found, wanted(config, args)).map_err(StartError::NoModel)?,
    };
    let chain =
        environment::chain(found, first, &config.fallback_providers.0).map_err(StartError::NoModel)?;
    Ok(Choice { chain, script: None })
}

fn script(play: &Play, state: &Path) -> Result<Choice, Failure> {
    let (name, json) = match play {
        Play::Embedded => ("the embedded script".to_owned(), STOCK.to_vec()),
        Play::File(path) => {
            let name = format!("--rehearse={}", path.display());
            let json = read_regular(path, MAX_SCRIPT_BYTES)
                .map_err(|error| Failure::usage(format!("{name}: {error}")))?;
            (name, json)
        }
    };
    let script = Script::parse(&json).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let (hash, model) = daemon::keep_script(state, &json, &script)?;
    Ok(Choice { chain: vec![model], script: Some(hash) })
}
