use std::{fs, path::Path};

use hermod_actors::model::{Hash, ModelRef, RunSpec};

use super::args::{Play, RunArgs};
use crate::{
    cli::exit::Failure,
    daemon::{self, StartError},
    environment::{self, Found, OLLAMA, Variables},
    ollama,
    rehearsal::Script,
};

/// The script that is played when none is named.
const STOCK: &[u8] = include_bytes!("../../rehearsal/default.json");

/// The model of a new run, and the script if it is a rehearsal.
#[derive(Debug)]
pub(crate) struct Choice {
    /// The model.
    pub(crate) model: ModelRef,
    /// The script.
    pub(crate) script: Option<Hash>,
}

/// The providers that the environment offers. A local Ollama is asked only if there is none, or if it is meant.
pub(crate) async fn providers(variables: &Variables, args: &RunArgs, known: &[&RunSpec]) -> Vec<Found> {
    let mut found = environment::found(variables);
    let rehearsed = args.model.rehearse.is_some()
        || args.model.is_open() && !known.is_empty() && known.iter().all(|spec| spec.script.is_some());
    let named = args.model.provider.as_deref() == Some(OLLAMA)
        || args.model.model.as_deref().is_some_and(|model| model.starts_with("ollama/"))
        || known.iter().any(|spec| spec.chain.iter().any(|link| &*link.provider == OLLAMA));
    if named || found.is_empty() && !rehearsed {
        found.extend(ollama::ask(ollama::ADDRESS).await);
    }
    found
}

/// The model of a new run: what is asked for, else that of the conversation so far, else what the environment offers.
pub(crate) fn choose(
    args: &RunArgs,
    before: Option<&RunSpec>,
    found: &[Found],
    state: &Path,
) -> Result<Choice, Failure> {
    if let Some(play) = &args.model.rehearse {
        return script(play, state);
    }
    let goes_on = before.filter(|_| args.model.is_open()).and_then(|spec| {
        let model = spec.chain.first()?;
        let here = spec.script.is_some() || found.iter().any(|found| found.name == model.provider);
        here.then(|| Choice { model: model.clone(), script: spec.script })
    });
    if let Some(choice) = goes_on {
        return Ok(choice);
    }
    let model = environment::choose(found, args.model.wanted()).map_err(StartError::NoModel)?;
    Ok(Choice { model, script: None })
}

fn script(play: &Play, state: &Path) -> Result<Choice, Failure> {
    let (name, json) = match play {
        Play::Embedded => ("the embedded script".to_owned(), STOCK.to_vec()),
        Play::File(path) => {
            let name = format!("--rehearse={}", path.display());
            let json = fs::read(path).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
            (name, json)
        }
    };
    let script = Script::parse(&json).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let (hash, model) = daemon::keep_script(state, &json, &script)?;
    Ok(Choice { model, script: Some(hash) })
}
