use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
};

use hermod_actors::{
    Defaults, RunRequest, Runtime,
    model::{Cause, Dimension, Outcome, RunId, RunSpec, RunState, SessionId},
    port::Journal,
};

use super::{
    args::RunArgs,
    follow::{self, Followed},
    history,
    key::first_of_key,
    pictures,
    stdin::read_task,
    target::Target,
    task::{Task, endpoints, new_spec, notes},
};
use crate::{
    cli::{
        display::ProgressDisplay,
        exit::{Exit, Failure},
        hold::{self, Holding, Room, Signals},
        output::{print, print_json, say, say_error, say_progress},
        progress::Progress,
        report,
        words::{dollars, seconds},
        workspace,
    },
    config::Config,
    control::Reader,
    daemon::{self, Daemon, Leave},
    deaths::{Start, Trial},
    environment::Variables,
    prompt::LayeredPrompt,
    rehearsal,
};

/// A run that is waited for.
type Ids = (RunId, SessionId);

/// What is to be done.
enum Job {
    /// A new run.
    Submit { task: Task, spec: RunSpec },
    /// A run that was accepted earlier.
    GoOn { ids: Ids, spec: RunSpec },
    /// The first run of the key, which has ended.
    Tell { ids: Ids, spec: RunSpec },
}

impl Job {
    fn spec(&self) -> &RunSpec {
        match self {
            Self::Submit { spec, .. } | Self::GoOn { spec, .. } | Self::Tell { spec, .. } => spec,
        }
    }
}

/// Runs, and says what came of it.
pub(crate) async fn execute(args: RunArgs, variables: &Variables) -> Result<Exit, Failure> {
    let mut ids = None;
    let mut display = ProgressDisplay::new(&args.display, !args.json, variables);
    let done = run(&args, variables, (&mut ids, &mut display)).await;
    display.close();
    let (object, exit) = match done {
        Ok(Followed::Ended(result)) => {
            let exit = Exit::from(&result.ended);
            if exit == Exit::Ok {
                say_progress(ended(&result));
            } else {
                say(ended(&result));
            }
            hint(&result).into_iter().for_each(say_progress);
            if !args.json {
                tell_answer(&result, exit, &display)?;
                return Ok(exit);
            }
            (report::result(&result), exit)
        }
        Ok(Followed::Parked(parked)) => {
            say(waits(parked, ids.map_or(parked, |(run, _)| run)));
            (report::no_result(ids, "parked"), Exit::Parked)
        }
        Ok(Followed::Left(exit)) => {
            let (said, error) = left(ids, args.text.is_some());
            say(said);
            (report::no_result(ids, error), exit)
        }
        Err(failure) => {
            if !args.json {
                return Err(failure);
            }
            say_error(format!("hermod: {failure}"));
            (report::no_result(ids, &failure.text), failure.exit)
        }
    };
    if args.json {
        print_json(&object)?;
    }
    Ok(exit)
}

/// That a run waits for a person: itself, or behind another one.
fn waits(parked: RunId, run: RunId) -> String {
    let (behind, goes_on) = if parked == run {
        (String::new(), "it goes on")
    } else {
        (format!(", and run {run} waits behind it"), "both go on")
    };
    format!(
        "parked    run {parked}{behind}: answer with `hermod approvals`, then {goes_on} with `hermod run --resume {run}`"
    )
}

/// Standard output is for answers alone: what a run said that did not complete goes to standard error. What its terminal
/// shows already is not repeated.
fn tell_answer(
    result: &hermod_actors::RunResult,
    exit: Exit,
    display: &ProgressDisplay,
) -> Result<(), Failure> {
    match (result.text(), exit) {
        (Some(text), _) if display.has_shown(text) => Ok(()),
        (Some(answer), Exit::Ok) => print(answer),
        (Some(partial), _) => {
            say(format!("said last {partial}"));
            Ok(())
        }
        (None, _) => Ok(()),
    }
}

