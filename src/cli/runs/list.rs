//! `hermod runs list`: the newest runs that fit, one a line.

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use hermod_actors::model::{AgentName, ScheduleName, Timestamp};
use strum::VariantNames;

use super::{duration, state};
use crate::{
    cli::{
        CliError, examples,
        format::{age, dollars, truncated_line},
        moment::parse_moment,
        print_as, print_note,
        schedules::schedule_name,
        table::{self, or_dash},
    },
    clock,
    control::{ControlRequest, ControlResponse, RunOutcomeFilter},
    host::{Identifier, StoreClient, unexpected_response},
    view::{RunStateView, RunSummaryView},
};

/// Characters of a task in the list.
const MAX_TASK_CHARS: usize = 40;

/// List the newest runs, those of subagents too
///
/// The table has the newest first, the JSON array the oldest.
#[derive(Debug, Args)]
#[command(after_help = examples::RUNS_LIST)]
pub(super) struct RunsListArgs {
    /// At most so many, the newest
    #[arg(long, visible_alias = "max", value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Only runs that were accepted since then: 8h, 2d, a date, or a time of RFC 3339; UTC without an offset
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    since: Option<Timestamp>,
    /// Only runs that were accepted before then
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    until: Option<Timestamp>,
    /// Only runs with one of these outcomes
    #[arg(long, value_name = "OUTCOME", value_delimiter = ',', value_parser = outcome_parser())]
    outcome: Vec<RunOutcomeFilter>,
    /// Only runs of this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<Identifier>,
    /// Only runs of this schedule
    #[arg(long, value_name = "NAME", value_parser = schedule_name)]
    schedule: Option<ScheduleName>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

fn outcome_parser() -> impl TypedValueParser<Value = RunOutcomeFilter> {
    PossibleValuesParser::new(RunOutcomeFilter::VARIANTS).try_map(|name| name.parse::<RunOutcomeFilter>())
}

/// Lists runs.
pub(super) async fn execute(args: RunsListArgs, client: &StoreClient) -> Result<(), CliError> {
    let agent = args.agent.map(|agent| agent.parse::<AgentName>().map_err(|error| (agent, error)));
    let agent = agent
        .transpose()
        .map_err(|(agent, error)| CliError::usage(format!("--agent {agent}: it {error}")))?;
    let RunsListArgs { limit, since, until, schedule, outcome, .. } = args;
    let request = ControlRequest::RunsList { max: limit, agent, since, until, schedule, outcomes: outcome };
    let ControlResponse::Runs(runs) = client.request(&request).await? else {
        return Err(unexpected_response().into());
    };
    for (run, reason) in runs.iter().filter_map(|run| Some((run, run.unreadable.as_ref()?))) {
        let (id, session) = (run.run.id, run.run.session);
        print_note(format!(
            "unreadable run {id}: {reason}; `hermod store repair {session}` sets its session aside"
        ));
    }
    print_as(args.json, &runs, |runs| format_list(runs, clock::now()))
}

/// Runs of the whole store as a table. The most important columns come first, since a terminal truncates lines.
fn format_list(runs: &[RunSummaryView], now: Timestamp) -> String {
    let cells = |summary: &RunSummaryView| {
        let RunSummaryView { run, title, input, model, workspace, spent_usd, has_process, .. } = summary;
        let task = input.split_whitespace().collect::<Vec<_>>().join(" ");
        let process = match (run.state, has_process) {
            (RunStateView::Ended, _) => None,
            (_, true) => Some("yes"),
            (_, false) => Some("no"),
        };
        [
            run.id.to_string(),
            state(run),
            age(now.ms_since(run.accepted_at)),
            or_dash((!task.is_empty()).then(|| truncated_line(&task, MAX_TASK_CHARS))),
            or_dash(spent_usd.map(dollars)),
            or_dash(process),
            run.agent.to_string(),
            or_dash(model.as_ref()),
            duration(run),
            run.iterations.to_string(),
            run.usage.total().to_string(),
            or_dash(workspace.as_ref()),
            or_dash(title.as_ref().map(|title| truncated_line(title, MAX_TASK_CHARS))),
            run.session.to_string(),
        ]
    };
    let head = [
        "RUN",
        "STATE",
        "AGE",
        "TASK",
        "USD",
        "PROCESS",
        "AGENT",
        "MODEL",
        "TOOK",
        "ITERATIONS",
        "TOKENS",
        "FOLDER",
        "TITLE",
        "SESSION",
    ];
    table::render(head, &runs.iter().rev().map(cells).collect::<Vec<_>>())
}
