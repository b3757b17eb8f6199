//! Runs `hermod tree`: prints the trees once, or follows them by polling the owner of the store. A poll costs the owner
//! only the changes since the last one. Without an owner the trees are shown once. `live_screen.rs` draws.

use std::{ops::ControlFlow, time::Duration};

use clap::Args;
use hermod_actors::model::Timestamp;
use tokio::time::sleep;

use super::{draw, live_screen::LiveScreen};
use crate::{
    cli::{
        CliError, Exit, examples,
        output::{StdoutState, escaped, print_over, to_json},
        print_as, print_note,
        terminal::{stdout_columns, truncate},
    },
    clock,
    control::{AskError, ControlRequest, ControlResponse},
    discovery::Variables,
    host::{Identifier, RETRY_DELAY, Signals, StoreAccess, StoreClient, unexpected_response},
    view::{NodeView, RunStateView},
};

/// Pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Show a run and its subagents: what each does, what it waits for, and what it has spent of its limits
///
/// A line has the end of a run's id, by which other commands take it too, its state, what it does or waits for and since
/// when, what it has spent, `+` what calls under way have reserved, `/` the limit, and its task.
#[derive(Debug, Args)]
#[command(after_help = examples::TREE)]
pub(crate) struct TreeArgs {
    /// A run's id, or `last`, the last run that is no subagent's [default: all runs that have not ended]
    run: Option<Identifier>,
    /// Show what changes, until the run has ended; on a terminal in place, else each time anew
    #[arg(long)]
    follow: bool,
    /// Print a JSON array; with --follow one a line, whenever something has changed
    #[arg(long)]
    json: bool,
}

/// Prints the tree once, or follows it until its end.
pub(crate) async fn execute(
    args: TreeArgs,
    client: &StoreClient,
    variables: &Variables,
) -> Result<Exit, CliError> {
    if args.follow {
        return follow(args, client, variables).await;
    }
    let ControlResponse::Tree(nodes) =
        client.request(&ControlRequest::Tree { run: args.run.map(String::from) }).await?
    else {
        return Err(unexpected_response().into());
    };
    print_as(args.json, &nodes, |nodes| {
        let columns = stdout_columns().unwrap_or(usize::MAX);
        draw::lines(nodes, clock::now()).iter().map(|line| truncate(line, columns) + "\n").collect()
    })?;
    Ok(Exit::Ok)
}

/// Shows a tree until it has ended, standard output is closed, or a signal comes; the runs continue.
async fn follow(args: TreeArgs, client: &StoreClient, variables: &Variables) -> Result<Exit, CliError> {
    let mut signals = Signals::listen()?;
    let tree_output =
        if args.json { TreeOutput::Json(String::new()) } else { TreeOutput::Lines(LiveScreen::default()) };
    let mut follower = TreeFollower { run: args.run.map(String::from), output: tree_output, variables };
    tokio::select! {
        biased;
        signal = signals.next() => Ok(signal.into()),
        result = follower.watch(client) => result.map(|()| Exit::Ok),
    }
}

/// The followed tree and its output.
struct TreeFollower<'a> {
    run: Option<String>,
    output: TreeOutput,
    variables: &'a Variables,
}

enum TreeOutput {
    Lines(LiveScreen),
    /// The last printed line.
    Json(String),
}

impl TreeFollower<'_> {
    async fn watch(&mut self, client: &StoreClient) -> Result<(), CliError> {
        loop {
            match client.access().await? {
                StoreAccess::Owner(mut client) => loop {
                    match client.request(&self.request(), |_| Ok(())).await {
                        Ok(ControlResponse::Tree(nodes)) => {
                            if self.show(&nodes)?.is_break() {
                                return Ok(());
                            }
                        }
                        Ok(_) => return Err(unexpected_response().into()),
                        Err(AskError::Disconnected) => break,
                        Err(AskError::Rejected(error)) => return Err(error.into()),
                    }
                    sleep(POLL_INTERVAL).await;
                },
                StoreAccess::Store(journal) => {
                    let ControlResponse::Tree(nodes) =
                        client.request_from_store(journal, self.request()).await?
                    else {
                        return Err(unexpected_response().into());
                    };
                    if self.show(&nodes)?.is_continue() {
                        print_note(
                            "there is nothing to follow: no process runs it; `hermod runs resume` takes it up",
                        );
                    }
                    return Ok(());
                }
            }
            sleep(RETRY_DELAY).await;
        }
    }

    fn request(&self) -> ControlRequest {
        ControlRequest::Tree { run: self.run.clone() }
    }

    /// Shows the nodes; breaks if nothing more is to be shown.
    fn show(&mut self, nodes: &[NodeView]) -> Result<ControlFlow<()>, CliError> {
        // Fixes the run by its id: `last` may name another run at the next poll.
        if let (Some(run), [root]) = (&mut self.run, nodes) {
            *run = root.run.id.to_string();
        }
        let stdout = match &mut self.output {
            TreeOutput::Lines(screen) => {
                let lines = draw::lines(nodes, clock::now());
                screen.show(lines, draw::lines(nodes, Timestamp::default()), self.variables)?
            }
            TreeOutput::Json(last) => match to_json(&nodes)? {
                line if line == *last => StdoutState::Open,
                line => {
                    *last = line;
                    print_over("", &escaped(last))?
                }
            },
        };
        let is_over = nodes.iter().all(|node| node.run.state == RunStateView::Ended);
        Ok(if is_over || stdout == StdoutState::Closed {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        })
    }
}