/// How a run that did not complete can be continued.
fn hint(result: &hermod_actors::RunResult) -> Option<String> {
    let run = result.run;
    match (result.ended.outcome, &result.ended.cause) {
        (Outcome::BudgetExhausted, Some(Cause::Limit { refusal })) => {
            let dimension = refusal.dimension;
            let raise = match dimension {
                Dimension::Tokens => refusal.sufficient_raise(result.usage.total()),
                Dimension::Usd => refusal.sufficient_raise(result.cost.unwrap_or(0)),
                Dimension::Iterations | Dimension::ToolCalls | Dimension::Children => None,
            };
            let raise = raise.map(|raise| dimension.shown(raise).to_string());
            let amount = raise.as_deref().map_or("AMOUNT", |raise| raise.trim_start_matches('$'));
            let name = dimension.name();
            Some(format!(
                "continue  `hermod budget add {run} {name}={amount} --wait` lets it go on where it was"
            ))
        }
        (Outcome::Stopped | Outcome::TimedOut | Outcome::BudgetExhausted, _) => {
            Some(format!("continue  `hermod run --resume {run} TEXT` goes on with this conversation"))
        }
        (Outcome::Completed | Outcome::Failed | Outcome::LoopDetected | Outcome::Refused, _) => None,
    }
}

/// What is left behind by a signal, as it is said and as it stands in JSON. Without ids no run is known of: of a task that
/// was being submitted it is not known yet whether it was accepted.
fn left(ids: Option<Ids>, has_task: bool) -> (String, &'static str) {
    match ids {
        Some((run, _)) => (
            format!("suspended run {run}: it goes on with `hermod run --resume last` (or `--resume {run}`)"),
            "suspended",
        ),
        None if has_task => {
            let error = "the task was not accepted, as far as is known";
            (format!("left      before a run began: {error}"), error)
        }
        None => {
            let error = "a signal came before the run was found";
            (format!("left      {error}: nothing was begun"), error)
        }
    }
}

fn ended(result: &hermod_actors::RunResult) -> String {
    let took = match (result.started_at, result.ended_at) {
        (Some(start), Some(end)) => format!(", {}", seconds(end.ms_since(start))),
        (None | Some(_), _) => String::new(),
    };
    let (iterations, tokens) = (result.iterations, result.usage.total());
    let cost = result.cost.map_or_else(String::new, |cost| format!(", {}", dollars(cost)));
    format!("ended     {}: iterations {iterations}, tokens {tokens}{cost}{took}", result.ended)
}

/// What is known of the run, and where it is shown.
type Shown<'a> = (&'a mut Option<Ids>, &'a mut ProgressDisplay);

async fn run(args: &RunArgs, variables: &Variables, shown: Shown<'_>) -> Result<Followed, Failure> {
    let text = read_task(args.text.as_deref())?;
    if text.is_none() {
        args.check_without_text()?;
    }
    let images = pictures::read(&args.asking.image)?;
    let history = history::read(args.task.history.as_deref())?;
    let isolation_key = args.task.task_id.as_deref().map(Into::into);
    let config = Config::read(variables)?;
    let state = daemon::make_state(&daemon::state_dir(variables)?)?;
    let place = args.task.place().map(|place| workspace::resolve(place, &state)).transpose()?;
    let new = text.map(|text| (Task { text, images, history, isolation_key }, place));
    let durability = args.durability.unwrap_or_else(|| config.store.durability.into());
    let mut holding = Holding::take(state, durability.into()).await?;
    let followed = hold(args, (&config, variables), &mut holding, new, shown).await;
    holding.release(followed).await
}

/// Runs while this process holds the store, and carries out the orders that others give it.
async fn hold(
    args: &RunArgs,
    (config, variables): (&Config, &Variables),
    holding: &mut Holding,
    new: Option<(Task, Option<PathBuf>)>,
    (ids, display): Shown<'_>,
) -> Result<Followed, Failure> {
    let Holding { journal, state, signals, .. } = &mut *holding;
    let ready = prepare(args, (config, variables), (journal, state), new, ids);
    let (daemon, job, target) = match signals.or(Box::pin(ready)).await? {
        ControlFlow::Continue(ready) => ready,
        ControlFlow::Break(exit) => return Ok(Followed::Left(exit)),
    };
    let followed = attend((&daemon, args), holding, job, &target, (ids, &mut *display)).await;
    display.close();
    let told = match &followed {
        Ok(Followed::Ended(result)) => tell_rest(&daemon.runtime, result.session).await,
        Ok(Followed::Left(_) | Followed::Parked(_)) | Err(_) => Ok(()),
    };
    daemon.suspend(if matches!(followed, Ok(Followed::Left(_))) { Leave::Asked } else { Leave::Done }).await;
    told.and(followed)
}

