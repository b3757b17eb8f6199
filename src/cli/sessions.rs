//! `hermod sessions`: the conversations of the store.

use clap::{Args, Subcommand};
use hermod_actors::{SanitizedText, model::SessionRow};
use serde_json::Value;

use super::{
    ListArgs,
    exit::CliError,
    identifier::Identifier,
    output::{print, print_json},
    report, runs,
    store_client::{StoreClient, unexpected_response},
    table,
};
use crate::{
    clock::rfc3339,
    control::{ControlRequest, ControlResponse, SessionDetail, SessionInfo},
};

/// The conversations in the store
#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    verb: SessionsCommand,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// List the youngest sessions
    List(ListArgs),
    /// Show one session and its runs
    Show {
        /// A session's id or key, the id of one of its runs, or `last`: that of the last run that is no subagent's
        id: Identifier,
        /// At most so many runs, the youngest
        #[arg(long, default_value_t = 100)]
        max: usize,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Lists sessions, or shows one.
pub(crate) async fn execute(args: SessionsArgs, inquiry: &StoreClient) -> Result<(), CliError> {
    match args.verb {
        SessionsCommand::List(list) => {
            let ControlResponse::Sessions(sessions) =
                inquiry.request(&ControlRequest::SessionsList { max: list.max }).await?
            else {
                return Err(unexpected_response().into());
            };
            let (mut cells, mut objects) = (Vec::new(), Vec::new());
            for SessionInfo { row, quarantined } in sessions {
                objects.push(object_of(&row, quarantined.as_deref()));
                let state = state(quarantined.as_deref());
                cells.push([row.id.to_string(), row.key.to_string(), rfc3339(row.opened_at), state]);
            }
            if list.json {
                return print_json(&Value::from(objects));
            }
            print(&table::render(["SESSION", "KEY", "OPENED", "STATE"], &cells))
        }
        SessionsCommand::Show { id, max, json } => {
            let request = ControlRequest::SessionsShow { session: id.into(), max };
            let ControlResponse::Session(detail) = inquiry.request(&request).await? else {
                return Err(unexpected_response().into());
            };
            let SessionDetail { session: SessionInfo { row: session, quarantined }, runs: rows, todo } =
                detail;
            if json {
                let mut object = object_of(&session, quarantined.as_deref());
                object["runs"] = rows.iter().map(report::run).collect();
                object["todo"] = todo.into();
                return print_json(&object);
            }
            let (id, key, opened) = (session.id, &session.key, rfc3339(session.opened_at));
            let (state, runs) = (state(quarantined.as_deref()), runs::table_of(&rows));
            let todo = todo
                .map_or_else(String::new, |todo| format!("\ntodo:\n{}\n", SanitizedText::sanitize(&todo)));
            print(&format!(
                "session  {id}\nkey      {key}\nopened   {opened}\nstate    {state}\n\n{runs}{todo}"
            ))
        }
    }
}

/// `readable`, or `quarantined` with the reason: this program then cannot use the session.
fn state(quarantined: Option<&str>) -> String {
    quarantined.map_or_else(|| "readable".into(), |why| format!("quarantined: {why}"))
}

fn object_of(row: &SessionRow, quarantined: Option<&str>) -> Value {
    let mut object = report::session(row);
    object["quarantined"] = quarantined.into();
    object
}
