//! `hermod agents`: lists the configured agents, and shows one with the settings that hold for its runs.

use std::path::Path;

use clap::{Args, Subcommand};

use super::{
    CliError, examples, print_as,
    table::{self, or_dash},
};
use crate::{
    config::Config,
    discovery::Variables,
    host::{ConversationTarget, Identifier, run_defaults},
    view::{AgentDetailView, AgentSettingView, AgentView},
};

/// The agents of the configuration
#[derive(Debug, Args)]
#[command(after_help = examples::AGENTS)]
pub(crate) struct AgentsArgs {
    #[command(subcommand)]
    command: AgentsCommand,
}

#[derive(Debug, Subcommand)]
enum AgentsCommand {
    /// List the agents: `default` first, then the others by name
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show an agent with its tools, and its settings with where each is set
    Show {
        /// The agent
        #[arg(value_name = "NAME")]
        name: Identifier,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Lists the agents, or shows one.
pub(crate) fn execute(args: &AgentsArgs, variables: &Variables) -> Result<(), CliError> {
    let config = Config::read(variables)?;
    match &args.command {
        AgentsCommand::List { json } => {
            let agents: Vec<AgentView> = config.agents().map(|(_, config)| AgentView::new(config)).collect();
            print_as(*json, &agents, |agents| format_list(agents))
        }
        AgentsCommand::Show { name, json } => {
            print_as(*json, &detail(config_of(&config, Some(name))?), format_detail)
        }
    }
}

/// The configuration of the named agent, or of `default`.
pub(super) fn config_of<'c>(config: &'c Config, agent: Option<&Identifier>) -> Result<&'c Config, CliError> {
    Ok(ConversationTarget::default().config(config, agent.map(|agent| &**agent))?)
}

fn detail(config: &Config) -> AgentDetailView {
    let spec = run_defaults::spec(config, Vec::new(), None, Path::new("."));
    let settings = config.agent_settings().map(|(key, setting)| AgentSettingView::new(key, setting));
    AgentDetailView { agent: AgentView::new(config), tools: spec.tools, settings: settings.collect() }
}

/// Agents as a table.
pub(super) fn format_list(agents: &[AgentView]) -> String {
    let row = |agent: &AgentView| {
        [
            agent.name.to_string(),
            or_dash(agent.model.as_ref()),
            or_dash(agent.thinking.as_ref()),
            or_dash(agent.description.as_ref()),
        ]
    };
    table::render(["AGENT", "MODEL", "THINKING", "ABOUT"], &agents.iter().map(row).collect::<Vec<_>>())
}

fn format_detail(detail: &AgentDetailView) -> String {
    let AgentDetailView { agent, tools, settings } = detail;
    let about = or_dash(agent.description.as_ref());
    let row = |setting: &AgentSettingView| {
        [setting.key.to_owned(), setting.value.to_string(), setting.origin.clone()]
    };
    let rows: Vec<_> = settings.iter().map(row).collect();
    let table = table::render(["KEY", "VALUE", "FROM"], &rows);
    format!("agent  {}\nabout  {about}\ntools  {}\n\n{table}", agent.name, tools.join(", "))
}
