//! `hermod store check`: finds damage in the store, and prints it. `store/redb/check` does the work.

use clap::Args;

use crate::{
    artifacts::FileArtifacts,
    cli::{
        exit::{CliError, Exit},
        output::print_as,
        table,
    },
    discovery::Variables,
    host::{self, StartError},
    store::redb::check,
    view::StoreCheckView,
};

/// Read all of the store, and say what is damaged; no other hermod may have it open
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Checks the store, and prints what is damaged.
pub(crate) fn execute(args: &CheckArgs, variables: &Variables) -> Result<Exit, CliError> {
    let state = host::configured_state_dir(variables)?;
    // `at` in place of `open`: opening deletes unfinished files, and a check changes nothing.
    let artifacts = FileArtifacts::at(&state);
    let report =
        check(&state, &|session, artifact| artifacts.check(session, artifact)).map_err(StartError::from)?;
    let report = StoreCheckView::from(report);
    print_as(args.json, &report, format_report)?;
    Ok(if report.damages.is_empty() { Exit::Ok } else { Exit::Store })
}

/// The counts of checked items, by name.
fn counts(report: &StoreCheckView) -> [(&'static str, u64); 11] {
    let counts = &report.checked;
    [
        ("bytes", counts.bytes),
        ("sessions", counts.sessions),
        ("records", counts.records),
        ("rows", counts.rows),
        ("runs", counts.runs),
        ("open_runs", counts.open_runs),
        ("accounts", counts.accounts),
        ("inbox", counts.inbox),
        ("keys", counts.keys),
        ("blobs", counts.blobs),
        ("artifacts", counts.artifacts),
    ]
}

fn format_report(report: &StoreCheckView) -> String {
    let rows = counts(report).map(|(name, count)| [name.replace('_', " "), count.to_string()]);
    let mut text = table::render(["CHECKED", "COUNT"], &rows);
    text.push('\n');
    text.extend(report.damages.iter().map(|damage| format!("damaged: {damage}\n")));
    text + &match (report.damages.len() as u64, report.more) {
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
