//! `hermod providers`: lists providers, tests them, shows or resets their circuit breakers, and shows the summary
//! calls.

mod list;
mod status;
mod test;

use clap::{Args, Subcommand};

use super::exit::{CliError, Exit};
use crate::{
    discovery::Variables,
    host::{Identifier, StoreClient},
};
pub(super) use list::credentials;
pub(super) use test::{MAX_TOKENS as MAX_PROBE_TOKENS, probe};

/// The model providers
#[derive(Debug, Args)]
pub(crate) struct ProvidersArgs {
    #[command(subcommand)]
    command: ProvidersCommand,
}

#[derive(Debug, Subcommand)]
enum ProvidersCommand {
    /// List those that are configured or found, the one that is asked first on top
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Ask each of them for a word, with each of its credentials: a real call, which may cost something
    Test(test::TestArgs),
    /// Show which models the running Hermod asks, and which it does not for a while
    Status {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show the calls for summaries of the running Hermod, and how well its summarisers do
    Summaries {
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Let the running Hermod forget every failure of a provider, so that it is asked again at once
    Reset {
        /// Its name
        name: Identifier,
    },
}

/// Runs the subcommand.
pub(crate) async fn execute(args: ProvidersArgs, variables: &Variables) -> Result<Exit, CliError> {
    match args.command {
        ProvidersCommand::List { json } => list::execute(json, variables).await?,
        ProvidersCommand::Test(args) => return test::execute(args, variables).await,
        ProvidersCommand::Status { json } => status::execute(json, &StoreClient::new(variables)?).await?,
        ProvidersCommand::Summaries { json } => {
            status::summaries(json, &StoreClient::new(variables)?).await?;
        }
        ProvidersCommand::Reset { name } => status::reset(name.into(), &StoreClient::new(variables)?).await?,
    }
    Ok(Exit::Ok)
}
