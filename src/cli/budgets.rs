//! `hermod budget`: shows the limits and the spend of a run, and raises its limits.

use std::{path::Path, sync::Arc, time::Duration};

use clap::{Args, Subcommand};
use hermod_actors::{
    model::{Amounts, Dimension, LimitIncrease, RunId, RunState, WaitKind},
    port::Journal,
};
use serde_json::{Map, Value, json};
use tokio::time::sleep;

use super::{
    budget_arg::{BudgetArg, millis},
    continuation::{BudgetUsage, continuation},
    examples,
    exit::{CliError, Exit},
    format::{dollars, seconds},
    identifier::Identifier,
    output::{print, print_json, print_note, print_progress},
    report,
    resume::{self, ResumeArgs},
    runs,
    store_client::{StoreAccess, StoreClient, unexpected_response},
    table,
};
use crate::{
    control::{
        AccountWithId, AskError, BudgetDetail, ControlRequest, ControlResponse, RunDetail, StoreReader,
    },
    discovery::Variables,
    host,
};

/// Pause between two queries of a run that another process runs.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// What a run may use up, and more of it
#[derive(Debug, Args)]
#[command(after_help = examples::BUDGET)]
pub(crate) struct BudgetArgs {
    #[command(subcommand)]
    verb: BudgetCommand,
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
    let inquiry = StoreClient::new(variables)?;
    match args.verb {
        BudgetCommand::Show { run, json } => {
            print_budget(&show(run.into(), &inquiry).await?, json).map(|()| Exit::Ok)
        }
        BudgetCommand::Add(args) => add(args, &inquiry, variables).await,
    }
}

async fn show(run: String, inquiry: &StoreClient) -> Result<BudgetDetail, CliError> {
    let ControlResponse::Budget(budget) = inquiry.request(&ControlRequest::BudgetShow { run }).await? else {
        return Err(unexpected_response().into());
    };
    Ok(*budget)
}

async fn add(args: AddArgs, inquiry: &StoreClient, variables: &Variables) -> Result<Exit, CliError> {
    let more: BudgetArg = args.more.join(",").parse().map_err(CliError::usage)?;
    let by = LimitIncrease { budget: more.amounts, wall_ms: more.wall.map(millis) };
    let request = ControlRequest::BudgetAdd { run: args.run.to_string(), by };
    let answer = match inquiry.access().await? {
        StoreAccess::Owner(mut client) => {
            client.request(&request, |_| Ok(())).await.map_err(connection_lost)?
        }
        StoreAccess::Store(journal) => write_without_owner(&args.run, by, (journal, inquiry.state())).await?,
    };
    let ControlResponse::Raised(row) = answer else { return Err(unexpected_response().into()) };
    let run = row.id.to_string();
    if args.json {
        return print_budget(&show(run, inquiry).await?, true).map(|()| Exit::Ok);
    }
    let leg = if row.leg > 1 { format!(", leg {}", row.leg) } else { String::new() };
    print_note(format!("raised    the budget of run {run}{leg}"));
    if args.wait {
        return wait(row.id, inquiry, variables).await;
    }
    // The budget is raised, even if the follow-up queries fail.
    if let Ok(budget) = show(run.clone(), inquiry).await {
        print_budget(&budget, false)?;
    }
    if detail(&run, inquiry).await.is_ok_and(|detail| is_unowned(&detail)) {
        print_note(format!("no process runs run {run}: it goes on with `hermod runs resume {run}`"));
    }
    Ok(Exit::Ok)
}

