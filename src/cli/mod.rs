//! The command line: one file per command, each a thin layer over `daemon` and the store.

mod budget;
mod exit;
mod inquiry;
mod journal;
mod output;
mod progress;
mod rehearse;
mod report;
mod run;
mod runs;
mod sessions;
mod steer;
mod stop;
mod table;
mod telemetry;
mod tree;
mod workspace;

use std::process::ExitCode;

use clap::{ArgAction, Args, Parser, Subcommand};

use crate::environment::Variables;
use exit::{Exit, Failure};
use inquiry::Inquiry;
use output::say;

/// A durable LLM agent runtime.
#[derive(Debug, Parser)]
#[command(name = "hermod", version, about, max_term_width = 100)]
struct Cli {
    /// Log to standard error; twice for more. HERMOD_LOG takes a filter instead, like hermod=debug
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::RunArgs>),
    Runs(runs::RunsArgs),
    Sessions(sessions::SessionsArgs),
    Journal(journal::JournalArgs),
    Tree(tree::TreeArgs),
    Stop(stop::StopArgs),
    Steer(steer::SteerArgs),
    Rehearse(rehearse::RehearseArgs),
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

/// Does what the command line says.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to standard output, an error to standard error; whichever is closed has no reader.
            let _nobody_reads = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Ok.into() };
        }
    };
    match start(cli) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            say(format!("hermod: {failure}"));
            failure.exit.into()
        }
    }
}

fn start(cli: Cli) -> Result<Exit, Failure> {
    let variables = variables();
    telemetry::start(cli.verbose, &variables)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Failure { exit: Exit::Internal, text: format!("the operating system gives no event queue: {error}") }
    })?;
    runtime.block_on(dispatch(cli.command, &variables))
}

async fn dispatch(command: Command, variables: &Variables) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => return run::execute(*args, variables).await,
        Command::Runs(args) => runs::execute(args, &Inquiry::new(variables)?).await?,
        Command::Sessions(args) => sessions::execute(args, &Inquiry::new(variables)?).await?,
        Command::Journal(args) => journal::execute(args, &Inquiry::new(variables)?).await?,
        Command::Tree(args) => tree::execute(args, &Inquiry::new(variables)?).await?,
        Command::Stop(args) => stop::execute(args, &Inquiry::new(variables)?).await?,
        Command::Steer(args) => steer::execute(args, &Inquiry::new(variables)?).await?,
        Command::Rehearse(args) => rehearse::execute(args).await?,
    }
    Ok(Exit::Ok)
}

/// The process's variables; one that is not UTF-8 is none of ours.
fn variables() -> Variables {
    let text = |text: std::ffi::OsString| text.into_string().ok();
    std::env::vars_os().filter_map(|(key, value)| Some((text(key)?, text(value)?))).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
