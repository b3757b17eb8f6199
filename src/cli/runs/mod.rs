//! `hermod runs`: lists the runs of the store (`list.rs`), shows one (`show.rs`), or resumes them (`cli/resume.rs`). Also
//! the table of a session's runs, and the words for the states of runs, which other commands use.

mod list;
mod show;

use clap::{Args, Subcommand};

use super::{
    CliError, Exit,
    format::seconds,
    resume::{self, ResumeArgs},
    table::{self, or_dash},
};
use crate::{
    clock::rfc3339,
    discovery::Variables,
    host::{Identifier, StoreClient},
    view::RunView,
};

/// The runs in the store
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    command: RunsCommand,
}

#[derive(Debug, Subcommand)]
enum RunsCommand {
    List(list::RunsListArgs),
    /// Show one run
    Show {
        /// A run's id, its beginning or its end, or `last`, the last run that is no subagent's
        id: Identifier,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    Resume(ResumeArgs),
}

/// Lists, shows or resumes runs.
pub(crate) async fn execute(args: RunsArgs, variables: &Variables) -> Result<Exit, CliError> {
    match args.command {
        RunsCommand::Resume(args) => return resume::execute(&args, variables).await,
        RunsCommand::List(args) => list::execute(args, &StoreClient::new(variables)?).await?,
        RunsCommand::Show { id, json } => show::execute(id, json, &StoreClient::new(variables)?).await?,
    }
    Ok(Exit::Ok)
}

/// Runs of one session as a table.
pub(crate) fn format_table(rows: &[RunView]) -> String {
    let cells = |row: &RunView| {
        [
            row.id.to_string(),
            state(row),
            row.session.to_string(),
            rfc3339(row.accepted_at),
            duration(row),
            row.iterations.to_string(),
            row.usage.total().to_string(),
        ]
    };
    let rows: Vec<_> = rows.iter().map(cells).collect();
    table::render(["RUN", "STATE", "SESSION", "ACCEPTED", "TOOK", "ITERATIONS", "TOKENS"], &rows)
}

/// The outcome; for an unfinished run, its state.
pub(crate) fn state(run: &RunView) -> String {
    run.ended.as_ref().map_or(run.state.name(), |ended| ended.outcome.name()).to_owned()
}

pub(crate) fn duration(row: &RunView) -> String {
    let span = row.started_at.zip(row.ended_at);
    or_dash(span.map(|(start, end)| seconds(end.ms_since(start))))
}
