//! `hermod usage`: what ran and what it cost by day, and what is left of the limits of all runs together.

use clap::Args;
use serde::Serialize;

use super::{
    CliError, budgets, examples,
    format::{dollars, words_line},
    print_as, table, tree,
};
use crate::{
    config::Config,
    control::{ControlRequest, ControlResponse, MAX_DAYS},
    discovery::Variables,
    host::{StoreClient, unexpected_response},
    view::{DayView, DaysView, PeriodUsageView, RunSummaryView},
};

const NO_LIMITS: &str = "no limits for all runs together: see [limits] in `hermod config show`\n";
const DAYS_ARE_CUT: &str = "There are more runs than are read: the oldest are not in this.\n";

/// Show what runs cost by day, and what is left of the limits of all runs together
#[derive(Debug, Args)]
#[command(after_help = examples::USAGE)]
pub(crate) struct UsageArgs {
    /// Number of days of UTC, today included
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DAYS)))]
    days: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Usage {
    #[serde(flatten)]
    days: DaysView,
    limits: Vec<PeriodUsageView>,
}

/// Characters of a task.
const MAX_TASK_CHARS: usize = 60;
/// Days of the text that the chat shows.
const CHAT_DAYS: u32 = 7;

/// Shows the newest days and the present periods.
pub(crate) async fn execute(args: &UsageArgs, variables: &Variables) -> Result<(), CliError> {
    print_as(args.json, &read(args.days, variables).await?, format_usage)
}

/// The newest days and the present periods as text.
pub(super) async fn text(variables: &Variables) -> Result<String, CliError> {
    read(CHAT_DAYS, variables).await.map(|usage| format_usage(&usage))
}

async fn read(days: u32, variables: &Variables) -> Result<Usage, CliError> {
    let client = StoreClient::new(variables)?;
    let limits = Config::read(variables)?.limits.by_period();
    let response = client.request(&ControlRequest::UsageDays { days }).await?;
    let ControlResponse::Days(days) = response else { return Err(unexpected_response().into()) };
    let response = client.request(&ControlRequest::LimitsShow { limits }).await?;
    let ControlResponse::Limits(limits) = response else { return Err(unexpected_response().into()) };
    Ok(Usage { days, limits })
}

fn format_usage(usage: &Usage) -> String {
    let parts = [format_days(&usage.days), format_dearest(&usage.days), format_periods(&usage.limits)];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

fn format_days(days: &DaysView) -> String {
    let row = |day: &DayView| {
        let completed = day.outcomes.get("completed").copied().unwrap_or(0);
        let others = day.outcomes.iter().filter(|(outcome, _)| outcome.as_str() != "completed");
        let others: Vec<_> = others.map(|(outcome, count)| format!("{outcome} {count}")).collect();
        let (runs, read, written) = (day.runs, day.input_tokens, day.output_tokens);
        let [runs, completed, read, written] =
            [runs, completed, read, written].map(|count| count.to_string());
        let others = table::or_dash(Some(others.join(", ")).filter(|others| !others.is_empty()));
        [day.day.clone(), dollars(day.spent_usd), runs, completed, read, written, others]
    };
    let rows: Vec<_> = days.days.iter().map(row).collect();
    let head = ["DAY", "SPENT", "RUNS", "COMPLETED", "READ", "WRITTEN", "OTHER OUTCOMES"];
    let cut = if days.is_complete { "" } else { DAYS_ARE_CUT };
    format!("{}{cut}", table::render(head, &rows))
}

/// The runs that cost most; empty if no run cost anything.
fn format_dearest(days: &DaysView) -> String {
    if days.dearest.is_empty() {
        return String::new();
    }
    let row = |summary: &RunSummaryView| {
        let run = &summary.run;
        let task = words_line(&summary.input, MAX_TASK_CHARS);
        [dollars(summary.spent_usd.unwrap_or(0)), tree::id_suffix(run.id), run.agent.to_string(), task]
    };
    let rows: Vec<_> = days.dearest.iter().map(row).collect();
    table::render(["COST MOST", "RUN", "AGENT", "TASK"], &rows)
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
    fn each_day_is_a_line() {
        let outcomes = [("completed", 1), ("failed", 2), ("unfinished", 1)];
        let day = DayView {
            day: "2026-01-02".to_owned(),
            runs: 4,
            subagents: 0,
            outcomes: outcomes.map(|(outcome, count)| (outcome.to_owned(), count)).into(),
            input_tokens: 70,
            output_tokens: 8,
            spent_usd: 1_250_000_000,
        };
        let check = |is_complete: bool, end: &str| {
            let view = DaysView { days: vec![day.clone()], dearest: Vec::new(), is_complete };
            assert_eq!(format_dearest(&view), "");
            let lines = format_days(&view);
            let row = lines.lines().nth(1).map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "));
            assert_eq!(row.as_deref(), Some("2026-01-02 $1.25 4 1 70 8 failed 2, unfinished 1"));
            assert!(lines.ends_with(end), "{lines}");
        };
        check(true, "unfinished 1\n");
        check(false, DAYS_ARE_CUT);
    }

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
