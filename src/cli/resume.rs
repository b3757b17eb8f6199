//! `hermod runs resume`: resumes unfinished runs concurrently. `host/resume` does the work; here are the arguments, the
//! display, the report about the runs, and the exit code.

use std::{collections::BTreeMap, sync::Arc};

use clap::Args;
use hermod_actors::model::{Outcome, Record, RunId, RunRow};

use super::{
    CliError, Exit,
    display::{DisplayArgs, OutputForm, ProgressDisplay},
    examples,
    exit::has_failed,
    format::seconds,
    output::{StderrNotes, print_last_text},
    print, print_json, print_progress,
    progress::ProgressLines,
    resume_at_service::{ServiceRuns, resume_at_service},
    run::DurabilityArg,
    runs, table,
    terminal::{Charset, Tone},
};
use crate::{
    config::Config,
    control::OwnerKind,
    control::{BudgetUsage, continuation},
    discovery::Variables,
    host::{
        self, HostError, Identifier, NoteSink, OwnedStore, ResumeObserver, ResumeOutcome, ResumeRequest,
        StartError, StoreClient, resume_runs,
    },
    store::redb::OpenError,
    view::{EndedRunView, RunStateView, RunView},
};

/// Let unfinished runs go on, as many as there are at the same time
///
/// Progress goes to standard error, a line for each step with the end of the run's id before it. With `--wait` the answer
/// of a run that is named goes to standard output, alone; of several, how each ended, and the answers. SIGINT and SIGTERM suspend: the runs go on at the next start.
#[derive(Debug, Args)]
#[command(after_help = examples::RESUME)]
pub(crate) struct ResumeArgs {
    /// A run's or session's id or key, or `last` (the last run that is no subagent's): the unfinished runs of that
    /// conversation
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    id: Option<Identifier>,
    /// Every unfinished run
    #[arg(long)]
    all: bool,
    /// End when every run has its outcome or waits for a person; without it the store is held, for other commands to
    /// look at the runs, steer and stop them, until a signal comes
    #[arg(long)]
    wait: bool,
    /// Print a JSON array of the runs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    display: DisplayArgs,
    /// What an acknowledged write survives [default: store.durability]
    #[arg(long, value_enum, hide = true)]
    durability: Option<DurabilityArg>,
}

impl ResumeArgs {
    /// Arguments that resume the unfinished runs of this run's conversation and wait for their end.
    pub(crate) fn until_ended(id: RunId) -> Self {
        let (id, display) = (Some(id.into()), DisplayArgs::default());
        Self { id, all: false, wait: true, json: false, display, durability: None }
    }
}

/// Resumes the runs, and prints how each ended.
pub(crate) async fn execute(args: &ResumeArgs, variables: &Variables) -> Result<Exit, CliError> {
    let config = Config::read(variables)?;
    let state = host::configured_state_dir(variables)?;
    let durability = args.durability.unwrap_or_else(|| config.store.durability.into());
    let owner: (_, Arc<dyn NoteSink>) = (OwnerKind::Command, Arc::new(StderrNotes));
    let mut store = match OwnedStore::acquire(state.clone(), durability.into(), owner).await {
        Err(busy @ HostError::Start(StartError::Store(OpenError::Busy { .. }))) => {
            let client = StoreClient::new(variables)?;
            let resumed = resume_at_service((args.id.as_deref(), args.wait), &state, &client).await?;
            let Some(ServiceRuns { runs, texts, is_complete }) = resumed else { return Err(busy.into()) };
            if !is_complete {
                // The service has gone: this process takes its place, or finds the next one.
                return Box::pin(execute(args, variables)).await;
            }
            return print_service_runs(args, &runs, &texts);
        }
        acquired => acquired?,
    };
    let request = ResumeRequest { id: args.id.as_deref(), wait: args.wait };
    let mut display = ResumeDisplay::new(&args.display, variables);
    let resumed = resume_runs(request, &config, variables, &mut store, &mut display).await;
    let resumed = resumed.map_err(CliError::from);
    store.release(has_failed(&resumed)).await;
    let ResumeOutcome { runs: rows, signal, texts } = resumed?;
    if args.json {
        let text = |run: &RunView| texts.get(&run.id).map(String::as_str);
        print_json(&rows.iter().map(|run| EndedRunView::new(run.clone(), text(run))).collect::<Vec<_>>())?;
    } else if !rows.is_empty() {
        print_runs(&rows, &texts, args.wait && args.id.is_some())?;
    }
    Ok(signal.map_or_else(|| exit(&rows), Exit::from))
}

/// Prints how the runs of a service ended; without `--wait` they go on, which is no failure.
fn print_service_runs(
    args: &ResumeArgs,
    runs: &[RunView],
    texts: &BTreeMap<RunId, String>,
) -> Result<Exit, CliError> {
    if args.json {
        let text = |run: &RunView| texts.get(&run.id).map(String::as_str);
        print_json(&runs.iter().map(|run| EndedRunView::new(run.clone(), text(run))).collect::<Vec<_>>())?;
    } else if args.wait && !runs.is_empty() {
        print_runs(runs, texts, args.id.is_some())?;
    }
    Ok(if args.wait { exit(runs) } else { Exit::Ok })
}

fn has_completed(row: &RunView) -> bool {
    row.ended.as_ref().is_some_and(|ended| ended.outcome == Outcome::Completed)
}

