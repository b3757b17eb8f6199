//! Runs `hermod tree`: prints the trees once, or follows them.

use super::{draw, follow};
use crate::{
    cli::{
        examples,
        exit::{CliError, Exit},
        output::{print, print_json},
        terminal::{stdout_columns, truncate},
    },
    clock,
    control::{ControlRequest, ControlResponse},
    discovery::Variables,
    host::{Identifier, StoreClient, unexpected_response},
};
use clap::Args;

/// Show a run and its subagents: what each does, what it waits for, and what it has spent of its limits
///
/// A line has the end of a run's id, by which other commands take it too, its state, what it does or waits for and since
/// when, what it has spent, `+` what calls under way have reserved, `/` the limit, and its task.
#[derive(Debug, Args)]
#[command(after_help = examples::TREE)]
pub(crate) struct TreeArgs {
    /// A run's id, or `last`, the last run that is no subagent's [default: all runs that have not ended]
    pub(super) run: Option<Identifier>,
    /// Show what changes, until the run has ended; on a terminal in place, else each time anew
    #[arg(long)]
    pub(super) follow: bool,
    /// Print a JSON array; with --follow one a line, whenever something has changed
    #[arg(long)]
    pub(super) json: bool,
}

/// Prints the tree once, or follows it until its end.
pub(crate) async fn execute(
    args: TreeArgs,
    client: &StoreClient,
    variables: &Variables,
) -> Result<Exit, CliError> {
    if args.follow {
        return follow::follow(args, client, variables).await;
    }
    let ControlResponse::Tree(nodes) =
        client.request(&ControlRequest::Tree { run: args.run.map(String::from) }).await?
    else {
        return Err(unexpected_response().into());
    };
    if args.json {
        print_json(&nodes)?;
    } else {
        let lines = draw::lines(&nodes, clock::now());
        let columns = stdout_columns().unwrap_or(usize::MAX);
        print(&lines.iter().map(|line| truncate(line, columns) + "\n").collect::<String>())?;
    }
    Ok(Exit::Ok)
}
