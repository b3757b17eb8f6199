//! `hermod store`: checks, measures and repairs the store as a whole. `store/redb/check` and `maintenance/footprint.rs`
//! do the work of checks and measurements.

mod repair;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{CliError, Exit, format::bytes, print, print_as, print_json, table};
use crate::{
    artifacts::FileArtifacts,
    control::{ClassUsage, ControlRequest, ControlResponse, Footprint},
    discovery::Variables,
    host::{self, StartError, StoreClient, unexpected_response},
    store::redb::{CheckReport, check},
};

/// The store as a whole
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    Check(CheckArgs),
    Footprint(FootprintArgs),
    Repair(repair::RepairArgs),
}

/// Runs the subcommand.
pub(crate) async fn execute(args: StoreArgs, variables: &Variables) -> Result<Exit, CliError> {
    match args.command {
        StoreCommand::Check(args) => check_store(&args, variables),
        StoreCommand::Repair(args) => repair::execute(&args, variables).await,
        StoreCommand::Footprint(args) => footprint(&args, variables).await.map(|()| Exit::Ok),
    }
}

/// Read all of the store, and say what is damaged; no other hermod may have it open
#[derive(Debug, Args)]
struct CheckArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Checks the store, and prints what is damaged.
fn check_store(args: &CheckArgs, variables: &Variables) -> Result<Exit, CliError> {
    let state = host::configured_state_dir(variables)?;
    // `at` in place of `open`: opening deletes unfinished files, and a check changes nothing.
    let artifacts = FileArtifacts::at(&state);
    let report =
        check(&state, &|session, artifact| artifacts.check(session, artifact)).map_err(StartError::from)?;
    print_as(args.json, &report, format_check)?;
    Ok(if report.damages.is_empty() { Exit::Ok } else { Exit::Store })
}

fn format_check(report: &CheckReport) -> String {
    let counts = json!(report.counts);
    let cells = |(name, count): (&String, &Value)| [name.replace('_', " "), count.to_string()];
    let rows: Vec<_> = counts.as_object().into_iter().flatten().map(cells).collect();
    let mut text = table::render(["CHECKED", "COUNT"], &rows);
    text.push('\n');
    text.extend(report.damages.iter().map(|damage| format!("damaged: {damage}\n")));
    text + &match (report.damages.len() as u64, report.more_damages) {
        (0, _) => "nothing is damaged".to_owned(),
        (listed, more) => {
            let all = listed + more;
            format!(
                "{listed} of {all} places that are damaged are named; `hermod store repair --all` sets damaged sessions aside, \
                 or restore the folder from a backup"
            )
        }
    }
}

/// Show what takes up how much room in the state directory
#[derive(Debug, Args)]
struct FootprintArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

async fn footprint(args: &FootprintArgs, variables: &Variables) -> Result<(), CliError> {
    let ControlResponse::Footprint(footprint) =
        StoreClient::new(variables)?.request(&ControlRequest::StoreFootprint {}).await?
    else {
        return Err(unexpected_response().into());
    };
    let total: u64 = footprint.classes.iter().map(|usage| usage.bytes).sum();
    if args.json {
        let Footprint { state, classes, store } = footprint;
        return print_json(&json!({ "state": state, "bytes": total, "classes": classes, "store": store }));
    }
    print(&format_footprint(&footprint, total))
}

fn format_footprint(footprint: &Footprint, total: u64) -> String {
    let cells = |usage: &ClassUsage| [usage.class.clone(), bytes(usage.bytes), usage.files.to_string()];
    let mut rows: Vec<_> = footprint.classes.iter().map(cells).collect();
    let files: u64 = footprint.classes.iter().map(|usage| usage.files).sum();
    rows.push(["all".to_owned(), bytes(total), files.to_string()]);
    let store = &footprint.store;
    format!(
        "{}\n{}\n{} sessions, {} runs, {} of them unfinished\nthe store's file: {} records, {} other rows, about {} free\n",
        footprint.state,
        table::render(["CLASS", "BYTES", "FILES"], &rows),
        store.sessions,
        store.runs,
        store.unfinished,
        bytes(store.records),
        bytes(store.index),
        bytes(store.free),
    )
}
