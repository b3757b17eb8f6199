//! `hermod store`: checks, measures and repairs the store as a whole.

mod check;
mod footprint;
mod repair;

use clap::{Args, Subcommand};

use super::exit::{CliError, Exit};
use crate::discovery::Variables;

pub(crate) use footprint::format_bytes;

/// The store as a whole
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    Check(check::CheckArgs),
    Footprint(footprint::FootprintArgs),
    Repair(repair::RepairArgs),
}

/// Runs the subcommand.
pub(crate) async fn execute(args: StoreArgs, variables: &Variables) -> Result<Exit, CliError> {
    match args.command {
        StoreCommand::Check(args) => check::execute(&args, variables),
        StoreCommand::Repair(args) => repair::execute(&args, variables).await,
        StoreCommand::Footprint(args) => footprint::execute(&args, variables).await.map(|()| Exit::Ok),
    }
}
