//! `hermod store`: the store as a whole.

mod check;
mod footprint;
mod repair;

use clap::{Args, Subcommand};

use super::exit::{Exit, Failure};
use crate::environment::Variables;

pub(crate) use footprint::bytes;

/// The store as a whole
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Check(check::CheckArgs),
    Footprint(footprint::FootprintArgs),
    Repair(repair::RepairArgs),
}

/// Does what is asked for.
pub(crate) async fn execute(args: StoreArgs, variables: &Variables) -> Result<Exit, Failure> {
    match args.verb {
        Verb::Check(args) => check::execute(&args, variables),
        Verb::Repair(args) => repair::execute(&args, variables).await,
        Verb::Footprint(args) => footprint::execute(&args, variables).await.map(|()| Exit::Ok),
    }
}
