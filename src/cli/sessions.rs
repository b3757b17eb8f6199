//! `hermod sessions`: the conversations of the store.

use clap::{Args, Subcommand};
use hermod_actors::{model::SessionRow, port::Read};
use serde_json::Value;

use super::{ListArgs, exit::Failure, output::print, reader::Reader, report, runs, table};
use crate::clock::rfc3339;

/// The conversations in the store
#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the youngest sessions
    List(ListArgs),
    /// Show one session and its runs
    Show {
        /// A session's id or key, the id of one of its runs, or `last`
        id: String,
        /// At most so many runs, the youngest
        #[arg(long, default_value_t = 100)]
        max: usize,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Shows what is asked for.
pub(crate) async fn execute(args: SessionsArgs, reader: &Reader) -> Result<(), Failure> {
    match args.verb {
        Verb::List(list) => {
            let (mut cells, mut objects) = (Vec::new(), Vec::new());
            for row in reader.sessions(Read::Sessions { max: list.max }).await? {
                let quarantined = reader.quarantined(row.id).await?;
                objects.push(object_of(&row, quarantined.as_deref()));
                let state = state(quarantined.as_deref());
                cells.push([row.id.to_string(), row.key.to_string(), rfc3339(row.opened_at), state]);
            }
            if list.json {
                return print(&Value::from(objects).to_string());
            }
            print(&table::render(["SESSION", "KEY", "OPENED", "STATE"], &cells))
        }
        Verb::Show { id, max, json } => {
            let session = reader.session(&id).await?;
            let quarantined = reader.quarantined(session.id).await?;
            let mut rows = Vec::new();
            for row in reader.runs(Read::Runs { session: Some(session.id), max }).await? {
                rows.push(reader.counted(row).await?);
            }
            if json {
                let mut object = object_of(&session, quarantined.as_deref());
                object["runs"] = rows.iter().map(report::run).collect();
                return print(&object.to_string());
            }
            let (id, key, opened) = (session.id, &session.key, rfc3339(session.opened_at));
            let (state, runs) = (state(quarantined.as_deref()), runs::table_of(&rows));
            print(&format!("session  {id}\nkey      {key}\nopened   {opened}\nstate    {state}\n\n{runs}"))
        }
    }
}

/// What can be done with it: everything, or nothing by this program, and why.
fn state(quarantined: Option<&str>) -> String {
    quarantined.map_or_else(|| "readable".into(), |why| format!("quarantined: {why}"))
}

fn object_of(row: &SessionRow, quarantined: Option<&str>) -> Value {
    let mut object = report::session(row);
    object["quarantined"] = quarantined.into();
    object
}
