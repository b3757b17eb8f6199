//! The parser of the command line, and the dispatch to the commands.

use std::io::{self, IsTerminal as _};

use clap::{ArgAction, CommandFactory as _, Parser, Subcommand};

use super::{
    CliError, Exit, acp, agents, approvals, backup, budgets, chaos, chat, completions, config, deliveries,
    doctor, examples, gc, hooks, init, journal, models, operate, policy, prompt, providers, rehearse, report,
    run, runs, schedules, send, serve, service, sessions, show, steer, stop, store, telemetry, terminal,
    threads, tokens, tree, usage, variables, watch, wire,
};
use crate::{discovery::Variables, host::StoreClient, secret};

/// A durable LLM agent runtime.
#[derive(Debug, Parser)]
#[command(name = "hermod", version, about, max_term_width = 100, after_help = examples::PROGRAM)]
pub(super) struct Program {
    /// Log to standard error; twice for more. HERMOD_LOG takes a filter instead, like hermod=debug
    #[arg(short = 'v', global = true, action = ArgAction::Count)]
    logs: u8,
    /// How logs are written; with `json`, everything at standard error is JSON lines
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value_t)]
    pub(super) log_format: telemetry::LogFormat,
    #[command(subcommand)]
    command: Option<CliCommand>,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Chat(chat::ChatArgs),
    Attach(chat::AttachArgs),
    Run(Box<run::RunArgs>),
    Serve(serve::ServeArgs),
    Acp(acp::AcpArgs),
    Agents(agents::AgentsArgs),
    Status(operate::StatusArgs),
    Drain(operate::DrainArgs),
    Service(service::ServiceArgs),
    Runs(runs::RunsArgs),
    Show(show::ShowArgs),
    Report(report::ReportArgs),
    Sessions(sessions::SessionsArgs),
    Journal(journal::JournalArgs),
    Watch(watch::WatchArgs),
    Tree(tree::TreeArgs),
    Stop(stop::StopArgs),
    Steer(steer::SteerArgs),
    Schedules(schedules::SchedulesArgs),
    Send(send::SendArgs),
    Messages(send::MessagesArgs),
    Approvals(approvals::ApprovalsArgs),
    Deliveries(deliveries::DeliveriesArgs),
    Policy(policy::PolicyArgs),
    Hooks(hooks::HooksArgs),
    Tokens(tokens::TokensArgs),
    Budget(budgets::BudgetArgs),
    Usage(usage::UsageArgs),
    Store(store::StoreArgs),
    Backup(backup::BackupArgs),
    Rehearse(rehearse::RehearseArgs),
    Wire(wire::WireArgs),
    Config(config::ConfigArgs),
    Providers(providers::ProvidersArgs),
    Models(models::ModelsArgs),
    Prompt(prompt::PromptArgs),
    Chaos(chaos::ChaosArgs),
    Gc(gc::GcArgs),
    Doctor(doctor::DoctorArgs),
    Init(init::InitArgs),
    Completions(completions::CompletionsArgs),
}

impl Program {
    /// The error about a missing command, with the help: without one there is a chat, which needs a terminal.
    pub(super) fn missing_command(&self) -> Option<clap::Error> {
        if self.command.is_some() || (io::stdin().is_terminal() && io::stdout().is_terminal()) {
            return None;
        }
        let strict = Self::command().subcommand_required(true).arg_required_else_help(true);
        strict.try_get_matches().err()
    }

    /// Prepares this process, and executes the command.
    pub(super) fn execute(self) -> Result<Exit, CliError> {
        // This precedes all reading of secrets, such as those in variables.
        secret::keep_memory_private().map_err(|error| {
            CliError::internal(format!(
                "the operating system does not keep this process's memory private: {error}"
            ))
        })?;
        let variables = variables::read()?;
        terminal::Charset::set_current(&variables);
        telemetry::start(self.logs, self.log_format, &variables)?;
        threads::block_on(dispatch(self.command, &variables))
    }
}

