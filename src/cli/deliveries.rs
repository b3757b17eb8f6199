//! `hermod deliveries`: lists messages to targets, shows one, and sends dead letters again.

use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use hermod_actors::model::DeliveryState;

use super::{CliError, examples, print, print_json, print_note};
use crate::{
    clock::rfc3339,
    control::{ControlRequest, ControlResponse},
    host::{Identifier, StoreClient, unexpected_response},
    view::DeliveryView,
};

/// Messages to targets: what waits, what was delivered, and dead letters
#[derive(Debug, Args)]
#[command(after_help = examples::DELIVERIES)]
pub(crate) struct DeliveriesArgs {
    #[command(subcommand)]
    command: DeliveriesCommand,
}

#[derive(Debug, Subcommand)]
enum DeliveriesCommand {
    /// List messages that are dead or wait, or those in one state
    List(ListArgs),
    /// Show one message with its text
    Show {
        /// The message's id, as `deliveries list` names it
        id: Identifier,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Send dead letters again, behind all other messages of their targets
    Retry(RetryArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only those in this state [default: dead and pending]
    #[arg(long, value_parser = state_parser())]
    state: Option<DeliveryState>,
    /// Only those for this target
    #[arg(long, value_name = "NAME")]
    target: Option<Identifier>,
    /// Most messages of each state: of pending ones the oldest, of others the newest
    #[arg(long, value_name = "N", default_value_t = 100)]
    max: usize,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct RetryArgs {
    /// The message's id
    #[arg(required_unless_present_any = ["all", "target"], conflicts_with_all = ["all", "target"])]
    id: Option<Identifier>,
    /// All dead letters
    #[arg(long)]
    all: bool,
    /// All dead letters for this target
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    target: Option<Identifier>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

fn state_parser() -> impl TypedValueParser<Value = DeliveryState> {
    PossibleValuesParser::new(["pending", "delivered", "dead"]).try_map(|name| name.parse::<DeliveryState>())
}

/// Lists, shows or retries.
pub(crate) async fn execute(args: DeliveriesArgs, client: &StoreClient) -> Result<(), CliError> {
    match args.command {
        DeliveriesCommand::List(args) => list(args, client).await,
        DeliveriesCommand::Show { id, json } => show(id, json, client).await,
        DeliveriesCommand::Retry(args) => retry(args, client).await,
    }
}

async fn list(args: ListArgs, client: &StoreClient) -> Result<(), CliError> {
    let ListArgs { state, target, max, json } = args;
    let target = target.map(String::from);
    let request = ControlRequest::DeliveriesList { state, target, max };
    let ControlResponse::Deliveries(found) = client.request(&request).await? else {
        return Err(unexpected_response().into());
    };
    if json {
        return print_json(&found);
    }
    if found.is_empty() {
        print_note("no such message");
    }
    found.iter().try_for_each(|delivery| print(&format_delivery(delivery)))
}

async fn show(id: Identifier, json: bool, client: &StoreClient) -> Result<(), CliError> {
    let ControlResponse::Delivery(found) =
        client.request(&ControlRequest::DeliveriesShow { id: id.into() }).await?
    else {
        return Err(unexpected_response().into());
    };
    if json {
        return print_json(&found);
    }
    print(&format_delivery(&DeliveryView { text: String::new(), ..(*found).clone() }))?;
    print(&found.text)
}

async fn retry(args: RetryArgs, client: &StoreClient) -> Result<(), CliError> {
    let retried = client.retry_deliveries(args.id.as_deref(), args.target.as_deref()).await?;
    if args.json {
        return print_json(&retried);
    }
    if retried.is_empty() {
        print_note("no dead letter");
    }
    retried.iter().try_for_each(|delivery| print(&format_delivery(delivery)))
}

fn format_delivery(delivery: &DeliveryView) -> String {
    let DeliveryView { id, target, state, attempts, run, .. } = delivery;
    let when = match (delivery.ended_at, delivery.next_at) {
        (Some(ended_at), _) => format!(" at {}", rfc3339(ended_at)),
        (None, Some(next_at)) => format!(", next attempt {}", rfc3339(next_at)),
        (None, None) => String::new(),
    };
    let error = delivery.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    let text = delivery.text.lines().next().unwrap_or_default();
    let text = if text.is_empty() { String::new() } else { format!("\n  {text}") };
    format!("{id}\n  to {target}, {state}{when} after {attempts} attempts{error}; run {run}{text}")
}
