//! `hermod budget`: shows the limits and the spend of a run, and raises its limits. With `--wait` it also waits for the
//! run's end, and resumes the run here if no process runs it.

use std::time::Duration;

use clap::{Args, Subcommand};
use hermod_actors::model::{Dimension, LimitIncrease, RunId};
use tokio::time::sleep;

use super::{
    CliError, Exit, examples,
    format::{dollars, seconds},
    output::print_last_text,
    print, print_as, print_json, print_note, print_progress,
    resume::{self, ResumeArgs},
    runs, table,
};
use crate::{
    control::{BudgetUsage, ControlRequest, ControlResponse, continuation},
    discovery::Variables,
    host::{BudgetLimits, Identifier, StoreClient, millis, unexpected_response},
    view::{ActiveTimeView, BudgetView, DimensionUsage, RunStateView},
};

/// Pause between two queries of a run that another process runs.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// What a run may use up, and more of it
#[derive(Debug, Args)]
#[command(after_help = examples::BUDGET)]
pub(crate) struct BudgetArgs {
    #[command(subcommand)]
    command: BudgetCommand,
}

#[derive(Debug, Subcommand)]
enum BudgetCommand {
    /// Show the limits of a run and of those above it, and what is spent
    Show {
        /// A run's id, or `last`, the last run that is no subagent's
        run: Identifier,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    Add(AddArgs),
}

/// Raise limits of a run; one that has used up its budget goes on where it was
#[derive(Debug, Args)]
struct AddArgs {
    /// A run's id, or `last`, the last run that is no subagent's
    run: Identifier,
    /// How much more, such as iterations=10 tokens=50k usd=0.50 tool_calls=5 wall=10m; a limit that it does not have is
    /// not made
    #[arg(required = true, value_name = "NAME=AMOUNT")]
    more: Vec<String>,
    /// Let the run go on in this process, if none runs it, and wait for its end
    #[arg(long)]
    wait: bool,
    /// Print one JSON object
    #[arg(long, conflicts_with = "wait")]
    json: bool,
}

/// Shows a budget, or raises it.
pub(crate) async fn execute(args: BudgetArgs, variables: &Variables) -> Result<Exit, CliError> {
    let client = StoreClient::new(variables)?;
    match args.command {
        BudgetCommand::Show { run, json } => {
            print_as(json, &show(run.into(), &client).await?, format_budget).map(|()| Exit::Ok)
        }
        BudgetCommand::Add(args) => add(args, &client, variables).await,
    }
}

async fn show(run: String, client: &StoreClient) -> Result<BudgetView, CliError> {
    let ControlResponse::Budget(budget) = client.request(&ControlRequest::BudgetShow { run }).await? else {
        return Err(unexpected_response().into());
    };
    Ok(*budget)
}

async fn add(args: AddArgs, client: &StoreClient, variables: &Variables) -> Result<Exit, CliError> {
    let added: BudgetLimits = args.more.join(",").parse().map_err(CliError::usage)?;
    let increase = LimitIncrease { budget: added.amounts, wall_ms: added.wall.map(millis) };
    let row = client.raise(&args.run, increase).await?;
    let run = row.id.to_string();
    if args.json {
        return print_json(&show(run, client).await?).map(|()| Exit::Ok);
    }
    let leg = if row.legs > 1 { format!(", leg {}", row.legs) } else { String::new() };
    print_note(format!("raised    the budget of run {run}{leg}"));
    if args.wait {
        return wait(row.id, client, variables).await;
    }
    // The budget is raised, even if the follow-up queries fail.
    if let Ok(budget) = show(run.clone(), client).await {
        print(&format_budget(&budget))?;
    }
    if client.run_detail(run.clone()).await.is_ok_and(|detail| detail.is_unowned()) {
        print_note(format!("no process runs run {run}: it goes on with `hermod runs resume {run}`"));
    }
    Ok(Exit::Ok)
}

/// Waits for the run's end, and runs it in this process if no other one does.
async fn wait(run: RunId, client: &StoreClient, variables: &Variables) -> Result<Exit, CliError> {
    loop {
        let detail = client.run_detail(run.to_string()).await?;
        match &detail.run.ended {
            Some(ended) => {
                print_note(format!("ended     run {run}: {ended}"));
                let used =
                    BudgetUsage { tokens: detail.run.usage.total(), nano_usd: detail.cost.unwrap_or(0) };
                continuation(run, ended, used).into_iter().for_each(print_progress);
                let exit = Exit::from(ended);
                return print_last_text(detail.last_text.as_deref(), exit == Exit::Ok).map(|()| exit);
            }
            None if detail.run.state == RunStateView::Parked => {
                print_note(format!("parked    run {run} waits for a person; see `hermod approvals list`"));
                return Ok(Exit::Parked);
            }
            None if detail.is_unowned() => {
                return resume::execute(&ResumeArgs::until_ended(run), variables).await;
            }
            None => sleep(POLL_INTERVAL).await,
        }
    }
}

/// The limits of a run and what is spent of them, as text.
pub(super) fn format_budget(budget: &BudgetView) -> String {
    let row = &budget.run;
    let state = row.ended.as_ref().map_or_else(|| runs::state(row), ToString::to_string);
    let head = format!("run         {}\nleg         {}\nstate       {state}\n", row.id, budget.leg);
    let accounts = budget.accounts.iter().enumerate().map(|(n, account)| {
        let above = if n == 0 { "" } else { ", above" };
        let rows: Vec<_> =
            account.dimensions.iter().map(|(dimension, usage)| cells(*dimension, usage)).collect();
        let table = table::render(["LIMITED", "LIMIT", "SPENT", "RESERVED", "LEFT"], &rows);
        format!("\naccount     {}{above}\n{table}", account.account)
    });
    head + &wall(budget) + &accounts.collect::<String>()
}

/// The line of the active time; empty if it is neither limited nor known.
fn wall(budget: &BudgetView) -> String {
    let ActiveTimeView { limit_ms, used_ms } = budget.wall;
    if limit_ms.is_none() && used_ms.is_none() {
        return String::new();
    }
    let used = used_ms.map_or_else(|| "not known".to_owned(), |ms| seconds(ms) + " used");
    let limit = limit_ms.map(|ms| humantime::format_duration(Duration::from_millis(ms)));
    let limit = limit.map_or_else(|| "no limit".to_owned(), |limit| format!("limit {limit}"));
    format!("wall        {used}, {limit}\n")
}

/// The name, limit, spent, reserved and left amounts of a dimension.
pub(super) fn cells(dimension: Dimension, usage: &DimensionUsage) -> [String; 5] {
    let usage =
        usage.map(|amount| if dimension == Dimension::Usd { dollars(amount) } else { amount.to_string() });
    [
        dimension.name().to_owned(),
        table::or_dash(usage.limit),
        usage.spent,
        usage.reserved,
        table::or_dash(usage.left),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_where_there_is_a_limit() {
        let check = |dimension, usage, expect: [&str; 5]| {
            assert_eq!(cells(dimension, &usage), expect.map(str::to_owned));
        };
        let usage = DimensionUsage { limit: Some(10), spent: 4, reserved: 1, left: Some(5) };
        check(Dimension::Iterations, usage, ["iterations", "10", "4", "1", "5"]);
        let usage = DimensionUsage { limit: None, spent: 700, reserved: 0, left: None };
        check(Dimension::Tokens, usage, ["tokens", "-", "700", "0", "-"]);
        let usage = DimensionUsage {
            limit: Some(1_000_000_000),
            spent: 0,
            reserved: 250_000_000,
            left: Some(750_000_000),
        };
        check(Dimension::Usd, usage, ["usd", "$1.00", "$0.00", "$0.25", "$0.75"]);
    }
}
