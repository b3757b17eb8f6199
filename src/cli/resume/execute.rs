//! Runs `hermod runs resume`: finds the unfinished runs, resumes them, and prints their ends.

use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

use clap::Args;
use hermod_actors::{
    Defaults, RunError, Runtime,
    model::{Outcome, RunId, RunRow, RunState},
};

use super::{follow, probation::Probation, resumed_runs::ResumedRuns};
use crate::{
    cli::{
        continuation::{BudgetUsage, continuation},
        display::{DisplayArgs, ProgressDisplay},
        examples,
        exit::{CliError, Exit},
        identifier::Identifier,
        output::{print, print_json, print_note, print_progress},
        owner::{self, OwnedStore},
        run::{DurabilityArg, OllamaProbe, discover},
        runs, table,
    },
    clock::SystemClock,
    config::{Config, OLLAMA},
    control::{ResolvedId, StoreReader},
    discovery::Variables,
    host::{self, Endpoints, ShutdownUrgency},
    prompt::LayeredPrompt,
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

/// The result of resuming.
struct ResumeOutcome {
    /// The runs, in the order of their acceptance.
    rows: Vec<RunRow>,
    /// The exit code of the signal that ended the command.
    signal_exit: Option<Exit>,
    /// The final texts of the ended runs; empty without `--wait`.
    texts: BTreeMap<RunId, String>,
}

impl ResumeOutcome {
    /// A result without texts: no run was waited for.
    const fn without_texts(rows: Vec<RunRow>, signal_exit: Option<Exit>) -> Self {
        Self { rows, signal_exit, texts: BTreeMap::new() }
    }
}

/// Resumes the runs, and prints how each ended.
pub(crate) async fn execute(args: &ResumeArgs, variables: &Variables) -> Result<Exit, CliError> {
    let config = Config::read(variables)?;
    let state = host::create_state_dir(&host::state_dir(variables)?)?;
    let durability = args.durability.unwrap_or_else(|| config.store.durability.into());
    let mut holding = OwnedStore::acquire(state, durability.into()).await?;
    let came = resume_runs(args, (&config, variables), &mut holding).await;
    let ResumeOutcome { rows, signal_exit: left, texts } = holding.release(came).await?;
    let rows: Vec<RunView> = rows.into_iter().map(RunView::without_process).collect();
    if args.json {
        let text = |run: &RunView| texts.get(&run.id).map(String::as_str);
        print_json(&rows.iter().map(|run| EndedRunView::new(run.clone(), text(run))).collect::<Vec<_>>())?;
    } else if !rows.is_empty() {
        print_runs((&rows, &texts), args.wait && args.id.is_some())?;
    }
    Ok(left.unwrap_or_else(|| exit(&rows)))
}

fn has_completed(row: &RunView) -> bool {
    row.ended.as_ref().is_some_and(|ended| ended.outcome == Outcome::Completed)
}

/// Prints how the runs ended. The answer of a single named run is the only text on standard output, as with `hermod
/// run`.
fn print_runs((rows, texts): (&[RunView], &BTreeMap<RunId, String>), is_named: bool) -> Result<(), CliError> {
    if let ([row], true) = (rows, is_named) {
        print_progress(table_of(rows).trim_end());
        let used = BudgetUsage { tokens: row.usage.total(), nano_usd: 0 };
        let line = row.ended.as_ref().and_then(|ended| continuation(row.id, ended, used));
        line.into_iter().for_each(print_progress);
        return match texts.get(&row.id) {
            Some(answer) if has_completed(row) => print(answer),
            Some(partial) => {
                print_note(format!("said last {partial}"));
                Ok(())
            }
            None => Ok(()),
        };
    }
    let mut told = table_of(rows);
    for row in rows.iter().filter(|row| has_completed(row)) {
        if let Some(answer) = texts.get(&row.id) {
            told.extend(["\nanswer of ", &row.id.to_string(), ":\n", answer, "\n"]);
        }
    }
    print(&told)
}

/// The final texts of the ended runs.
async fn texts(runtime: &Runtime, rows: &[RunRow]) -> Result<BTreeMap<RunId, String>, CliError> {
    let mut texts = BTreeMap::new();
    for row in rows.iter().filter(|row| row.state == RunState::Ended) {
        let result = match runtime.wait(row.id, None).await {
            Ok(result) => result,
            // A run with unreadable records has an end but no text.
            Err(RunError::Read(_)) => continue,
            Err(error) => return Err(error.into()),
        };
        texts.extend(result.text().map(|text| (row.id, text.to_owned())));
    }
    Ok(texts)
}

async fn resume_runs(
    args: &ResumeArgs,
    (config, variables): (&Config, &Variables),
    holding: &mut OwnedStore,
) -> Result<ResumeOutcome, CliError> {
    let since = hermod_actors::port::Clock::at(&SystemClock::default());
    let reader = holding.reader();
    let OwnedStore { journal, state, commands: orders, signals, crash_history: deaths, .. } = holding;
    let rows = match signals.run_until_signal(unfinished(args, &reader)).await? {
        ControlFlow::Continue(rows) => rows,
        ControlFlow::Break(exit) => return Ok(ResumeOutcome::without_texts(Vec::new(), Some(exit))),
    };
    if rows.is_empty() {
        print_progress("nothing   is unfinished");
        return Ok(ResumeOutcome::without_texts(rows, None));
    }
    let started = async {
        let endpoints = endpoints((config, variables), &reader, (&rows, state)).await?;
        let spec = crate::run_defaults::spec(config, Vec::new(), None, state);
        let defaults = Defaults { spec, prompt: Arc::new(LayeredPrompt::new(config, state)) };
        Ok(host::start(Arc::clone(journal), endpoints, (config, defaults)).await?)
    };
    let daemon = match signals.run_until_signal(Box::pin(started)).await? {
        ControlFlow::Continue(daemon) => daemon,
        ControlFlow::Break(exit) => return Ok(ResumeOutcome::without_texts(rows, Some(exit))),
    };
    let runtime = &daemon.runtime;
    let mut crowd =
        ResumedRuns::new(runtime, (rows, since), ProgressDisplay::new(&args.display, false, variables));
    let followed = async {
        let looked = async {
            owner::fail_crash_looping(runtime, deaths, &crowd.rows()).await?;
            crowd.refresh_running().await
        };
        if let ControlFlow::Break(exit) = signals.run_until_signal(looked).await? {
            return Ok(Some(exit));
        }
        let mut trials = Probation::new(&crowd, deaths);
        follow::follow(&mut crowd, &mut trials, (&reader, deaths), (signals, args.wait)).await
    };
    let followed = owner::serve_commands(runtime, orders, followed).await;
    let rows = crowd.rows();
    drop(crowd);
    let texts = if args.wait { texts(runtime, &rows).await? } else { BTreeMap::new() };
    daemon
        .suspend(if matches!(followed, Ok(Some(_))) {
            ShutdownUrgency::Urgent
        } else {
            ShutdownUrgency::Normal
        })
        .await;
    let left = followed?;
    Ok(ResumeOutcome { rows: with_current_counts(rows, &reader).await?, signal_exit: left, texts })
}

/// The rows with current counts: the stored row of an unfinished run is as old as its last change of state.
async fn with_current_counts(rows: Vec<RunRow>, reader: &StoreReader) -> Result<Vec<RunRow>, CliError> {
    let mut counted = Vec::with_capacity(rows.len());
    for row in rows {
        let now = reader.read(|rows| rows.run(row.id)).await?.unwrap_or(row);
        counted.push(reader.with_current_counts(now).await?);
    }
    Ok(counted)
}

/// The selected unfinished runs, in the order of their acceptance.
async fn unfinished(args: &ResumeArgs, reader: &StoreReader) -> Result<Vec<RunRow>, CliError> {
    let mut rows = reader.read(|rows| rows.open_runs()).await?;
    rows.sort_by_key(|row| row.id);
    let Some(id) = &args.id else { return Ok(rows) };
    let (session, ended) = match reader.find(id).await? {
        ResolvedId::Session(row) => (row.id, None),
        ResolvedId::Run(row) => (row.session, row.ended.clone()),
    };
    rows.retain(|row| row.session == session);
    if !rows.is_empty() {
        return Ok(rows);
    }
    let what = ended.map_or_else(
        || format!("session {session} has no unfinished run"),
        |ended| format!("run {id} has ended: {ended}; its session {session} has no unfinished run"),
    );
    Err(CliError::usage(format!("{what}; `hermod run --resume {id} TEXT` continues the conversation")))
}

/// The endpoints for the runs. Unavailable providers are reported, and each run that needs one ends accordingly.
async fn endpoints(
    (config, variables): (&Config, &Variables),
    reader: &StoreReader,
    (rows, state): (&[RunRow], &std::path::Path),
) -> Result<Endpoints, CliError> {
    let mut specs = Vec::new();
    for row in rows {
        match reader.acceptance(row).await {
            Ok(accepted) => specs.push(accepted.spec),
            // The session will be quarantined, and the run ended.
            Err(fault) => print_note(format!("missing   run {} cannot be read: {fault}", row.id)),
        }
    }
    let ollama = specs.iter().any(|spec| spec.chain.iter().any(|link| &**link.provider() == OLLAMA));
    let found =
        discover(config, variables, if ollama { OllamaProbe::Requested } else { OllamaProbe::Never }).await;
    let mut endpoints = Endpoints::new(found, state.to_owned(), config.provider_defaults);
    let mut missing = BTreeMap::new();
    for spec in &specs {
        for (provider, error) in endpoints.add_available(spec, variables).await {
            missing.entry(provider).or_insert((error.to_string(), 0)).1 += 1;
        }
    }
    for (provider, (error, runs)) in missing {
        print_note(format!("missing   {provider}, which {runs} of the runs may ask: {error}"));
    }
    if specs.iter().any(|spec| spec.script.is_some()) {
        print_progress(format!("rehearsal {}", crate::rehearsal::NOTICE));
    }
    Ok(endpoints)
}

/// 6 if a run is parked, else the first exit code that is not 0.
fn exit(rows: &[RunView]) -> Exit {
    if rows.iter().any(|row| row.state == RunStateView::Parked) {
        return Exit::Parked;
    }
    let exits = rows.iter().filter_map(|row| row.ended.as_ref()).map(Exit::from);
    exits.into_iter().find(|exit| *exit != Exit::Ok).unwrap_or(Exit::Ok)
}

/// A table of the runs' ends.
fn table_of(rows: &[RunView]) -> String {
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

#[cfg(test)]
mod tests {
    use hermod_actors::model::{OutcomeCause, OutcomeDetail, SessionId, Timestamp, Usage};

    use super::*;

    fn row(state: RunState, ended: Option<OutcomeDetail>) -> RunRow {
        RunRow {
            id: RunId::from_bits(1),
            session: SessionId::from_bits(2),
            account: RunId::from_bits(1).into(),
            state,
            accepted_at: Timestamp(0),
            started_at: None,
            ended_at: None,
            ended,
            iterations: 0,
            usage: Usage::default(),
            parent: None,
            leg: 1,
            first: 1,
            last: 1,
        }
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
