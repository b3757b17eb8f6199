//! `hermod approvals`: lists the pending approvals, or answers one.

use clap::{Args, Subcommand};
use hermod_actors::model::{ApprovalDecision, Timestamp};

use super::{CliError, print, print_json, print_note};
use crate::{
    clock::{self, rfc3339},
    control::{ControlRequest, ControlResponse},
    host::{Identifier, StoreClient, unexpected_response},
    view::{ApprovalView, DecisionView},
};

/// What runs ask you, and your answers
#[derive(Debug, Args)]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    command: ApprovalsCommand,
}

#[derive(Debug, Subcommand)]
enum ApprovalsCommand {
    /// List the questions of parked runs
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Let a call be made (again)
    Allow(AnswerArgs),
    /// Let a call not be made; its model is told so
    Deny(AnswerArgs),
}

#[derive(Debug, Args)]
struct AnswerArgs {
    /// The call, as `approvals list` names it; a run's id, or `last`, if that run and its subagents have one question only
    call: Identifier,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Lists the open approvals, or answers one.
pub(crate) async fn execute(args: ApprovalsArgs, client: &StoreClient) -> Result<(), CliError> {
    match args.command {
        ApprovalsCommand::List { json } => list(json, client).await,
        ApprovalsCommand::Allow(args) => decide(args, ApprovalDecision::Allow, client).await,
        ApprovalsCommand::Deny(args) => decide(args, ApprovalDecision::Deny, client).await,
    }
}

async fn list(json: bool, client: &StoreClient) -> Result<(), CliError> {
    let ControlResponse::Approvals(open) = client.request(&ControlRequest::ApprovalsList {}).await? else {
        return Err(unexpected_response().into());
    };
    if json {
        return print_json(&open);
    }
    if open.is_empty() {
        print_note("no run waits for a person");
    }
    let now = clock::now();
    open.iter().try_for_each(|approval| print(&format_approval(approval, now)))
}

fn format_approval(approval: &ApprovalView, now: Timestamp) -> String {
    let ApprovalView { call, question, since, expires_at, .. } = approval;
    let (since, until) = (rfc3339(*since), rfc3339(*expires_at));
    let expiry = if *expires_at > now {
        format!("taken for a no at {until}")
    } else {
        format!("expired {until}: taken for a no when `hermod runs resume {}` takes it up", call.run)
    };
    format!("{call}\n  {question}\n  asked {since}; {expiry}")
}

async fn decide(args: AnswerArgs, verdict: ApprovalDecision, client: &StoreClient) -> Result<(), CliError> {
    let decision = client.decide(&args.call, verdict).await?;
    if args.json {
        return print_json(&decision);
    }
    let DecisionView { call, run, .. } = decision;
    print(&format!("call {call} is {verdict}"))?;
    // The decision is recorded, even if the follow-up query fails.
    if client.run_detail(run.id.to_string()).await.is_ok_and(|detail| detail.is_unowned()) {
        print_note(format!("no process runs run {0}: it goes on with `hermod runs resume {0}`", run.id));
    }
    Ok(())
}
