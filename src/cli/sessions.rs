//! `hermod sessions`: lists the sessions of the store, or shows one with its runs.

use std::borrow::Cow;

use clap::{Args, Subcommand};
use hermod_actors::SanitizedText;

use super::{CliError, ListArgs, print_as, runs, table};
use crate::{
    clock::rfc3339,
    control::{ControlRequest, ControlResponse},
    host::{Identifier, StoreClient, unexpected_response},
    view::{SessionDetailView, SessionView},
};

/// The conversations in the store
#[derive(Debug, Args)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    command: SessionsCommand,
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
pub(crate) async fn execute(args: SessionsArgs, client: &StoreClient) -> Result<(), CliError> {
    match args.command {
        SessionsCommand::List(list) => {
            let ControlResponse::Sessions(sessions) =
                client.request(&ControlRequest::SessionsList { max: list.max }).await?
            else {
                return Err(unexpected_response().into());
            };
            let cells = |session: &SessionView| {
                [
                    session.id.to_string(),
                    session.key.clone(),
                    session.agent.to_string(),
                    rfc3339(session.opened_at),
                    state(session),
                    title(session).into_owned(),
                ]
            };
            print_as(list.json, &sessions, |sessions| {
                let rows: Vec<_> = sessions.iter().map(cells).collect();
                table::render(["SESSION", "KEY", "AGENT", "OPENED", "STATE", "TITLE"], &rows)
            })
        }
        SessionsCommand::Show { id, max, json } => {
            let request = ControlRequest::SessionsShow { session: id.into(), max };
            let ControlResponse::Session(detail) = client.request(&request).await? else {
                return Err(unexpected_response().into());
            };
            print_as(json, &detail, format_session)
        }
    }
}

fn format_session(SessionDetailView { session, runs, todo }: &SessionDetailView) -> String {
    let (id, key, agent, opened) = (session.id, &session.key, &session.agent, rfc3339(session.opened_at));
    let (state, runs) = (state(session), runs::format_table(runs));
    let todo = todo.iter().map(|todo| format!("\ntodo:\n{}\n", SanitizedText::sanitize(todo)));
    let todo: String = todo.collect();
    let title = title(session);
    format!(
        "session  {id}\nkey      {key}\nagent    {agent}\nopened   {opened}\nstate    {state}\ntitle    {title}\n\n{runs}{todo}"
    )
}

/// The title, without hidden characters; `-` without one.
fn title(session: &SessionView) -> Cow<'_, str> {
    SanitizedText::strict(session.title.as_deref().unwrap_or("-"))
}

/// `readable`, or `quarantined` with the reason: this program then cannot use the session.
fn state(session: &SessionView) -> String {
    session.quarantined.as_ref().map_or_else(|| "readable".into(), |reason| format!("quarantined: {reason}"))
}