/// Waits for the run's end, and runs it in this process if no other one does.
async fn wait(run: RunId, inquiry: &StoreClient, variables: &Variables) -> Result<Exit, CliError> {
    loop {
        let detail = detail(&run.to_string(), inquiry).await?;
        match &detail.row.ended {
            Some(ended) => {
                print_note(format!("ended     run {run}: {ended}"));
                let used =
                    BudgetUsage { tokens: detail.row.usage.total(), nano_usd: detail.cost.unwrap_or(0) };
                continuation(run, ended, used).into_iter().for_each(print_progress);
                let exit = Exit::from(ended);
                return match detail.last_text {
                    Some(answer) if exit == Exit::Ok => print(&answer).map(|()| exit),
                    Some(partial) => {
                        print_note(format!("said last {partial}"));
                        Ok(exit)
                    }
                    None => Ok(exit),
                };
            }
            None if detail.row.state == RunState::Parked => {
                print_note(format!("parked    run {run} waits for a person; see `hermod approvals list`"));
                return Ok(Exit::Parked);
            }
            None if is_unowned(&detail) => {
                return resume::execute(&ResumeArgs::until_ended(run), variables).await;
            }
            None => sleep(POLL_INTERVAL).await,
        }
    }
}

async fn detail(run: &str, inquiry: &StoreClient) -> Result<RunDetail, CliError> {
    let ControlResponse::Run(detail) =
        inquiry.request(&ControlRequest::RunsShow { run: run.to_owned() }).await?
    else {
        return Err(unexpected_response().into());
    };
    Ok(*detail)
}

/// True if no process runs the run; the owner of the store may run another one.
fn is_unowned(detail: &RunDetail) -> bool {
    detail.waits.iter().any(|wait| wait.kind == WaitKind::NoProcess)
}

/// Raises the limits from this process; no process runs the run, and none is started.
async fn write_without_owner(
    run: &str,
    by: LimitIncrease,
    (journal, state): (Arc<dyn Journal>, &Path),
) -> Result<ControlResponse, CliError> {
    let reader = StoreReader::new(Arc::clone(&journal));
    let row = reader.run(run).await?;
    let daemon = host::start_write_only((journal, state)).await?;
    let raised = daemon.runtime.raise_without_resume(row.id, by).await;
    daemon.suspend(host::ShutdownUrgency::Normal).await;
    Ok(ControlResponse::Raised(Box::new(raised?)))
}

/// The connection was lost before the reply. The request is not repeated, since the limits could be raised twice.
fn connection_lost(lost: AskError) -> CliError {
    match lost {
        AskError::Rejected(fault) => fault.into(),
        AskError::Disconnected => CliError {
            exit: Exit::Failed,
            text: "the process that held the store ended before it answered; `hermod budget show` shows whether the limits \
                   are raised"
                .into(),
        },
    }
}

fn print_budget(budget: &BudgetDetail, json: bool) -> Result<(), CliError> {
    if json { print_json(&object(budget)) } else { print(&format_budget(budget)) }
}

/// Money is in dollars: `{…of the run, leg, accounts: [{account, dimensions: {name: {limit, spent, reserved,
/// left}}}], wall: {limit_ms, used_ms}}`.
fn object(budget: &BudgetDetail) -> Value {
    let mut object = report::run(&budget.row);
    object["leg"] = budget.row.leg.into();
    object["accounts"] = budget.accounts.iter().map(account).collect();
    object["wall"] = json!({ "limit_ms": budget.wall_ms, "used_ms": budget.used_ms });
    object
}

fn account(purse: &AccountWithId) -> Value {
    let amount = |dimension, amount: u64| match dimension {
        Dimension::Usd => report::in_dollars(amount),
        Dimension::Iterations | Dimension::Tokens | Dimension::ToolCalls | Dimension::Children => {
            json!(amount)
        }
    };
    let line = |dimension: Dimension| {
        let DimensionUsage { limit, spent, reserved, left } = DimensionUsage::of(purse, dimension)?;
        let [spent, reserved] = [spent, reserved].map(|sum| amount(dimension, sum));
        let [limit, left] = [limit, left].map(|sum| sum.map(|sum| amount(dimension, sum)));
        let line = json!({ "limit": limit, "spent": spent, "reserved": reserved, "left": left });
        Some((dimension.name().to_owned(), line))
    };
    let dimensions: Map<String, Value> = Dimension::ALL.into_iter().filter_map(line).collect();
    json!({ "account": purse.id.to_string(), "dimensions": dimensions })
}

/// One dimension of an account.
struct DimensionUsage {
    limit: Option<u64>,
    spent: u64,
    reserved: u64,
    left: Option<u64>,
}

