//! `hermod stop`: ends runs as stopped, durably, whoever runs them.

use std::{path::Path, sync::Arc};

use clap::Args;
use hermod_actors::{
    model::{RunRow, RunState},
    port::{Journal, Read},
};
use serde_json::Value;
use tokio::time::sleep;

use super::{
    exit::Failure,
    hold,
    identifier::Identifier,
    inquiry::{Inquiry, Reached, other_answer},
    output::{print, print_json},
    report, runs,
};
use crate::{
    control::{Answer, Fault, Lost, Reader, Request, RunStatus},
    daemon,
    process::runner::Runner,
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

/// Stops, and says what became of the runs.
pub(crate) async fn execute(args: StopArgs, inquiry: &Inquiry) -> Result<(), Failure> {
    let target = match args.run {
        None => Target::All,
        Some(run) if args.tree => Target::Tree(run.into()),
        Some(run) => Target::Run(run.into()),
    };
    let rows: Vec<RunStatus> = stop(&target, inquiry).await?.into_iter().map(RunStatus::from).collect();
    if args.json {
        print_json(&Value::from(rows.iter().map(report::run).collect::<Vec<_>>()))?;
    } else if rows.is_empty() {
        print("no run is unfinished")?;
    } else {
        let line = |row: &RunStatus| match &row.ended {
            Some(ended) => format!("run {} has ended: {ended}\n", row.id),
            None => {
                format!("run {} is {} still: it ends when its tools have ended\n", row.id, runs::state(row))
            }
        };
        print(&rows.iter().map(line).collect::<String>())?;
    }
    Ok(())
}

/// What is to be stopped.
enum Target {
    Run(String),
    /// The root of the tree to which this run belongs.
    Tree(String),
    All,
}

impl Target {
    fn request(&self) -> Request {
        match self {
            Self::Run(run) => Request::Stop { run: run.clone(), tree: false },
            Self::Tree(run) => Request::Stop { run: run.clone(), tree: true },
            Self::All => Request::StopAll {},
        }
    }

    async fn rows(&self, reader: &Reader) -> Result<Vec<RunRow>, Fault> {
        match self {
            Self::Run(run) => Ok(vec![reader.run(run).await?]),
            Self::Tree(run) => Ok(vec![reader.root(run).await?]),
            Self::All => reader.runs(Read::OpenRuns).await,
        }
    }
}

/// Stops it.
async fn stop(target: &Target, inquiry: &Inquiry) -> Result<Vec<RunRow>, Failure> {
    let request = target.request();
    loop {
        match inquiry.reach().await? {
            Reached::Holder(mut client) => match client.ask(&request, |_| Ok(())).await {
                Ok(Answer::Stopped(rows)) => return Ok(rows),
                Ok(_) => return Err(other_answer().into()),
                // To stop again what is stopped does nothing.
                Err(Lost::Gone) => sleep(super::inquiry::PAUSE).await,
                Err(Lost::Fault(fault)) => return Err(fault.into()),
            },
            Reached::Store(journal) => return alone(target, journal, inquiry.state()).await,
        }
    }
}

/// Nobody runs them: their ends are written from here, and nothing is started.
async fn alone(target: &Target, journal: Arc<dyn Journal>, state: &Path) -> Result<Vec<RunRow>, Failure> {
    let reader = Reader::new(Arc::clone(&journal));
    let rows = target.rows(&reader).await?;
    if rows.iter().all(|row| row.state == RunState::Ended) {
        if matches!(target, Target::All) {
            // Commands may outlive their runs, and the store that knew these.
            Runner::new(daemon::OWN_PROGRAM, state).sweep(|_| false).await;
        }
        return Ok(rows);
    }
    let daemon = daemon::at_rest((journal, state)).await?;
    let stopped = hold::stop(&daemon.runtime, rows).await;
    daemon.suspend(daemon::Leave::Done).await;
    Ok(stopped?)
}
