//! `hermod stop`: ends runs as stopped, durably, whoever runs them.

use std::{path::Path, sync::Arc};

use clap::Args;
use hermod_actors::{
    Defaults,
    model::{RunRow, RunState},
    port::{Journal, Read},
};
use serde_json::Value;
use tokio::time::sleep;

use super::{
    exit::Failure,
    hold,
    inquiry::{Inquiry, Reached, other_answer},
    output::{print, print_json},
    report, runs,
};
use crate::{
    control::{Answer, Lost, Reader, Request},
    daemon,
    process::runner::Runner,
};

/// End a run as stopped: at once if it waits for its model; its commands get two seconds to end by themselves
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// A run's id, or `last`
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    run: Option<String>,
    /// Every unfinished run
    #[arg(long)]
    all: bool,
    /// Print a JSON array of the runs
    #[arg(long)]
    json: bool,
}

/// Stops, and says what became of the runs.
pub(crate) async fn execute(args: StopArgs, inquiry: &Inquiry) -> Result<(), Failure> {
    let rows = stop(args.run.as_deref(), inquiry).await?;
    if args.json {
        print_json(&Value::from(rows.iter().map(report::run).collect::<Vec<_>>()))?;
    } else if rows.is_empty() {
        print("no run is unfinished")?;
    } else {
        let line = |row: &RunRow| match &row.ended {
            Some(ended) => format!("run {} has ended: {ended}\n", row.id),
            None => {
                format!("run {} is {} still: it ends when its tools have ended\n", row.id, runs::state(row))
            }
        };
        print(&rows.iter().map(line).collect::<String>())?;
    }
    Ok(())
}

/// Stops this run, or all.
async fn stop(run: Option<&str>, inquiry: &Inquiry) -> Result<Vec<RunRow>, Failure> {
    let request = run.map_or(Request::StopAll {}, |run| Request::Stop { run: run.to_owned() });
    loop {
        match inquiry.reach().await? {
            Reached::Holder(mut client) => match client.ask(&request, |_| Ok(())).await {
                Ok(Answer::Stopped(rows)) => return Ok(rows),
                Ok(_) => return Err(other_answer().into()),
                // To stop again what is stopped does nothing.
                Err(Lost::Gone) => sleep(super::inquiry::PAUSE).await,
                Err(Lost::Fault(fault)) => return Err(fault.into()),
            },
            Reached::Store(journal) => return alone(run, journal, inquiry.state()).await,
        }
    }
}

/// Nobody runs them: their ends are written from here, and nothing is started.
async fn alone(run: Option<&str>, journal: Arc<dyn Journal>, state: &Path) -> Result<Vec<RunRow>, Failure> {
    let reader = Reader::new(Arc::clone(&journal));
    let rows = match run {
        Some(run) => vec![reader.run(run).await?],
        None => reader.runs(Read::OpenRuns).await?,
    };
    let Some(open) = rows.iter().find(|row| row.state != RunState::Ended) else {
        if run.is_none() {
            // Commands may outlive their runs, and the store that knew these.
            Runner::new(daemon::OWN_PROGRAM, state).sweep(|_| false).await;
        }
        return Ok(rows);
    };
    let spec = (*reader.accepted(open).await?.spec).clone();
    let daemon = daemon::at_rest((journal, state), Defaults { spec, prompt: "".into() }).await?;
    let stopped = hold::stop(&daemon.runtime, rows).await;
    daemon.suspend(daemon::Leave::Done).await;
    Ok(stopped?)
}
