//! `hermod steer`: sends a message to a run in progress.

use clap::Args;
use hermod_actors::SteerReceipt;

use super::{CliError, print_as};
use crate::{
    control::ControlResponse,
    host::{Identifier, StoreClient, unexpected_response},
};

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
pub(crate) async fn execute(args: SteerArgs, client: &StoreClient) -> Result<(), CliError> {
    let ControlResponse::Steered(steered) = client.steer(args.run.into(), args.text).await? else {
        return Err(unexpected_response().into());
    };
    print_as(args.json, &steered, |SteerReceipt { run, next, .. }| {
        format!(
            "run {run} reads it before its next step; if it completes before that, the message becomes run {next}"
        )
    })
}