/// Finds out what is to be done, and starts what does it. Nothing is accepted yet, and nothing goes on.
async fn prepare(
    args: &RunArgs,
    (config, variables): (&Config, &Variables),
    (journal, state): (&Arc<dyn Journal>, &Path),
    new: Option<(Task, Option<PathBuf>)>,
    ids: &mut Option<Ids>,
) -> Result<(Daemon, Job, Target), Failure> {
    let reader = Reader::new(Arc::clone(journal));
    let target = Target::find(&reader, &args.conversation).await?;
    let first = match (&new, &args.conversation.key) {
        (Some((task, _)), Some(key)) => first_of_key(&reader, (key, task), &target.choice, state).await?,
        (Some(_) | None, _) => None,
    };
    let target = match &first {
        Some(row) => Target::of_run(&reader, row.clone()).await?,
        None => target,
    };
    let meant = match (&first, &new) {
        (Some(row), _) => Some(row).filter(|row| row.state != RunState::Ended),
        (None, None) => target.unfinished().ok().map(|(row, _)| row),
        (None, Some(_)) => None,
    };
    *ids = meant.map(|row| (row.id, row.session));
    let mut endpoints = endpoints(args, (config, variables), &target, state).await;
    let job = match (first, new) {
        (Some(row), _) if row.state == RunState::Ended => {
            let spec = RunSpec::clone(&reader.accepted(&row).await?.spec);
            Job::Tell { ids: (row.id, row.session), spec }
        }
        (None, Some((task, place))) => {
            let place = place.map_or_else(|| target.workspace(state), Ok)?;
            Job::Submit { task, spec: new_spec((config, args), &target, &endpoints, (&place, state))? }
        }
        (Some(_), _) | (None, None) => {
            let (row, spec) = target.unfinished()?;
            Job::GoOn { ids: (row.id, row.session), spec: spec.clone() }
        }
    };
    if !matches!(job, Job::Tell { .. }) {
        endpoints.offer(job.spec(), variables).await?;
        for (_, spec) in &target.open {
            endpoints.offer(spec, variables).await?;
        }
    }
    for (model, error) in endpoints.left_out() {
        say_progress(format!("beside    {model} is not asked for summaries: {error}"));
    }
    if target.elsewhere > 0 {
        let n = target.elsewhere;
        say_progress(format!(
            "waiting   {n} unfinished in other sessions: they go on with `hermod runs resume --all`"
        ));
    }
    let prompt = LayeredPrompt::new(config, state);
    let defaults = Defaults { spec: job.spec().clone(), prompt: Arc::new(prompt) };
    let daemon = daemon::start(Arc::clone(journal), endpoints, (config, defaults)).await?;
    Ok((daemon, job, target))
}

/// Carries the job out, and the orders of others meanwhile.
async fn attend(
    (daemon, args): (&Daemon, &RunArgs),
    holding: &mut Holding,
    job: Job,
    target: &Target,
    shown: Shown<'_>,
) -> Result<Followed, Failure> {
    let (runtime, reader) = (&daemon.runtime, holding.reader());
    let Holding { orders, signals, deaths, .. } = holding;
    let before = target.open.iter().map(|(row, _)| row);
    let looked = async {
        hold::end_condemned(runtime, deaths, before.clone()).await?;
        Ok(match deaths.start() {
            Start::Ordinary => None,
            Start::Probation(died) => hold::first_trial(&reader, before).await.map(|trial| (died, trial)),
        })
    };
    let suspect = match signals.or(looked).await? {
        ControlFlow::Continue(suspect) => suspect,
        ControlFlow::Break(exit) => return Ok(Followed::Left(exit)),
    };
    // Only one session goes on here: whose death it would be is known.
    if let Some((died, trial)) = suspect {
        say(format!(
            "probation the process has died {died} times within a minute; run {} is watched",
            trial.run
        ));
        let rest = deaths.rest_before(&trial);
        if let Some(rest) = rest {
            deaths.rest();
            say(format!(
                "probation waits whether the process dies without it, for {:.1} s",
                rest.as_secs_f64()
            ));
            tokio::select! {
                exit = signals.either() => return Ok(Followed::Left(exit)),
                () = tokio::time::sleep(rest) => {}
            }
        }
        deaths.try_out(Some(Trial { long: rest.is_some(), ..trial }));
    }
    let carried = Box::pin(carry_out(
        runtime,
        (job, args.conversation.key.as_deref()),
        (target, &reader),
        signals,
        shown,
    ));
    hold::attend(runtime, orders, deaths.attend(carried)).await
}

