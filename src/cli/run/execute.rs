//! Runs `hermod run`: decides which run is meant, submits or resumes it, follows it, and prints its end.
//!
//! Each function calls the next. `execute` prints the end, `run` becomes the owner of the store, and `run_as_owner`
//! lets `prepare` decide the action and start the runtime, which it suspends. `run_action` sees to crash loops, and
//! `execute_action` submits or resumes.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
};

use hermod_actors::{
    Defaults, RunError, RunRequest, Runtime,
    model::{RunId, RunRow, RunSpec, RunState, SessionId},
    port::Journal,
};

use super::{
    args::RunArgs,
    follow::{self, FollowOutcome},
    task_input::{read_history, read_images, read_task},
};
use crate::{
    cli::{
        CliError, Exit,
        continuation::{BudgetUsage, continuation},
        display::ProgressDisplay,
        exit::has_failed,
        format::{dollars, seconds},
        output::{StderrNotes, print_last_text},
        print_error, print_json, print_note, print_progress,
        progress::ProgressLines,
    },
    config::Config,
    control::StoreReader,
    crash_loop::Trial,
    discovery::Variables,
    host::{
        self, ConversationTarget, DiskFullMonitor, HostError, OwnedStore, RunInput, RuntimeHost,
        ShutdownUrgency, Signals, first_of_key, ignored_settings, new_spec,
    },
    prompt::LayeredPrompt,
    rehearsal,
    view::ResultView,
};

/// The ids of the run that the command waits for.
type RunAndSession = (RunId, SessionId);

/// What the command does with which run, and the conversation of the run.
struct PreparedRun {
    action: RunAction,
    spec: RunSpec,
    target: ConversationTarget,
}

/// The action of the command.
enum RunAction {
    /// Submit a new run, with its idempotency key.
    Submit(RunInput, Option<Arc<str>>),
    /// Resume a run that was accepted earlier.
    Resume(RunAndSession),
    /// Report the first run of the idempotency key, which has ended.
    Report(RunAndSession),
}

/// Executes the command, and prints the result.
pub(crate) async fn execute(args: RunArgs, variables: &Variables) -> Result<Exit, CliError> {
    let mut ids = None;
    let mut display = ProgressDisplay::new(&args.display, !args.json, variables);
    let outcome = run(&args, variables, (&mut ids, &mut display)).await;
    display.close();
    let (object, exit) = match outcome {
        Ok(FollowOutcome::Ended(result)) => {
            let exit = Exit::from(&result.ended);
            if exit == Exit::Ok {
                print_progress(format_end(&result));
            } else {
                print_note(format_end(&result));
            }
            let used = BudgetUsage { tokens: result.usage.total(), nano_usd: result.cost.unwrap_or(0) };
            continuation(result.run, &result.ended, used).into_iter().for_each(print_progress);
            if !args.json {
                // A text that the terminal already shows is not repeated.
                let text = result.text().filter(|text| !display.has_shown(text));
                return print_last_text(text, exit == Exit::Ok).map(|()| exit);
            }
            (ResultView::from(&*result), exit)
        }
        Ok(FollowOutcome::Parked(parked)) => {
            print_note(format_parked(parked, ids.map_or(parked, |(run, _)| run)));
            (ResultView::without_outcome(ids, "parked"), Exit::Parked)
        }
        Ok(FollowOutcome::Interrupted(exit)) => {
            let (suspension, error) = format_suspended(ids, args.text.is_some());
            print_note(suspension);
            (ResultView::without_outcome(ids, error), exit)
        }
        Err(failure) => {
            if !args.json {
                return Err(failure);
            }
            print_error(format!("hermod: {failure}"));
            (ResultView::without_outcome(ids, &failure.text), failure.exit)
        }
    };
    if args.json {
        print_json(&object)?;
    }
    Ok(exit)
}

/// The line about a parked run; `run` is this run or one queued behind it.
fn format_parked(parked: RunId, run: RunId) -> String {
    let (behind, goes_on) = if parked == run {
        (String::new(), "it goes on")
    } else {
        (format!(", and run {run} waits behind it"), "both go on")
    };
    format!(
        "parked    run {parked}{behind}: answer with `hermod approvals`, then {goes_on} with `hermod run --resume {run}`"
    )
}

