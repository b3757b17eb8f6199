//! `hermod stop`: ends runs as stopped, durably, whichever process runs them.

use clap::Args;

use super::{CliError, print_as, runs};
use crate::{
    host::{Identifier, StoreClient},
    view::RunView,
};

/// End a run as stopped, and its subagents with it: at once if it waits for its model; its commands get two seconds to end by themselves
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// A run's id, or `last`, the last run that is no subagent's
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    run: Option<Identifier>,
    /// All of the tree to which RUN belongs, from the run at its root on: those that RUN works for and their other
    /// subagents too
    #[arg(long, requires = "run", conflicts_with = "all")]
    tree: bool,
    /// Every unfinished run
    #[arg(long)]
    all: bool,
    /// Print a JSON array of the runs
    #[arg(long)]
    json: bool,
}

/// Stops runs, and prints their states.
pub(crate) async fn execute(args: StopArgs, client: &StoreClient) -> Result<(), CliError> {
    let rows = client.stop(args.run.map(String::from), args.tree).await?;
    let line = |row: &RunView| match &row.ended {
        Some(ended) => format!("run {} has ended: {ended}\n", row.id),
        None => format!("run {} is {} still: it ends when its tools have ended\n", row.id, runs::state(row)),
    };
    print_as(args.json, &rows, |rows| match rows.as_slice() {
        [] => "no run is unfinished".to_owned(),
        rows => rows.iter().map(line).collect(),
    })
}