/// Other runs of the conversation go on when somebody wants them to.
async fn tell_rest(runtime: &Runtime, session: SessionId) -> Result<(), Failure> {
    for row in runtime.open_runs().await?.iter().filter(|row| row.session == session) {
        let id = row.id;
        say_progress(format!(
            "waiting   run {id} of this conversation: it goes on with `hermod run --resume {id}`"
        ));
    }
    Ok(())
}

async fn carry_out(
    runtime: &Runtime,
    (job, key): (Job, Option<&str>),
    (target, reader): (&Target, &Reader),
    signals: &mut Signals,
    (ids, display): Shown<'_>,
) -> Result<Followed, Failure> {
    announce(job.spec());
    match job {
        Job::Submit { task, spec } => {
            notes(&spec, &task).iter().for_each(say_progress);
            let model = spec.chain.first().map_or_else(String::new, ToString::to_string);
            let place = spec.workspace.clone();
            let request = RunRequest {
                session: target.choice.clone(),
                images: task.images,
                history: task.history,
                task: task.isolation_key,
                spec: Some(spec),
                idempotency_key: key.map(Into::into),
                ..RunRequest::new(task.text)
            };
            let (mut submitted, mut room) = (pin!(runtime.submit(request)), Room::of(runtime));
            let accepted = loop {
                tokio::select! {
                    biased;
                    accepted = &mut submitted => break accepted?,
                    exit = signals.either() => return Ok(Followed::Left(exit)),
                    line = room.changes() => say(line),
                }
            };
            *ids = Some((accepted.run, accepted.session));
            say_progress(format!("accepted  run {} session {}", accepted.run, accepted.session));
            say_progress(format!("with      {model} in {place}"));
            let first = runtime.row(accepted.run).await?.first;
            let watch = runtime.watch(accepted.session, first);
            let progress = (Progress::new(accepted.run), display);
            follow::follow(runtime, accepted.run, progress, (watch, signals, reader)).await
        }
        Job::GoOn { ids: (run, session), .. } => {
            *ids = Some((run, session));
            say_progress(format!("goes on   run {run} session {session}"));
            let (mut progress, mut next) = (Progress::new(run), 1);
            let first = target.open.iter().map(|(row, _)| row.first).min().unwrap_or(1);
            // What happened before is known: it is only looked at for the names of calls.
            let known = reader.records(session, first, |(seq, record)| {
                progress.line(&record);
                next = seq + 1;
                Ok::<(), Failure>(())
            });
            if let ControlFlow::Break(exit) = signals.or(known).await? {
                return Ok(Followed::Left(exit));
            }
            if runtime.row(run).await?.state == RunState::Ended {
                return Ok(Followed::Ended(Box::new(runtime.wait(run, None).await?)));
            }
            let watch = runtime.watch(session, next);
            runtime.revive(session)?;
            follow::follow(runtime, run, (progress, display), (watch, signals, reader)).await
        }
        Job::Tell { ids: (run, session), .. } => {
            *ids = Some((run, session));
            Ok(Followed::Ended(Box::new(runtime.wait(run, None).await?)))
        }
    }
}

fn announce(spec: &RunSpec) {
    if spec.script.is_some() {
        say_progress(format!("rehearsal {}", rehearsal::NOTICE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_is_known_is_named_as_suspended() {
        let run = RunId::from_bits(1);
        let check = |ids: Option<Ids>, has_task: bool, expect: &str| {
            let (said, error) = left(ids, has_task);
            assert!(said.contains(expect), "{said}");
            assert_eq!(said.contains("--resume"), ids.is_some(), "{said}");
            assert_eq!(error == "suspended", ids.is_some(), "{error}");
        };
        let known = Some((run, SessionId::from_bits(2)));
        check(known, true, &format!("--resume {run}"));
        check(known, false, &format!("suspended run {run}"));
        check(None, true, "the task was not accepted, as far as is known");
        check(None, false, "before the run was found");
    }
}
