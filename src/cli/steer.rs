//! `hermod steer`: sends a message to a run in progress.

use clap::Args;
use serde_json::json;

use super::{
    exit::{CliError, Exit},
    identifier::Identifier,
    output::{print, print_json},
    store_client::{StoreAccess, StoreClient, unexpected_response},
};
use crate::control::{AskError, ControlRequest, ControlResponse};

/// Tell a run that is under way something; the model reads it before its next step
#[derive(Debug, Args)]
pub(crate) struct SteerArgs {
    /// A run's id, or `last`, the last run that is no subagent's
    run: Identifier,
    /// What to tell
    text: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Sends the message to the process that runs the run; returns when it is durable.
pub(crate) async fn execute(args: SteerArgs, inquiry: &StoreClient) -> Result<(), CliError> {
    let request = ControlRequest::Steer { run: args.run.into(), text: args.text };
    let answer = match inquiry.access().await? {
        StoreAccess::Owner(mut client) => {
            client.request(&request, |_| Ok(())).await.map_err(connection_lost)?
        }
        // No process runs anything: the reply says how to resume the run.
        StoreAccess::Store(journal) => {
            drop(journal);
            inquiry.request(&request).await?
        }
    };
    let ControlResponse::Steered { run, session, next } = answer else {
        return Err(unexpected_response().into());
    };
    if args.json {
        let (run, session, next) = (run.to_string(), session.to_string(), next.to_string());
        return print_json(&json!({ "run": run, "session": session, "next": next }));
    }
    print(&format!(
        "run {run} reads it before its next step; if it completes before that, the message becomes run {next}"
    ))
}

/// The connection was lost before the reply. The request is not repeated, since the message may have been recorded.
fn connection_lost(lost: AskError) -> CliError {
    match lost {
        AskError::Rejected(fault) => fault.into(),
        AskError::Disconnected => CliError {
            exit: Exit::Failed,
            text: "the process that held the store ended before it answered; `hermod journal last` has a record \
                   message.steered if the message was taken"
                .into(),
        },
    }
}