/// The line and the JSON error after a signal. Without ids there is no known run; a task being submitted may or may
/// not have been accepted.
fn format_suspended(ids: Option<RunAndSession>, has_task: bool) -> (String, &'static str) {
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

fn format_end(result: &hermod_actors::RunResult) -> String {
    let took = match (result.started_at, result.ended_at) {
        (Some(start), Some(end)) => format!(", {}", seconds(end.ms_since(start))),
        (None | Some(_), _) => String::new(),
    };
    let (iterations, tokens) = (result.iterations, result.usage.total());
    let cost = result.cost.map_or_else(String::new, |cost| format!(", {}", dollars(cost)));
    format!("ended     {}: iterations {iterations}, tokens {tokens}{cost}{took}", result.ended)
}

/// The ids of the run once known, and its display.
type RunDisplay<'a> = (&'a mut Option<RunAndSession>, &'a mut ProgressDisplay);

async fn run(
    args: &RunArgs,
    variables: &Variables,
    run_display: RunDisplay<'_>,
) -> Result<FollowOutcome, CliError> {
    let text = read_task(args.text.as_deref())?;
    if text.is_none() {
        args.check_without_text()?;
    }
    let images = read_images(&args.image)?;
    let history = read_history(args.history.as_deref())?;
    let isolation_key = args.task_id.as_deref().map(Into::into);
    let config = Config::read(variables)?;
    let state = host::configured_state_dir(variables)?;
    let workspace = args.workspace_choice().map(|choice| host::resolve_workspace(choice, &state));
    let workspace = workspace.transpose().map_err(CliError::of_workspace)?;
    let new =
        text.map(|text| (RunInput { text, images, history, isolation_key, request_hash: None }, workspace));
    let durability = args.durability.unwrap_or_else(|| config.store.durability.into());
    let mut store = OwnedStore::acquire(state, durability.into(), Arc::new(StderrNotes)).await?;
    let followed = run_as_owner(args, (&config, variables), &mut store, new, run_display).await;
    store.release(has_failed(&followed)).await;
    followed
}

/// Executes the command as the owner of the store, and serves the commands of other processes meanwhile.
async fn run_as_owner(
    args: &RunArgs,
    (config, variables): (&Config, &Variables),
    store: &mut OwnedStore,
    new: Option<(RunInput, Option<PathBuf>)>,
    (ids, display): RunDisplay<'_>,
) -> Result<FollowOutcome, CliError> {
    let OwnedStore { journal, state, signals, .. } = &mut *store;
    let preparation = prepare(args, (config, variables), (journal, state), new, ids);
    let (host, prepared) = match signals.run_until_signal(Box::pin(preparation)).await? {
        ControlFlow::Continue(ready) => ready,
        ControlFlow::Break(signal) => return Ok(FollowOutcome::Interrupted(signal.into())),
    };
    let followed = run_action(&host, store, prepared, (ids, &mut *display)).await;
    display.close();
    let printed = match &followed {
        Ok(FollowOutcome::Ended(result)) => print_open_runs(&host.runtime, result.session).await,
        Ok(FollowOutcome::Interrupted(_) | FollowOutcome::Parked(_)) | Err(_) => Ok(()),
    };
    host.suspend(if matches!(followed, Ok(FollowOutcome::Interrupted(_))) {
        ShutdownUrgency::Urgent
    } else {
        ShutdownUrgency::Normal
    })
    .await;
    printed.and(followed)
}

/// Decides the action, and starts the runtime for it. Nothing is accepted or resumed yet.
async fn prepare(
    args: &RunArgs,
    (config, variables): (&Config, &Variables),
    (journal, state): (&Arc<dyn Journal>, &Path),
    new: Option<(RunInput, Option<PathBuf>)>,
    ids: &mut Option<RunAndSession>,
) -> Result<(RuntimeHost, PreparedRun), CliError> {
    let reader = StoreReader::new(Arc::clone(journal));
    let target = ConversationTarget::find(&reader, args.conversation()).await.map_err(resume_error)?;
    let first = match (&new, &args.key) {
        (Some((task, _)), Some(key)) => find_known_run(&reader, key, task, &target, state).await?,
        (Some(_) | None, _) => None,
    };
    let target = match &first {
        Some(row) => ConversationTarget::of_run(&reader, row.clone()).await?,
        None => target,
    };
    let current = match (&first, &new) {
        (Some(row), _) => Some(row).filter(|row| row.state != RunState::Ended),
        (None, None) => target.unfinished().ok().map(|(row, _)| row),
        (None, Some(_)) => None,
    };
    *ids = current.map(|row| (row.id, row.session));
    let request = args.spec();
    let mut endpoints = host::run_endpoints(request.model, (config, variables), &target, state).await;
    let (action, spec) = match (first, new) {
        (Some(row), _) if row.state == RunState::Ended => {
            let spec = RunSpec::clone(&reader.acceptance(&row).await?.spec);
            (RunAction::Report((row.id, row.session)), spec)
        }
        (None, Some((task, folder))) => {
            let folder = target.workspace(folder, config.sandbox.workspace, state);
            let folder = folder.map_err(CliError::of_workspace)?;
            let spec = new_spec((config, &request), &target, &endpoints, (&folder, state))?;
            (RunAction::Submit(task, args.key.as_deref().map(Into::into)), spec)
        }
        (Some(_), _) | (None, None) => {
            let (row, spec) = target.unfinished().map_err(resume_error)?;
            (RunAction::Resume((row.id, row.session)), spec.clone())
        }
    };
    if !matches!(action, RunAction::Report(_)) {
        endpoints.add_for_run(&spec, variables).await?;
        for (_, spec) in &target.open {
            endpoints.add_for_run(spec, variables).await?;
        }
    }
    for (model, error) in endpoints.missing_auxiliary_models() {
        print_progress(format!("beside    {model} is not asked for summaries: {error}"));
    }
    if target.waiting_elsewhere > 0 {
        let n = target.waiting_elsewhere;
        print_progress(format!(
            "waiting   {n} unfinished in other sessions: they go on with `hermod runs resume --all`"
        ));
    }
    let prompt = LayeredPrompt::new(config, state);
    let defaults = Defaults { spec: spec.clone(), prompt: Arc::new(prompt) };
    let host =
        host::start(Arc::clone(journal), endpoints, config, defaults, Some(Arc::new(StderrNotes))).await?;
    Ok((host, PreparedRun { action, spec, target }))
}

/// The first run of an idempotency key, if there is one.
async fn find_known_run(
    reader: &StoreReader,
    key: &str,
    task: &RunInput,
    target: &ConversationTarget,
    state: &Path,
) -> Result<Option<RunRow>, CliError> {
    let row = first_of_key(reader, key, task, &target.choice, state).await.map_err(|error| {
        if let HostError::Run(RunError::KeyConflict(conflict)) = &error {
            return CliError::usage(format!("--key {conflict}"));
        }
        CliError::of_option("--key ", error)
    })?;
    if let Some(row) = &row {
        print_note(format!("known     key {key} stands for run {} session {}", row.id, row.session));
    }
    Ok(row)
}

fn resume_error(error: HostError) -> CliError {
    CliError::of_option("--resume: ", error)
}

/// Executes the action, and serves the commands of other processes meanwhile.
async fn run_action(
    host: &RuntimeHost,
    store: &mut OwnedStore,
    prepared: PreparedRun,
    run_display: RunDisplay<'_>,
) -> Result<FollowOutcome, CliError> {
    let (runtime, reader) = (&host.runtime, store.reader());
    let OwnedStore { runtime: slot, signals, crash_history, notes, .. } = store;
    let open_rows = prepared.target.open.iter().map(|(row, _)| row);
    let preparation = async {
        host::fail_crash_looping(runtime, &**notes, crash_history, open_rows.clone()).await?;
        Ok::<_, CliError>(match crash_history.probation() {
            Some(deaths) => host::first_trial(&reader, open_rows).await.map(|trial| (deaths, trial)),
            None => None,
        })
    };
    let suspect = match signals.run_until_signal(preparation).await? {
        ControlFlow::Continue(suspect) => suspect,
        ControlFlow::Break(signal) => return Ok(FollowOutcome::Interrupted(signal.into())),
    };
    // This command resumes one session only. So a crash counts against its first unfinished run, without trials of
    // other runs.
    if let Some((deaths, trial)) = suspect {
        print_note(format!(
            "probation the process has died {deaths} times within a minute; run {} is watched",
            trial.run
        ));
        let backoff = crash_history.backoff_before(&trial);
        if let Some(backoff) = backoff {
            crash_history.start_backoff();
            print_note(format!(
                "probation waits whether the process dies without it, for {:.1} s",
                backoff.as_secs_f64()
            ));
            tokio::select! {
                signal = signals.next() => return Ok(FollowOutcome::Interrupted(signal.into())),
                () = tokio::time::sleep(backoff) => {}
            }
        }
        crash_history.set_trial(Some(Trial { has_min_uptime: backoff.is_some(), ..trial }));
    }
    let work = Box::pin(execute_action(runtime, prepared, &reader, signals, run_display));
    host::serve_commands((slot, runtime), notes, crash_history.watch_trial(work)).await
}

/// Prints the other open runs of the conversation, which are not resumed by this command.
async fn print_open_runs(runtime: &Runtime, session: SessionId) -> Result<(), CliError> {
    for row in runtime.open_runs().await?.iter().filter(|row| row.session == session) {
        let id = row.id;
        print_progress(format!(
            "waiting   run {id} of this conversation: it goes on with `hermod run --resume {id}`"
        ));
    }
    Ok(())
}

async fn execute_action(
    runtime: &Runtime,
    PreparedRun { action, spec, target }: PreparedRun,
    reader: &StoreReader,
    signals: &mut Signals,
    (ids, display): RunDisplay<'_>,
) -> Result<FollowOutcome, CliError> {
    if spec.script.is_some() {
        print_progress(format!("rehearsal {}", rehearsal::NOTICE));
    }
    match action {
        RunAction::Submit(task, idempotency_key) => {
            ignored_settings(&spec, &task).iter().for_each(print_progress);
            let model = spec.chain.first().map_or_else(String::new, ToString::to_string);
            let workspace = spec.workspace.clone();
            let request = RunRequest {
                session: target.choice,
                images: task.images,
                history: task.history,
                task: task.isolation_key,
                spec: Some(spec),
                idempotency_key,
                ..RunRequest::new(task.text)
            };
            let (mut submitted, mut disk) = (pin!(runtime.submit(request)), DiskFullMonitor::new(runtime));
            let accepted = loop {
                tokio::select! {
                    biased;
                    accepted = &mut submitted => break accepted?,
                    signal = signals.next() => return Ok(FollowOutcome::Interrupted(signal.into())),
                    line = disk.next_change() => print_note(line),
                }
            };
            *ids = Some((accepted.run, accepted.session));
            print_progress(format!("accepted  run {} session {}", accepted.run, accepted.session));
            print_progress(format!("with      {model} in {workspace}"));
            let first = runtime.row(accepted.run).await?.first;
            let watch = runtime.watch(accepted.session, first);
            let progress = (ProgressLines::new(accepted.run), display);
            follow::follow(runtime, accepted.run, progress, (watch, signals, reader)).await
        }
        RunAction::Resume((run, session)) => {
            *ids = Some((run, session));
            print_progress(format!("goes on   run {run} session {session}"));
            let (mut progress, mut next) = (ProgressLines::new(run), 1);
            let first = target.open.iter().map(|(row, _)| row.first).min().unwrap_or(1);
            // Earlier records are not printed; they are only read for the names of calls.
            let known = reader.records(session, first, |seq, record| {
                progress.line(&record);
                next = seq + 1;
            });
            if let ControlFlow::Break(signal) = signals.run_until_signal(known).await? {
                return Ok(FollowOutcome::Interrupted(signal.into()));
            }
            if runtime.row(run).await?.state == RunState::Ended {
                return Ok(FollowOutcome::Ended(Box::new(runtime.wait(run, None).await?)));
            }
            let watch = runtime.watch(session, next);
            runtime.revive(session)?;
            follow::follow(runtime, run, (progress, display), (watch, signals, reader)).await
        }
        RunAction::Report((run, session)) => {
            *ids = Some((run, session));
            Ok(FollowOutcome::Ended(Box::new(runtime.wait(run, None).await?)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_is_known_is_named_as_suspended() {
        let run = RunId::from_bits(1);
        let check = |ids: Option<RunAndSession>, has_task: bool, expect: &str| {
            let (suspension, error) = format_suspended(ids, has_task);
            assert!(suspension.contains(expect), "{suspension}");
            assert_eq!(suspension.contains("--resume"), ids.is_some(), "{suspension}");
            assert_eq!(error == "suspended", ids.is_some(), "{error}");
        };
        let known = Some((run, SessionId::from_bits(2)));
        check(known, true, &format!("--resume {run}"));
        check(known, false, &format!("suspended run {run}"));
        check(None, true, "the task was not accepted, as far as is known");
        check(None, false, "before the run was found");
    }
}
