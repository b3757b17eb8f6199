//! `hermod prompt show`: the system prompt of a new session, and the sizes of its layers. `src/prompt` builds it.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use hermod_actors::{
    model::ModelRef,
    port::{PromptRequest, SystemPrompt},
};
use tokio::task::spawn_blocking;

use super::{CliError, Exit, agents, print_as, table};
use crate::{
    clock,
    config::Config,
    discovery::{self, RequestedModel, Variables},
    host::{self, Identifier, OllamaProbe, WorkspaceChoice, discover},
    prompt::{LayeredPrompt, skill_folders},
    view::PromptView,
};

/// The system prompt
#[derive(Debug, Args)]
pub(crate) struct PromptArgs {
    #[command(subcommand)]
    command: PromptCommand,
}

#[derive(Debug, Subcommand)]
enum PromptCommand {
    /// Show the system prompt that a new session would begin with now, and how long each part is
    Show {
        /// The agent of the session
        #[arg(long, value_name = "NAME")]
        agent: Option<Identifier>,
        /// The folder in which its tools would work [default: that of the agent, else the current one]
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Shows the prompt. Starts and writes nothing.
pub(crate) async fn execute(args: PromptArgs, variables: &Variables) -> Result<(), CliError> {
    let PromptCommand::Show { agent, workspace, json } = args.command;
    let all = Config::read(variables)?;
    let config = agents::config_of(&all, agent.as_ref())?.clone();
    let state = host::state_dir(variables)?;
    let state = state.canonicalize().unwrap_or(state);
    // Nothing is made: a folder of the agent that does not exist yet is an error.
    let folder = workspace.as_deref().or(config.agent.workspace.0.as_deref());
    let choice = folder.map_or(WorkspaceChoice::Current, WorkspaceChoice::Named);
    let workspace = host::resolve_workspace(choice, &state).map_err(CliError::of_workspace)?;
    let chain = first_model(&config, variables).await.into_iter().collect();
    let prompt = spawn_blocking(move || build((&all, &config), chain, &workspace, &state)).await;
    let prompt = prompt.map_err(|error| CliError::internal(error.to_string()))??;
    let prompt = PromptView::from(prompt);
    print_as(json, &prompt, format_prompt)
}

/// The model that a run would call first; without one the prompt names no model.
async fn first_model(config: &Config, variables: &Variables) -> Option<ModelRef> {
    let providers = discover(config, variables, OllamaProbe::of(config)).await;
    let requested = RequestedModel { provider: None, model: config.model.0.as_deref() };
    discovery::choose(&providers, requested).ok()
}

fn build(
    (all, config): (&Config, &Config),
    chain: Vec<ModelRef>,
    workspace: &Path,
    state: &Path,
) -> Result<SystemPrompt, CliError> {
    let mut spec = host::run_defaults::spec(config, chain, None, workspace);
    host::run_defaults::add_skill_tool(config, &mut spec, &skill_folders(config, state));
    let request = PromptRequest::for_run(&spec, clock::now());
    let prompt = LayeredPrompt::new(all, state).build_now(&request);
    prompt.map_err(|error| CliError { exit: Exit::Config, text: error.to_string() })
}

/// The sizes of the layers, then the text that a model reads.
fn format_prompt(prompt: &PromptView) -> String {
    let row = |name: &str, bytes: usize, tokens: u64, cut_from: Option<u64>| {
        [name.to_owned(), bytes.to_string(), tokens.to_string(), table::or_dash(cut_from)]
    };
    let layers = prompt.layers.iter();
    let layers = layers.map(|layer| row(&layer.name, layer.bytes, layer.tokens, layer.original_bytes));
    let rows: Vec<_> = layers.chain([row("total", prompt.bytes, prompt.tokens, None)]).collect();
    format!("{}\n{}", table::render(["LAYER", "BYTES", "TOKENS", "CUT FROM"], &rows), prompt.text)
}
