//! `hermod runs`: lists the runs of the store, shows one, or resumes them (`resume/`). Also the table of runs and the
//! words for their states, which other commands use.

use clap::{Args, Subcommand};
use hermod_actors::model::{AgentName, Timestamp};

use super::{
    CliError, Exit, ListArgs,
    format::{self, dollars, seconds},
    print_as, print_note,
    resume::{self, ResumeArgs},
    table::{self, or_dash},
    waits,
};
use crate::{
    clock::{self, rfc3339},
    control::{ControlRequest, ControlResponse},
    discovery::Variables,
    host::{Identifier, StoreClient, unexpected_response},
    view::{RunDetailView, RunSummaryView, RunView},
};

/// The runs in the store
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    command: RunsCommand,
}

#[derive(Debug, Subcommand)]
enum RunsCommand {
    /// List the youngest runs
    List {
        #[command(flatten)]
        list: ListArgs,
        /// Only runs of this agent
        #[arg(long, value_name = "NAME")]
        agent: Option<Identifier>,
    },
    /// Show one run
    Show {
        /// A run's id, or `last`, the last run that is no subagent's
        id: Identifier,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    Resume(ResumeArgs),
}

/// Lists, shows or resumes runs.
pub(crate) async fn execute(args: RunsArgs, variables: &Variables) -> Result<Exit, CliError> {
    let client = || StoreClient::new(variables);
    let result = match args.command {
        RunsCommand::Resume(args) => return resume::execute(&args, variables).await,
        RunsCommand::List { list, agent } => {
            let agent = agent.map(|agent| agent.parse::<AgentName>().map_err(|error| (agent, error)));
            let agent = agent
                .transpose()
                .map_err(|(agent, error)| CliError::usage(format!("--agent {agent}: it {error}")))?;
            let request = ControlRequest::RunsList { max: list.max, agent };
            let ControlResponse::Runs(runs) = client()?.request(&request).await? else {
                return Err(unexpected_response().into());
            };
            for (run, reason) in runs.iter().filter_map(|run| Some((run, run.unreadable.as_ref()?))) {
                let (id, session) = (run.run.id, run.run.session);
                print_note(format!(
                    "unreadable run {id}: {reason}; `hermod store repair {session}` sets its session aside"
                ));
            }
            print_as(list.json, &runs, |runs| format_list(runs))
        }
        RunsCommand::Show { id, json } => {
            let run = client()?.run_detail(id.into()).await?;
            print_as(json, &run, |run| format_run(run, clock::now()))
        }
    };
    result.map(|()| Exit::Ok)
}

/// Characters of a task in the list.
const MAX_TASK_CHARS: usize = 40;

/// Runs of the whole store as a table. The most important columns come first, since a terminal truncates lines.
fn format_list(runs: &[RunSummaryView]) -> String {
    let cells = |summary: &RunSummaryView| {
        let RunSummaryView { run, input, model, workspace, spent_usd, unreadable: _ } = summary;
        let task = input.split_whitespace().collect::<Vec<_>>().join(" ");
        [
            run.id.to_string(),
            state(run),
            or_dash((!task.is_empty()).then(|| format::truncated_line(&task, MAX_TASK_CHARS))),
            run.agent.to_string(),
            or_dash(model.as_ref()),
            duration(run),
            run.iterations.to_string(),
            run.usage.total().to_string(),
            or_dash(spent_usd.map(dollars)),
            rfc3339(run.accepted_at),
            or_dash(workspace.as_ref()),
            run.session.to_string(),
        ]
    };
    let head = [
        "RUN",
        "STATE",
        "TASK",
        "AGENT",
        "MODEL",
        "TOOK",
        "ITERATIONS",
        "TOKENS",
        "USD",
        "ACCEPTED",
        "FOLDER",
        "SESSION",
    ];
    table::render(head, &runs.iter().map(cells).collect::<Vec<_>>())
}

/// Runs of one session as a table.
pub(crate) fn format_table(rows: &[RunView]) -> String {
    let cells = |row: &RunView| {
        [
            row.id.to_string(),
            state(row),
            row.session.to_string(),
            rfc3339(row.accepted_at),
            duration(row),
            row.iterations.to_string(),
            row.usage.total().to_string(),
        ]
    };
    let rows: Vec<_> = rows.iter().map(cells).collect();
    table::render(["RUN", "STATE", "SESSION", "ACCEPTED", "TOOK", "ITERATIONS", "TOKENS"], &rows)
}

/// The outcome; for an unfinished run, its state.
pub(crate) fn state(run: &RunView) -> String {
    run.ended.as_ref().map_or(run.state.name(), |ended| ended.outcome.name()).to_owned()
}

pub(crate) fn duration(row: &RunView) -> String {
    let span = row.started_at.zip(row.ended_at);
    or_dash(span.map(|(start, end)| seconds(end.ms_since(start))))
}

fn format_run(detail: &RunDetailView, now: Timestamp) -> String {
    let row = &detail.run;
    let (Some(spec), None) = (&detail.spec, &detail.unreadable) else { return unreadable(detail) };
    let chain: Vec<_> = spec.chain.iter().map(ToString::to_string).collect();
    let cause = row.ended.as_ref().map_or_else(|| state(row), ToString::to_string);
    let cost = match (detail.cost, detail.unpriced.as_slice()) {
        (Some(cost), _) => dollars(cost),
        (None, []) => "not known".to_owned(),
        (None, unpriced) => {
            let unpriced: Vec<_> = unpriced.iter().map(ToString::to_string).collect();
            format!("not known of {}", unpriced.join(", "))
        }
    };
    let legs = if row.legs > 1 { format!("legs        {}\n", row.legs) } else { String::new() };
    let waits: String = detail.waits.iter().map(|wait| waits::format_wait(wait, row.id, now)).collect();
    format!(
        "run         {}\nsession     {}\nagent       {}\nstate       {cause}\n{legs}{waits}accepted    {}\ntook        {}\n\
         iterations  {}\ntokens      {} read, {} written\ncost        {cost}\nmodel       {}\nworkspace   {}\n\ninput:\n{}\n\n\
         said last:\n{}\n",
        row.id,
        row.session,
        row.agent,
        rfc3339(row.accepted_at),
        duration(row),
        row.iterations,
        row.usage.input_tokens,
        row.usage.output_tokens,
        chain.join(", "),
        spec.workspace,
        detail.input,
        detail.last_text.as_deref().unwrap_or("-"),
    )
}

/// A run of which only the index row is readable.
fn unreadable(detail: &RunDetailView) -> String {
    let row = &detail.run;
    format!(
        "run         {}\nsession     {}\nstate       {}\naccepted    {}\ntook        {}\nunreadable  {}\n\
         remedy      `hermod stop {}` ends the run if it is unfinished, `hermod store repair {}` sets its session aside\n",
        row.id,
        row.session,
        row.ended.as_ref().map_or_else(|| state(row), ToString::to_string),
        rfc3339(row.accepted_at),
        duration(row),
        detail.unreadable.as_deref().unwrap_or("what it was given is not known"),
        row.id,
        row.session,
    )
}