/// Prints how the runs ended. The answer of a single named run is the only text on standard output, as with `hermod
/// run`.
fn print_runs(rows: &[RunView], texts: &BTreeMap<RunId, String>, is_named: bool) -> Result<(), CliError> {
    if let ([row], true) = (rows, is_named) {
        print_progress(format_table(rows).trim_end());
        let used = BudgetUsage { tokens: row.usage.total(), nano_usd: 0 };
        let line = row.ended.as_ref().and_then(|ended| continuation(row.id, ended, used));
        line.into_iter().for_each(print_progress);
        return print_last_text(texts.get(&row.id).map(String::as_str), has_completed(row));
    }
    let mut printed = format_table(rows);
    for row in rows.iter().filter(|row| has_completed(row)) {
        if let Some(answer) = texts.get(&row.id) {
            printed.extend(["\nanswer of ", &row.id.to_string(), ":\n", answer, "\n"]);
        }
    }
    print(&printed)
}

/// [`Exit::Parked`] if a run is parked, else the first code of an ended run that is not [`Exit::Ok`].
fn exit(rows: &[RunView]) -> Exit {
    if rows.iter().any(|row| row.state == RunStateView::Parked) {
        return Exit::Parked;
    }
    let exits = rows.iter().filter_map(|row| row.ended.as_ref()).map(Exit::from);
    exits.into_iter().find(|exit| *exit != Exit::Ok).unwrap_or(Exit::Ok)
}

/// A table of the runs' ends.
fn format_table(rows: &[RunView]) -> String {
    let cells = |row: &RunView| {
        [
            row.id.to_string(),
            row.ended.as_ref().map_or_else(|| row.state.name().to_owned(), ToString::to_string),
            row.session.to_string(),
            row.iterations.to_string(),
            row.usage.total().to_string(),
            runs::duration(row),
        ]
    };
    let rows: Vec<_> = rows.iter().map(cells).collect();
    table::render(["RUN", "END", "SESSION", "ITERATIONS", "TOKENS", "TOOK"], &rows)
}

/// Characters of a run's id before its lines: the last ones, which are random.
const ID_SUFFIX_CHARS: usize = 6;

/// The display of resumed runs.
#[derive(Debug)]
struct ResumeDisplay {
    display: ProgressDisplay,
    progress: BTreeMap<RunId, ProgressLines>,
}

impl ResumeDisplay {
    /// Shows nothing yet.
    fn new(args: &DisplayArgs, variables: &Variables) -> Self {
        Self { display: ProgressDisplay::new(args, OutputForm::Json, variables), progress: BTreeMap::new() }
    }

    fn print_line(&mut self, run: RunId, tone: Tone, line: &str) {
        let id = run.to_string();
        let ellipsis = Charset::current().ellipsis();
        self.display.line(tone, &format!("{ellipsis}{} {line}", &id[id.len() - ID_SUFFIX_CHARS..]));
    }
}

impl ResumeObserver for ResumeDisplay {
    fn on_record(&mut self, run: RunId, record: &Record, is_new: bool) {
        // Earlier records are only read for the names of calls.
        let progress = self.progress.entry(run).or_insert_with(|| ProgressLines::new(run));
        let (line, tone) = (progress.line(record), progress.tone(record));
        let output = progress.output(record, self.display.verbosity());
        if !is_new {
            return;
        }
        if let Some(line) = line {
            self.print_line(run, tone, &line);
        }
        self.display.output(&output);
    }

    fn on_end(&mut self, row: &RunRow) {
        self.print_line(row.id, Tone::Quiet, &format_end(row));
    }

    fn on_disk(&mut self, line: &str) {
        self.display.line(Tone::Action, line);
    }

    fn on_trial(&mut self, run: RunId, line: &str) {
        self.print_line(run, Tone::Quiet, line);
    }
}

fn format_end(row: &RunRow) -> String {
    let outcome = row.ended.as_ref().map_or_else(|| "without an outcome".to_owned(), ToString::to_string);
    let took = row.started_at.zip(row.ended_at);
    let took = took.map_or_else(String::new, |(start, end)| format!(", {}", seconds(end.ms_since(start))));
    format!("ended     {outcome}: iterations {}, tokens {}{took}", row.iterations, row.usage.total())
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{OutcomeCause, OutcomeDetail, RunRow, RunState, SessionId, Timestamp};

    use super::*;

    fn row(state: RunState, ended: Option<OutcomeDetail>) -> RunRow {
        RunRow { state, ended, ..RunRow::new(RunId::from_bits(1), SessionId::from_bits(2), Timestamp(0), 1) }
    }

    #[test]
    fn the_exit_is_that_of_all_runs() {
        let ended = |outcome| row(RunState::Ended, Some(OutcomeDetail { outcome, cause: None }));
        let looped =
            OutcomeDetail::with_cause(Outcome::Failed, OutcomeCause::CrashLoop { error: "x".into() });
        let check = |rows: &[RunRow], expect: u8| {
            let runs: Vec<RunView> = rows.iter().cloned().map(RunView::without_process).collect();
            assert_eq!(exit(&runs) as u8, expect, "{rows:?}");
        };
        let (fine, late, refused) =
            (ended(Outcome::Completed), ended(Outcome::TimedOut), ended(Outcome::Refused));
        check(&[], 0);
        check(&[fine.clone(), fine.clone()], 0);
        check(&[fine.clone(), late.clone(), refused.clone()], 124);
        check(&[refused, late.clone()], 5);
        check(&[late, row(RunState::Parked, None)], 6);
        check(&[fine, row(RunState::Ended, Some(looped))], 70);
    }
}
