//! `hermod sessions`: the conversations of the store.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{
    ListArgs,
    exit::Failure,
    inquiry::{Inquiry, other_answer},
    output::print,
    report, runs, table,
};
use crate::{
    clock::rfc3339,
    control::{Answer, Request},
};

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
pub(crate) async fn execute(args: SessionsArgs, inquiry: &Inquiry) -> Result<(), Failure> {
    match args.verb {
        Verb::List(list) => {
            let Answer::Sessions(rows) = inquiry.ask(&Request::SessionsList { max: list.max }).await? else {
                return Err(other_answer().into());
            };
            if list.json {
                return print(&Value::from(rows.iter().map(report::session).collect::<Vec<_>>()).to_string());
            }
            let cells: Vec<_> = rows
                .iter()
                .map(|row| [row.id.to_string(), row.key.to_string(), rfc3339(row.opened_at)])
                .collect();
            print(&table::render(["SESSION", "KEY", "OPENED"], &cells))
        }
        Verb::Show { id, max, json } => {
            let request = Request::SessionsShow { session: id, max };
            let Answer::Session(detail) = inquiry.ask(&request).await? else {
                return Err(other_answer().into());
            };
            let (session, rows) = (detail.row, detail.runs);
            if json {
                let mut object = report::session(&session);
                object["runs"] = rows.iter().map(report::run).collect();
                return print(&object.to_string());
            }
            let (id, key, opened) = (session.id, &session.key, rfc3339(session.opened_at));
            print(&format!("session  {id}\nkey      {key}\nopened   {opened}\n\n{}", runs::table_of(&rows)))
        }
    }
}