impl DimensionUsage {
    /// `None` for a dimension that is neither limited nor used.
    fn of(purse: &AccountWithId, dimension: Dimension) -> Option<Self> {
        let limit = purse.account.limits.get(dimension);
        let of = |amounts: &Amounts| amounts.get(dimension).unwrap_or(0);
        let (spent, reserved) = (of(&purse.account.spent), of(&purse.account.reserved));
        let left = limit.map(|limit| limit.saturating_sub(spent).saturating_sub(reserved));
        (limit.is_some() || spent > 0 || reserved > 0).then_some(Self { limit, spent, reserved, left })
    }
}

fn format_budget(budget: &BudgetDetail) -> String {
    let row = &budget.row;
    let state = row.ended.as_ref().map_or_else(|| runs::state(row), ToString::to_string);
    let head = format!("run         {}\nleg         {}\nstate       {state}\n", row.id, row.leg);
    let accounts = budget.accounts.iter().enumerate().map(|(n, purse)| {
        let above = if n == 0 { "" } else { ", above" };
        let rows: Vec<_> =
            Dimension::ALL.into_iter().filter_map(|dimension| cells(purse, dimension)).collect();
        let table = table::render(["LIMITED", "LIMIT", "SPENT", "RESERVED", "LEFT"], &rows);
        format!("\naccount     {}{above}\n{table}", purse.id)
    });
    head + &wall(budget) + &accounts.collect::<String>()
}

/// The line of the active time; empty if it is neither limited nor known.
fn wall(budget: &BudgetDetail) -> String {
    if budget.wall_ms.is_none() && budget.used_ms.is_none() {
        return String::new();
    }
    let used = budget.used_ms.map_or_else(|| "not known".to_owned(), |ms| seconds(ms) + " used");
    let limit = budget.wall_ms.map(|ms| humantime::format_duration(Duration::from_millis(ms)));
    let limit = limit.map_or_else(|| "no limit".to_owned(), |limit| format!("limit {limit}"));
    format!("wall        {used}, {limit}\n")
}

fn cells(purse: &AccountWithId, dimension: Dimension) -> Option<[String; 5]> {
    let DimensionUsage { limit, spent, reserved, left } = DimensionUsage::of(purse, dimension)?;
    let amount = |amount: u64| match dimension {
        Dimension::Usd => dollars(amount),
        Dimension::Iterations | Dimension::Tokens | Dimension::ToolCalls | Dimension::Children => {
            amount.to_string()
        }
    };
    let perhaps = |sum: Option<u64>| sum.map_or_else(|| "-".to_owned(), amount);
    Some([dimension.name().to_owned(), perhaps(limit), amount(spent), amount(reserved), perhaps(left)])
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::BudgetAccount;

    use super::*;

    #[test]
    fn what_is_left_is_told_where_there_is_a_limit() {
        let account = BudgetAccount {
            parent: None,
            limits: Amounts { iterations: Some(10), usd: Some(1_000_000_000), ..Amounts::default() },
            spent: Amounts { iterations: Some(4), tokens: Some(700), ..Amounts::default() },
            reserved: Amounts { iterations: Some(1), usd: Some(250_000_000), ..Amounts::default() },
            owns_iterations: false,
        };
        let purse = AccountWithId { id: RunId::from_bits(1).into(), account };
        let check = |dimension, expect: Option<[&str; 5]>| {
            assert_eq!(cells(&purse, dimension), expect.map(|cells| cells.map(str::to_owned)));
        };
        check(Dimension::Iterations, Some(["iterations", "10", "4", "1", "5"]));
        check(Dimension::Tokens, Some(["tokens", "-", "700", "0", "-"]));
        check(Dimension::Usd, Some(["usd", "$1.00", "$0.00", "$0.25", "$0.75"]));
        check(Dimension::ToolCalls, None);
        let usd = json!({ "limit": 1.0, "spent": 0.0, "reserved": 0.25, "left": 0.75 });
        assert_eq!(super::account(&purse)["dimensions"]["usd"], usd);
    }
}
