use std::{collections::BTreeMap, ops::ControlFlow, sync::Arc};

use clap::Args;
use hermod_actors::{
    Defaults, RunError, Runtime,
    model::{Outcome, RunId, RunRow, RunState},
    port::Read,
};
use serde_json::Value;

use super::{crowd::Crowd, follow, trials::Trials};
use crate::{
    cli::{
        display::{DisplayArgs, ProgressDisplay},
        examples,
        exit::{Exit, Failure},
        hold::{self, Holding},
        identifier::Identifier,
        output::{print, print_json, say, say_progress},
        report,
        run::{Durability, Local, discover},
        table,
        words::seconds,
    },
    clock::SystemClock,
    config::{Config, OLLAMA},
    control::{Named, Reader, RunStatus},
    daemon::{self, Endpoints, Leave},
    environment::Variables,
    prompt::LayeredPrompt,
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
    durability: Option<Durability>,
}

impl ResumeArgs {
    /// The unfinished runs of this conversation, until they have ended.
    pub(crate) fn until_ended(id: RunId) -> Self {
        let (id, display) = (Some(id.into()), DisplayArgs::default());
        Self { id, all: false, wait: true, json: false, display, durability: None }
    }
}

/// What came of it.
struct Came {
    /// The runs, in the order in which they were accepted.
    rows: Vec<RunRow>,
    /// The exit that a signal asks for.
    left: Option<Exit>,
    /// What they have said that ended while they were waited for.
    texts: BTreeMap<RunId, String>,
}

impl Came {
    /// Nothing was waited for to its end.
    const fn without_texts(rows: Vec<RunRow>, left: Option<Exit>) -> Self {
        Self { rows, left, texts: BTreeMap::new() }
    }
}

/// Lets them go on, and says how each ended.
pub(crate) async fn execute(args: &ResumeArgs, variables: &Variables) -> Result<Exit, Failure> {
    let config = Config::read(variables)?;
    let state = daemon::make_state(&daemon::state_dir(variables)?)?;
    let durability = args.durability.unwrap_or_else(|| config.store.durability.into());
    let mut holding = Holding::take(state, durability.into()).await?;
    let came = go_on(args, (&config, variables), &mut holding).await;
    let Came { rows, left, texts } = holding.release(came).await?;
    let rows: Vec<RunStatus> = rows.into_iter().map(RunStatus::at_rest).collect();
    if args.json {
        print_json(&rows.iter().map(|row| object(row, &texts)).collect())?;
    } else if !rows.is_empty() {
        tell((&rows, &texts), args.wait && args.id.is_some())?;
    }
    Ok(left.unwrap_or_else(|| exit(&rows)))
}

/// The run with its answer; a text that is no answer is `partial`.
fn object(row: &RunStatus, texts: &BTreeMap<RunId, String>) -> Value {
    let mut object = report::run(row);
    let text = texts.get(&row.id).map(String::as_str);
    object["answer"] = text.filter(|_| has_completed(row)).into();
    if let Some(text) = text.filter(|_| !has_completed(row)) {
        object["partial"] = text.into();
    }
    object
}

fn has_completed(row: &RunRow) -> bool {
    row.ended.as_ref().is_some_and(|ended| ended.outcome == Outcome::Completed)
}

