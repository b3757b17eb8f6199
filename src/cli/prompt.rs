//! `hermod prompt`: what a session would begin with.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use hermod_actors::{
    model::ModelRef,
    port::{Clock, Layer, Occasion, Prompt, tokens_of},
};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::{
    exit::{Exit, Failure},
    output::{print, print_json},
    run::{Local, discover},
    table,
    workspace::{Place, resolve},
};
use crate::{
    clock::SystemClock,
    config::Config,
    daemon,
    environment::{self, Variables, Wanted},
    prompt::LayeredPrompt,
    spec,
};

/// The system prompt
#[derive(Debug, Args)]
pub(crate) struct PromptArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the system prompt that a new session would begin with now, and how long each part is
    Show {
        /// The folder in which its tools would work [default: the current one]
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Shows it. Nothing is started, and nothing is written.
pub(crate) async fn execute(args: PromptArgs, variables: &Variables) -> Result<(), Failure> {
    let Verb::Show { workspace, json } = args.verb;
    let config = Config::read(variables)?;
    let state = daemon::state_dir(variables)?;
    let state = state.canonicalize().unwrap_or(state);
    let place = workspace.as_deref().map_or(Place::Here, Place::Named);
    let workspace = resolve(place, &state)?;
    let chain = first_model(&config, variables).await.into_iter().collect();
    let prompt = spawn_blocking(move || build(&config, chain, (&workspace, &state))).await;
    let prompt = prompt.map_err(|error| Failure { exit: Exit::Internal, text: error.to_string() })??;
    if json { print_json(&object(&prompt)) } else { print(&page(&prompt)) }
}

/// The model that a run would ask first; without one the prompt names none.
async fn first_model(config: &Config, variables: &Variables) -> Option<ModelRef> {
    let found = discover(config, variables, Local::of(config)).await;
    let wanted = Wanted { provider: None, model: config.model.0.as_deref() };
    environment::choose(&found, wanted).ok()
}

fn build(
    config: &Config,
    chain: Vec<ModelRef>,
    (workspace, state): (&Path, &Path),
) -> Result<Prompt, Failure> {
    let mut spec = spec::spec(config, chain, None, workspace);
    spec::offer_skills(&mut spec, &spec::skills(config, state));
    let occasion = Occasion::of(&spec, SystemClock::default().at());
    let built = LayeredPrompt::new(config, state).build(&occasion);
    built.map_err(|error| Failure { exit: Exit::Config, text: error.to_string() })
}

/// The sizes of the layers, then what a model reads.
fn page(prompt: &Prompt) -> String {
    let text = prompt.text();
    let of = |layer: &Layer| layer.of.map_or_else(|| "-".to_owned(), |of| of.to_string());
    let row = |name: &str, bytes: usize, of: String| {
        [name.to_owned(), bytes.to_string(), tokens_of(bytes as u64).to_string(), of]
    };
    let layers = prompt.layers.iter().map(|layer| row(&layer.name, layer.text.len(), of(layer)));
    let rows: Vec<_> = layers.chain([row("total", text.len(), "-".into())]).collect();
    format!("{}\n{text}", table::render(["LAYER", "BYTES", "TOKENS", "CUT FROM"], &rows))
}

/// `{layers: [{name, bytes, tokens, of, text}], bytes, tokens, text}`; `of` is `null` where nothing is cut.
fn object(prompt: &Prompt) -> Value {
    let layer = |layer: &Layer| {
        let bytes = layer.text.len();
        json!({
            "name": layer.name, "bytes": bytes, "tokens": tokens_of(bytes as u64), "of": layer.of, "text": layer.text,
        })
    };
    let text = prompt.text();
    json!({
        "layers": prompt.layers.iter().map(layer).collect::<Vec<_>>(),
        "bytes": text.len(),
        "tokens": tokens_of(text.len() as u64),
        "text": text,
    })
}
