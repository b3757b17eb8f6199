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
    let checked =
        check(&state, &|session, artifact| artifacts.check(session, artifact)).map_err(StartError::from)?;
    let checked = StoreCheckView::from(checked);
    print_as(args.json, &checked, text)?;
    Ok(if checked.damages.is_empty() { Exit::Ok } else { Exit::Store })
}

/// The counts of checked items, by name.
fn counts(checked: &StoreCheckView) -> [(&'static str, u64); 11] {
    let counts = &checked.checked;
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

fn text(checked: &StoreCheckView) -> String {
    let rows = counts(checked).map(|(name, count)| [name.replace('_', " "), count.to_string()]);
    let mut text = table::render(["CHECKED", "COUNT"], &rows);
    text.push('\n');
    text.extend(checked.damages.iter().map(|damage| format!("damaged: {damage}\n")));
    text + &match (checked.damages.len() as u64, checked.more) {
        (0, _) => "nothing is damaged".to_owned(),
        (named, more) => {
            let all = named + more;
            format!(
                "{named} of {all} places that are damaged are named; `hermod store repair --all` sets damaged sessions aside, \
                 or restore the folder from a backup"
            )
        }
    }
}