async fn dispatch(command: Option<CliCommand>, variables: &Variables) -> Result<Exit, CliError> {
    let Some(command) = command else { return chat::without_arguments(variables).await };
    match command {
        CliCommand::Chat(args) => return chat::execute(args, variables).await,
        CliCommand::Attach(args) => return chat::attach(args, variables).await,
        CliCommand::Run(args) => return run::execute(*args, variables).await,
        CliCommand::Serve(args) => return serve::execute(&args, variables).await,
        CliCommand::Acp(args) => acp::execute(&args, variables).await?,
        CliCommand::Agents(args) => agents::execute(&args, variables)?,
        CliCommand::Status(args) => return operate::status(&args, &StoreClient::new(variables)?).await,
        CliCommand::Drain(args) => operate::drain(&args, &StoreClient::new(variables)?).await?,
        CliCommand::Service(args) => return service::execute(args, variables).await,
        CliCommand::Runs(args) => return runs::execute(args, variables).await,
        CliCommand::Show(args) => show::execute(args, &StoreClient::new(variables)?, variables).await?,
        CliCommand::Report(args) => return report::execute(args, variables).await,
        CliCommand::Sessions(args) => sessions::execute(args, &StoreClient::new(variables)?).await?,
        CliCommand::Journal(args) => journal::execute(args, &StoreClient::new(variables)?).await?,
        CliCommand::Watch(args) => {
            return watch::execute(args, &StoreClient::new(variables)?, variables).await;
        }
        CliCommand::Tree(args) => return tree::execute(args, &StoreClient::new(variables)?, variables).await,
        CliCommand::Stop(args) => stop::execute(args, &StoreClient::new(variables)?).await?,
        CliCommand::Steer(args) => steer::execute(args, &StoreClient::new(variables)?).await?,
        CliCommand::Schedules(args) => return schedules::execute(args, variables).await,
        CliCommand::Send(args) => return send::execute(args, &StoreClient::new(variables)?).await,
        CliCommand::Messages(args) => return send::messages(args, &StoreClient::new(variables)?).await,
        CliCommand::Approvals(args) => approvals::execute(args, &StoreClient::new(variables)?).await?,
        CliCommand::Deliveries(args) => deliveries::execute(args, &StoreClient::new(variables)?).await?,
        CliCommand::Policy(args) => policy::execute(&args, variables)?,
        CliCommand::Hooks(args) => return hooks::execute(&args, variables).await,
        CliCommand::Tokens(args) => tokens::execute(args, variables)?,
        CliCommand::Budget(args) => return Box::pin(budgets::execute(args, variables)).await,
        CliCommand::Usage(args) => usage::execute(&args, variables).await?,
        CliCommand::Store(args) => return store::execute(args, variables).await,
        CliCommand::Backup(args) => return backup::execute(args, variables).await,
        CliCommand::Rehearse(args) => rehearse::execute(args).await?,
        CliCommand::Wire(args) => wire::execute(&args)?,
        CliCommand::Config(args) => config::execute(args, variables).await?,
        CliCommand::Providers(args) => return providers::execute(args, variables).await,
        CliCommand::Models(args) => models::execute(&args, variables).await?,
        CliCommand::Prompt(args) => prompt::execute(args, variables).await?,
        CliCommand::Chaos(args) => return chaos::execute(args, variables).await,
        CliCommand::Gc(args) => gc::execute(&args, variables).await?,
        CliCommand::Doctor(args) => return doctor::execute(args, variables).await,
        CliCommand::Init(args) => init::execute(&args, variables).await?,
        CliCommand::Completions(args) => completions::execute(&args)?,
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Program;

    /// Arguments that are free texts; every name is an [`Identifier`](crate::host::Identifier). Expectations are checked
    /// together, as those of other clients.
    const TEXTS: [&str; 11] = [
        "expect_command",
        "expect_file",
        "expect_new_file",
        "expect_schema",
        "expect_text",
        "host",
        "listen",
        "more",
        "script",
        "system",
        "text",
    ];

    /// Every argument of a command and of its subcommands.
    fn arguments(command: &clap::Command) -> Vec<&clap::Arg> {
        command.get_arguments().chain(command.get_subcommands().flat_map(arguments)).collect()
    }

    #[test]
    fn no_argument_that_names_something_may_be_empty() {
        let command = Program::command();
        let text = clap::builder::ValueParser::string().type_id();
        let is_text = |argument: &&clap::Arg| {
            let parser = argument.get_value_parser();
            parser.type_id() == text && parser.possible_values().is_none()
        };
        let texts: std::collections::BTreeSet<&str> = arguments(&command)
            .into_iter()
            .filter(is_text)
            .map(|argument| argument.get_id().as_str())
            .collect();
        assert_eq!(texts.into_iter().collect::<Vec<_>>(), TEXTS);
        for blank in ["", " ", "\t\n"] {
            for args in [
                &["run", "--key", blank, "hi"][..],
                &["run", "--session", blank, "hi"],
                &["run", "--resume", blank, "hi"],
                &["run", "--model", blank, "hi"],
                &["run", "--provider", blank, "hi"],
                &["run", "--agent", blank, "hi"],
                &["run", "--deliver-to", blank, "hi"],
                &["deliveries", "show", blank],
                &["schedules", "show", blank],
                &["schedules", "pause", "n", "--reason", blank],
                &["runs", "list", "--schedule", blank],
                &["deliveries", "retry", blank],
                &["deliveries", "list", "--target", blank],
                &["runs", "list", "--agent", blank],
                &["agents", "show", blank],
                &["runs", "show", blank],
                &["show", blank],
                &["runs", "resume", blank],
                &["sessions", "show", blank],
                &["sessions", "queue", blank],
                &["journal", blank],
                &["tree", blank],
                &["stop", blank],
                &["steer", blank, "hi"],
                &["send", blank, "hi"],
                &["send", "s", "hi", "--key", blank],
                &["messages", "show", blank],
                &["approvals", "allow", blank],
                &["budget", "show", blank],
                &["budget", "add", blank, "iterations=1"],
                &["providers", "test", blank],
                &["hooks", "test", blank],
                &["hooks", "enable", blank],
                &["providers", "reset", blank],
                &["store", "repair", blank],
                &["tokens", "create", "--name", blank, "--scopes", "read"],
                &["tokens", "create", "--name", "n", "--scopes", "read", "--agents", blank],
                &["tokens", "create", "--name", "n", "--scopes", "read", "--agents", &format!("a,{blank}")],
                &["tokens", "revoke", blank],
            ] {
                let parsed = Program::try_parse_from([&["hermod"], args].concat());
                let error = parsed.expect_err(&format!("{args:?}"));
                assert_eq!(error.exit_code(), 2);
                assert!(error.to_string().contains("it is empty; give a name"), "{error}");
            }
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Program::command().debug_assert();
    }
}
