//! The command line: its parser, its start, and one file or folder per command, each a thin layer over `host`,
//! `control` and the store. Other files have what commands share: exit codes, output, display, formats.

mod answer_stream;
mod approvals;
mod backup;
mod budgets;
mod chaos;
mod command_end;
mod completions;
mod config;
mod continuation;
mod display;
mod doctor;
mod examples;
mod exit;
mod format;
mod gc;
mod journal;
mod live;
mod models;
mod output;
mod policy;
mod progress;
mod prompt;
mod providers;
mod rehearse;
mod resume;
mod resume_at_service;
mod run;
mod runs;
mod serve;
mod sessions;
mod steer;
mod stop;
mod store;
mod table;
mod telemetry;
mod terminal;
mod threads;
mod tree;
mod variables;
mod waits;
mod wire;

use std::{process::ExitCode, time::Duration};

use clap::{ArgAction, Args, Parser, Subcommand};

use crate::{discovery::Variables, host::StoreClient, process::helper_main, secret};
// Most commands need these.
use exit::{CliError, Exit};
use output::{print, print_as, print_error, print_json, print_note, print_progress};

/// Time limit for blocking threads to finish after everything else has ended.
const THREADS_EXIT_TIMEOUT: Duration = Duration::from_millis(300);

/// A durable LLM agent runtime.
#[derive(Debug, Parser)]
#[command(name = "hermod", version, about, max_term_width = 100, after_help = examples::PROGRAM)]
struct Cli {
    /// Log to standard error; twice for more. HERMOD_LOG takes a filter instead, like hermod=debug
    #[arg(short = 'v', global = true, action = ArgAction::Count)]
    logs: u8,
    /// How logs are written; with `json`, everything at standard error is JSON lines
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value_t)]
    log_format: telemetry::LogFormat,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Run(Box<run::RunArgs>),
    Serve(serve::ServeArgs),
    Runs(runs::RunsArgs),
    Sessions(sessions::SessionsArgs),
    Journal(journal::JournalArgs),
    Tree(tree::TreeArgs),
    Stop(stop::StopArgs),
    Steer(steer::SteerArgs),
    Approvals(approvals::ApprovalsArgs),
    Policy(policy::PolicyArgs),
    Budget(budgets::BudgetArgs),
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
    Completions(completions::CompletionsArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// At most so many, the youngest
    #[arg(long, default_value_t = 100)]
    max: usize,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// Runs the command line, and returns the exit code.
pub fn main() -> ExitCode {
    // The runner mode comes first: a command of the `shell` tool waits for the start of its runner.
    if let Some(ended) = helper_main() {
        return ended;
    }
    output::print_panics();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return output::print_clap(&error).into(),
    };
    if cli.log_format == telemetry::LogFormat::Json {
        output::write_json_lines();
    }
    match start(cli) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            print_error(format!("hermod: {failure}"));
            failure.exit.into()
        }
    }
}

fn start(cli: Cli) -> Result<Exit, CliError> {
    // This precedes all reading of secrets, such as those in variables.
    secret::keep_memory_private().map_err(|error| {
        CliError::internal(format!(
            "the operating system does not keep this process's memory private: {error}"
        ))
    })?;
    let variables = variables::read()?;
    terminal::Charset::set_current(&variables);
    telemetry::start(cli.logs, cli.log_format, &variables)?;
    let runtime = threads::runtime().map_err(|error| {
        CliError::internal(format!("the operating system gives no event queue, or no threads: {error}"))
    })?;
    let result = runtime.block_on(dispatch(cli.command, &variables));
    // Reads and writes of tools that are still under way are aborted as by a kill: a signal must end the process
    // within a second.
    runtime.shutdown_timeout(THREADS_EXIT_TIMEOUT);
    result
}

async fn dispatch(command: CliCommand, variables: &Variables) -> Result<Exit, CliError> {
    match command {
        CliCommand::Run(args) => return run::execute(*args, variables).await,
        CliCommand::Serve(args) => return serve::execute(&args, variables).await,
        CliCommand::Runs(args) => return runs::execute(args, variables).await,
        CliCommand::Sessions(args) => sessions::execute(args, &StoreClient::new(variables)?).await?,
        CliCommand::Journal(args) => journal::execute(args, &StoreClient::new(variables)?).await?,
        CliCommand::Tree(args) => return tree::execute(args, &StoreClient::new(variables)?, variables).await,
        CliCommand::Stop(args) => stop::execute(args, &StoreClient::new(variables)?).await?,
        CliCommand::Steer(args) => steer::execute(args, &StoreClient::new(variables)?).await?,
        CliCommand::Approvals(args) => approvals::execute(args, &StoreClient::new(variables)?).await?,
        CliCommand::Policy(args) => policy::execute(&args, variables)?,
        CliCommand::Budget(args) => return budgets::execute(args, variables).await,
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
        CliCommand::Doctor(args) => doctor::execute(args, variables).await?,
        CliCommand::Completions(args) => completions::execute(&args)?,
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Cli;

    /// Arguments that are free texts; every name is an [`Identifier`](crate::host::Identifier).
    const TEXTS: [&str; 6] = ["host", "listen", "more", "script", "system", "text"];

    /// Every argument of a command and of its subcommands.
    fn arguments(command: &clap::Command) -> Vec<&clap::Arg> {
        command.get_arguments().chain(command.get_subcommands().flat_map(arguments)).collect()
    }

    #[test]
    fn no_argument_that_names_something_may_be_empty() {
        let command = Cli::command();
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
                &["runs", "show", blank],
                &["runs", "resume", blank],
                &["sessions", "show", blank],
                &["journal", blank],
                &["tree", blank],
                &["stop", blank],
                &["steer", blank, "hi"],
                &["approvals", "allow", blank],
                &["budget", "show", blank],
                &["budget", "add", blank, "iterations=1"],
                &["providers", "test", blank],
                &["providers", "reset", blank],
                &["store", "repair", blank],
            ] {
                let parsed = Cli::try_parse_from([&["hermod"], args].concat());
                let error = parsed.expect_err(&format!("{args:?}"));
                assert_eq!(error.exit_code(), 2);
                assert!(error.to_string().contains("it is empty; give a name"), "{error}");
            }
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