/// Prints how they ended. The answer of a single run stands alone, as `hermod run` has it.
fn tell((rows, texts): (&[RunStatus], &BTreeMap<RunId, String>), is_named: bool) -> Result<(), Failure> {
    if let ([row], true) = (rows, is_named) {
        say_progress(table_of(rows).trim_end());
        return match texts.get(&row.id) {
            Some(answer) if has_completed(row) => print(answer),
            Some(partial) => {
                say(format!("said last {partial}"));
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

/// What the runs have said that have ended.
async fn texts(runtime: &Runtime, rows: &[RunRow]) -> Result<BTreeMap<RunId, String>, Failure> {
    let mut texts = BTreeMap::new();
    for row in rows.iter().filter(|row| row.state == RunState::Ended) {
        let result = match runtime.wait(row.id, None).await {
            Ok(result) => result,
            // A run whose records cannot be read has an end and no text.
            Err(RunError::Read(_)) => continue,
            Err(error) => return Err(error.into()),
        };
        texts.extend(result.text().map(|text| (row.id, text.to_owned())));
    }
    Ok(texts)
}

async fn go_on(
    args: &ResumeArgs,
    (config, variables): (&Config, &Variables),
    holding: &mut Holding,
) -> Result<Came, Failure> {
    let since = hermod_actors::port::Clock::at(&SystemClock::default());
    let reader = holding.reader();
    let Holding { journal, state, orders, signals, deaths, .. } = holding;
    let rows = match signals.or(unfinished(args, &reader)).await? {
        ControlFlow::Continue(rows) => rows,
        ControlFlow::Break(exit) => return Ok(Came::without_texts(Vec::new(), Some(exit))),
    };
    if rows.is_empty() {
        say_progress("nothing   is unfinished");
        return Ok(Came::without_texts(rows, None));
    }
    let started = async {
        let endpoints = endpoints((config, variables), &reader, (&rows, state)).await?;
        let spec = crate::spec::spec(config, Vec::new(), None, state);
        let defaults = Defaults { spec, prompt: Arc::new(LayeredPrompt::new(config, state)) };
        Ok(daemon::start(Arc::clone(journal), endpoints, (config, defaults)).await?)
    };
    let daemon = match signals.or(Box::pin(started)).await? {
        ControlFlow::Continue(daemon) => daemon,
        ControlFlow::Break(exit) => return Ok(Came::without_texts(rows, Some(exit))),
    };
    let runtime = &daemon.runtime;
    let mut crowd = Crowd::new(runtime, (rows, since), ProgressDisplay::new(&args.display, false, variables));
    let followed = async {
        let looked = async {
            hold::end_condemned(runtime, deaths, &crowd.rows()).await?;
            crowd.look().await
        };
        if let ControlFlow::Break(exit) = signals.or(looked).await? {
            return Ok(Some(exit));
        }
        let mut trials = Trials::new(&crowd, deaths);
        follow::follow(&mut crowd, &mut trials, (&reader, deaths), (signals, args.wait)).await
    };
    let followed = hold::attend(runtime, orders, followed).await;
    let rows = crowd.rows();
    drop(crowd);
    let texts = if args.wait { texts(runtime, &rows).await? } else { BTreeMap::new() };
    daemon.suspend(if matches!(followed, Ok(Some(_))) { Leave::Asked } else { Leave::Done }).await;
    let left = followed?;
    Ok(Came { rows: counted(rows, &reader).await?, left, texts })
}

/// The rows as they are when nothing goes on any more: that of an unfinished run is as old as its last change of state.
async fn counted(rows: Vec<RunRow>, reader: &Reader) -> Result<Vec<RunRow>, Failure> {
    let mut counted = Vec::with_capacity(rows.len());
    for row in rows {
        let now = reader.runs(Read::Run(row.id)).await?.pop().unwrap_or(row);
        counted.push(reader.counted(now).await?);
    }
    Ok(counted)
}

/// The unfinished runs that are meant, in the order in which they were accepted.
async fn unfinished(args: &ResumeArgs, reader: &Reader) -> Result<Vec<RunRow>, Failure> {
    let mut rows = reader.runs(Read::OpenRuns).await?;
    rows.sort_by_key(|row| row.id);
    let Some(id) = &args.id else { return Ok(rows) };
    let (session, ended) = match reader.find(id).await? {
        Named::Session(row) => (row.id, None),
        Named::Run(row) => (row.session, row.ended.clone()),
    };
    rows.retain(|row| row.session == session);
    if !rows.is_empty() {
        return Ok(rows);
    }
    let what = ended.map_or_else(
        || format!("session {session} has no unfinished run"),
        |ended| format!("run {id} has ended: {ended}; its session {session} has no unfinished run"),
    );
    Err(Failure::usage(format!("{what}; `hermod run --resume {id} TEXT` continues the conversation")))
}

/// What the runs will ask. What is missing is said, and each run that needs it comes to the end that this means for it.
async fn endpoints(
    (config, variables): (&Config, &Variables),
    reader: &Reader,
    (rows, state): (&[RunRow], &std::path::Path),
) -> Result<Endpoints, Failure> {
    let mut specs = Vec::new();
    for row in rows {
        match reader.accepted(row).await {
            Ok(accepted) => specs.push(accepted.spec),
            // Its session will be quarantined, and the run ended.
            Err(fault) => say(format!("missing   run {} cannot be read: {fault}", row.id)),
        }
    }
    let ollama = specs.iter().any(|spec| spec.chain.iter().any(|link| &**link.provider() == OLLAMA));
    let found = discover(config, variables, if ollama { Local::Meant } else { Local::Never }).await;
    let mut endpoints = Endpoints::new(found, state.to_owned(), config.provider_defaults);
    let mut missing = BTreeMap::new();
    for spec in &specs {
        for (provider, error) in endpoints.offer_what_is_there(spec, variables).await {
            missing.entry(provider).or_insert((error.to_string(), 0)).1 += 1;
        }
    }
    for (provider, (error, runs)) in missing {
        say(format!("missing   {provider}, which {runs} of the runs may ask: {error}"));
    }
    if specs.iter().any(|spec| spec.script.is_some()) {
        say_progress(format!("rehearsal {}", crate::rehearsal::NOTICE));
    }
    Ok(endpoints)
}

/// 6 if a run is parked, else the first of the codes that is not 0.
fn exit(rows: &[RunStatus]) -> Exit {
    if rows.iter().any(|row| row.state == RunState::Parked) {
        return Exit::Parked;
    }
    let exits = rows.iter().filter_map(|row| row.ended.as_ref()).map(Exit::from);
    exits.into_iter().find(|exit| *exit != Exit::Ok).unwrap_or(Exit::Ok)
}

/// How each ended.
fn table_of(rows: &[RunStatus]) -> String {
    let cells = |row: &RunStatus| {
        let took = row.started_at.zip(row.ended_at);
        [
            row.id.to_string(),
            how(row),
            row.session.to_string(),
            row.iterations.to_string(),
            row.usage.total().to_string(),
            took.map_or_else(|| "-".into(), |(start, end)| seconds(end.ms_since(start))),
        ]
    };
    let rows: Vec<_> = rows.iter().map(cells).collect();
    table::render(["RUN", "END", "SESSION", "ITERATIONS", "TOKENS", "TOOK"], &rows)
}

/// The outcome and its cause; without one, the state.
fn how(run: &RunStatus) -> String {
    run.ended.as_ref().map_or_else(|| run.state().to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{Cause, Ended, SessionId, Timestamp, Usage};

    use super::*;

    fn row(state: RunState, ended: Option<Ended>) -> RunRow {
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
        let ended = |outcome| row(RunState::Ended, Some(Ended { outcome, cause: None }));
        let looped = Ended::because(Outcome::Failed, Cause::CrashLoop { error: "x".into() });
        let check = |rows: &[RunRow], expect: u8| {
            let runs: Vec<RunStatus> = rows.iter().cloned().map(RunStatus::at_rest).collect();
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
