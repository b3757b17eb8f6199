//! `hermod usage`: the limits of all runs of the store together, and what is used of them in the present periods.

use clap::Args;
use serde::Serialize;

use super::{CliError, budgets, examples, print_as, table};
use crate::{
    config::Config,
    control::{ControlRequest, ControlResponse},
    discovery::Variables,
    host::{StoreClient, unexpected_response},
    view::PeriodUsageView,
};

const NO_LIMITS: &str = "no limits for all runs together: see [limits] in `hermod config show`\n";

/// Show what all runs may use together by hour, day and month, and what is left
#[derive(Debug, Args)]
#[command(after_help = examples::USAGE)]
pub(crate) struct UsageArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Usage {
    limits: Vec<PeriodUsageView>,
}

/// Shows the present periods.
pub(crate) async fn execute(args: &UsageArgs, variables: &Variables) -> Result<(), CliError> {
    let limits = read(variables).await?;
    print_as(args.json, &Usage { limits }, |usage| format_periods(&usage.limits))
}

/// The present periods as a table.
pub(super) async fn text(variables: &Variables) -> Result<String, CliError> {
    read(variables).await.map(|periods| format_periods(&periods))
}

async fn read(variables: &Variables) -> Result<Vec<PeriodUsageView>, CliError> {
    let client = StoreClient::new(variables)?;
    let limits = Config::read(variables)?.limits.by_period();
    let response = client.request(&ControlRequest::LimitsShow { limits }).await?;
    let ControlResponse::Limits(limits) = response else { return Err(unexpected_response().into()) };
    Ok(limits)
}

fn format_periods(periods: &[PeriodUsageView]) -> String {
    let rows: Vec<_> = periods
        .iter()
        .flat_map(|period| {
            let dimensions = period.account.dimensions.iter();
            dimensions.map(|(dimension, usage)| {
                let [name, limit, spent, reserved, left] = budgets::cells(*dimension, usage);
                let unit = period.period.name().to_owned();
                [unit, name, limit, spent, reserved, left, period.ends_at.to_string()]
            })
        })
        .collect();
    if rows.is_empty() {
        return NO_LIMITS.to_owned();
    }
    table::render(["PERIOD", "LIMITED", "LIMIT", "SPENT", "RESERVED", "LEFT", "UNTIL"], &rows)
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{Amounts, BudgetAccount, Period, PeriodUnit, Timestamp};

    use super::*;

    #[test]
    fn each_limit_of_a_period_is_a_line() {
        let account = BudgetAccount {
            parent: None,
            limits: Amounts { usd: Some(5_000_000_000), ..Amounts::default() },
            spent: Amounts { usd: Some(1_250_000_000), tokens: Some(70), ..Amounts::default() },
            reserved: Amounts { usd: Some(250_000_000), ..Amounts::default() },
            owns_iterations: false,
        };
        let day = Period::containing(PeriodUnit::Day, Timestamp(1_767_225_600_000));
        let lines = format_periods(&[PeriodUsageView::new(day, &account)]);
        let lines: Vec<Vec<&str>> = lines.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["day", "tokens", "-", "70", "0", "-", "2026-01-02T00:00:00Z"]);
        assert_eq!(lines[2], ["day", "usd", "$5.00", "$1.25", "$0.25", "$3.50", "2026-01-02T00:00:00Z"]);
        assert_eq!(format_periods(&[]), NO_LIMITS);
    }
}
