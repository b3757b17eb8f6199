//! `hermod stop`: ends runs as stopped, durably, whichever process runs them.

use std::{path::Path, sync::Arc};

use clap::Args;
use hermod_actors::{
    model::{RunRow, RunState},
    port::Journal,
};
use tokio::time::sleep;

use super::{
    exit::CliError,
    identifier::Identifier,
    output::{print, print_json},
    owner, runs,
    store_client::{StoreAccess, StoreClient, unexpected_response},
};
use crate::{
    control::{AskError, ControlRequest, ControlResponse, RequestError, StoreReader},
    host,
    process::runner::Runner,
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
pub(crate) async fn execute(args: StopArgs, inquiry: &StoreClient) -> Result<(), CliError> {
    let target = match args.run {
        None => StopTarget::All,
        Some(run) if args.tree => StopTarget::Tree(run.into()),
        Some(run) => StopTarget::Run(run.into()),
    };
    let rows = stop(&target, inquiry).await?;
    if args.json {
        print_json(&rows)?;
    } else if rows.is_empty() {
        print("no run is unfinished")?;
    } else {
        let line = |row: &RunView| match &row.ended {
            Some(ended) => format!("run {} has ended: {ended}\n", row.id),
            None => {
                format!("run {} is {} still: it ends when its tools have ended\n", row.id, runs::state(row))
            }
        };
        print(&rows.iter().map(line).collect::<String>())?;
    }
    Ok(())
}

/// The runs to stop.
enum StopTarget {
    Run(String),
    /// The root of the tree to which this run belongs.
    Tree(String),
    All,
}

impl StopTarget {
    fn request(&self) -> ControlRequest {
        match self {
            Self::Run(run) => ControlRequest::Stop { run: run.clone(), tree: false },
            Self::Tree(run) => ControlRequest::Stop { run: run.clone(), tree: true },
            Self::All => ControlRequest::StopAll {},
        }
    }

    async fn rows(&self, reader: &StoreReader) -> Result<Vec<RunRow>, RequestError> {
        match self {
            Self::Run(run) => Ok(vec![reader.run(run).await?]),
            Self::Tree(run) => Ok(vec![reader.root(run).await?]),
            Self::All => reader.read(|rows| rows.open_runs()).await,
        }
    }
}

/// Stops the runs, and returns them as they are then.
async fn stop(target: &StopTarget, inquiry: &StoreClient) -> Result<Vec<RunView>, CliError> {
    let request = target.request();
    loop {
        match inquiry.access().await? {
            StoreAccess::Owner(mut client) => match client.request(&request, |_| Ok(())).await {
                Ok(ControlResponse::Stopped(rows)) => return Ok(rows),
                Ok(_) => return Err(unexpected_response().into()),
                // Stopping is idempotent, so the request can be repeated.
                Err(AskError::Disconnected) => sleep(super::store_client::RETRY_DELAY).await,
                Err(AskError::Rejected(fault)) => return Err(fault.into()),
            },
            StoreAccess::Store(journal) => {
                return write_without_owner(target, journal, inquiry.state()).await;
            }
        }
    }
}

/// Writes the ends of the runs from this process; no process runs them, and none is started.
async fn write_without_owner(
    target: &StopTarget,
    journal: Arc<dyn Journal>,
    state: &Path,
) -> Result<Vec<RunView>, CliError> {
    let reader = StoreReader::new(Arc::clone(&journal));
    let rows = target.rows(&reader).await?;
    if rows.iter().all(|row| row.state == RunState::Ended) {
        if matches!(target, StopTarget::All) {
            // Commands may outlive their runs, and also the store that knew those runs.
            Runner::new(host::OWN_PROGRAM, state).sweep(|_| false).await;
        }
        return Ok(rows.into_iter().map(RunView::from).collect());
    }
    let daemon = host::start_write_only((journal, state)).await?;
    let stopped = owner::stop(&daemon.runtime, rows).await;
    daemon.suspend(host::ShutdownUrgency::Normal).await;
    Ok(stopped?.into_iter().map(RunView::from).collect())
}
