//! `hermod journal`: prints the records of a session as JSON lines.

use clap::Args;
use hermod_actors::model::Seq;

use super::{CliError, print_json};
use crate::{
    control::{ControlRequest, ControlResponse},
    host::{Identifier, StoreClient, unexpected_response},
};

/// Print a session's records as JSON lines
#[derive(Debug, Args)]
pub(crate) struct JournalArgs {
    /// A session's id or key, the id of one of its runs, or `last` (session of the last run that is not a subagent's)
    session: Identifier,
    /// Begin at this sequence
    #[arg(long, value_name = "SEQ", default_value_t = 1)]
    from: Seq,
}

/// Prints the records.
pub(crate) async fn execute(args: JournalArgs, client: &StoreClient) -> Result<(), CliError> {
    // Resolves the id first: `last` may name another session when a later page is requested.
    let request = ControlRequest::SessionsShow { session: args.session.into(), max: 0 };
    let ControlResponse::Session(detail) = client.request(&request).await? else {
        return Err(unexpected_response().into());
    };
    client.records(detail.session.id.to_string(), args.from, |event| print_json(&event)).await
}
