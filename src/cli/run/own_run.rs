//! Runs `hermod run` in the process that owns the store.
//!
//! Each function calls the next. `run_as_owner` lets `prepare` decide the action and start the runtime, which it
//! suspends. `run_action` sees to crash loops, and `execute_action` submits or resumes.

use std::{ops::ControlFlow, path::Path, pin::pin, sync::Arc};

use hermod_actors::{
    Defaults, RunError, RunRequest, Runtime,
    model::{RunId, RunRow, RunSpec, RunState, SessionId},
    port::Journal,
};

use super::{
    args::RunArgs,
    execute::{RunAndSession, RunCommand, RunDisplay},
    follow::{self, FollowOutcome, FollowState},
    handover::TakenRun,
};
use crate::{
    cli::{CliError, output::StderrNotes, print_note, print_progress},
    control::{DiskFullMonitor, RunFollower, StoreReader},
    crash_loop::Trial,
    delivery::TargetOutputs,
    host::{
        self, ConversationChoice, ConversationTarget, HostError, OwnedStore, RunInput, RunSubmitter,
        RuntimeHost, ShutdownUrgency, Signals, first_of_key, ignored_settings, new_spec,
    },
    prompt::LayeredPrompt,
    rehearsal,
};

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

/// Executes the command as the owner of the store, and serves the commands of other processes meanwhile.
pub(super) async fn run_as_owner(
    command: &RunCommand<'_>,
    store: &mut OwnedStore,
    taken: TakenRun,
    (ids, display): RunDisplay<'_>,
) -> Result<FollowOutcome, CliError> {
    let OwnedStore { journal, signals, .. } = &mut *store;
    let preparation = prepare(command, journal, &taken, ids);
    let (host, prepared) = match signals.run_until_signal(Box::pin(preparation)).await? {
        ControlFlow::Continue(ready) => ready,
        ControlFlow::Break(signal) => return Ok(FollowOutcome::Interrupted(signal.into())),
    };
    let host = Arc::new(host);
    let stored = (&store.reader(), command.state.as_path());
    let submitter = RunSubmitter::of_command(&host, stored, (command.config, command.variables));
    submitter.allow_revivals();
    let work = (prepared, taken.followed);
    let followed = run_action((&host, submitter), store, work, (ids, &mut *display)).await;
    display.close();
    let printed = match &followed {
        Ok(FollowOutcome::Ended(result)) => {
            host.finish_deliveries(result.run).await;
            print_open_runs(&host.runtime, result.session).await
        }
        Ok(FollowOutcome::Interrupted(_) | FollowOutcome::Left { .. } | FollowOutcome::Parked(_))
        | Err(_) => Ok(()),
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
    command: &RunCommand<'_>,
    journal: &Arc<dyn Journal>,
    taken: &TakenRun,
    ids: &mut Option<RunAndSession>,
) -> Result<(RuntimeHost, PreparedRun), CliError> {
    let RunCommand { args, config, variables, state, new } = command;
    let reader = StoreReader::new(Arc::clone(journal));
    let (target, first) = find_conversation(command, &reader, taken).await?;
    let new = new.clone();
    let current = match (&first, &new) {
        (Some(row), _) => Some(row).filter(|row| row.state != RunState::Ended),
        (None, None) => target.unfinished().ok().map(|(row, _)| row),
        (None, Some(_)) => None,
    };
    *ids = current.map(|row| (row.id, row.session));
    let deliver_to = args.deliver_to();
    let request = args.spec(deliver_to.as_deref());
    let of_agent = match (&first, &new) {
        (None, Some(_)) => target.config(config, args.agent.as_deref())?,
        (Some(_), _) | (None, None) => config,
    };
    let mut endpoints = host::run_endpoints(request.model, (of_agent, variables), &target, state).await;
    let (action, spec) = match (first, new) {
        (Some(row), _) if row.state == RunState::Ended => {
            let spec = RunSpec::clone(&reader.acceptance(&row).await?.spec);
            (RunAction::Report((row.id, row.session)), spec)
        }
        (None, Some((task, folder))) => {
            let folder = target.workspace((folder, None), of_agent, state);
            let folder = folder.map_err(CliError::of_workspace)?;
            let mut spec = new_spec((of_agent, &request), &target, &endpoints, (&folder, state))?;
            // A title is made after the run, when this process ends.
            spec.title = None;
            (RunAction::Submit(task, taken.key.clone()), spec)
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
    for (row, spec) in &target.open {
        host::missing_agent_note(config, row.id, spec).iter().for_each(print_note);
    }
    for (model, error) in endpoints.missing_auxiliary_models() {
        print_progress(format!("beside    {model} is not asked for summaries: {error}"));
    }
    // The runs of an earlier owner have commands that follow them.
    if target.waiting_elsewhere > 0 && taken.followed.is_none() {
        let n = target.waiting_elsewhere;
        print_progress(format!(
            "waiting   {n} unfinished in other sessions: they go on with `hermod runs resume --all`"
        ));
    }
    let prompt = LayeredPrompt::new(config, state);
    let defaults = Defaults { spec: spec.clone(), prompt: Arc::new(prompt) };
    let (journal, notes) = (Arc::clone(journal), Some(Arc::new(StderrNotes) as _));
    let host = host::start(journal, endpoints, (config, variables), defaults, notes).await?;
    host.start_deliveries((config, variables), TargetOutputs::default());
    Ok((host, PreparedRun { action, spec, target }))
}

/// The conversation of the command, and its run if that was accepted before: by an earlier owner of the store, or with
/// the same key.
async fn find_conversation(
    RunCommand { args, state, new, .. }: &RunCommand<'_>,
    reader: &StoreReader,
    taken: &TakenRun,
) -> Result<(ConversationTarget, Option<RunRow>), CliError> {
    if let Some(followed) = &taken.followed {
        let row = reader.run(&followed.run.to_string()).await?;
        return Ok((ConversationTarget::of_run(reader, row.clone()).await?, Some(row)));
    }
    let last = taken.last.map(|session| session.to_string());
    let choice = last.as_deref().map_or_else(|| args.conversation(), ConversationChoice::Id);
    let target = ConversationTarget::find(reader, choice).await.map_err(resume_error)?;
    let (Some((task, _)), Some(key)) = (new, &taken.key) else { return Ok((target, None)) };
    match find_known_run(reader, (key, args), task, &target, state).await? {
        Some(row) => Ok((ConversationTarget::of_run(reader, row.clone()).await?, Some(row))),
        None => Ok((target, None)),
    }
}

/// The first run of an idempotency key, if there is one.
async fn find_known_run(
    reader: &StoreReader,
    (key, args): (&str, &RunArgs),
    task: &RunInput,
    target: &ConversationTarget,
    state: &Path,
) -> Result<Option<RunRow>, CliError> {
    let row = first_of_key(reader, key, task, &target.choice, state).await.map_err(|error| {
        if let HostError::Run(RunError::KeyConflict(conflict)) = error {
            return CliError::usage(format!("--key {conflict}"));
        }
        CliError::of_option("--key ", error)
    })?;
    if let Some(row) = row.as_ref().filter(|_| args.key.is_some()) {
        print_note(format_known(key, row.id, row.session));
    }
    Ok(row)
}

/// The line about a key that stands for a run.
pub(super) fn format_known(key: &str, run: RunId, session: SessionId) -> String {
    format!("known     key {key} stands for run {run} session {session}")
}

fn resume_error(error: HostError) -> CliError {
    CliError::of_option("--resume: ", error)
}

/// Executes the action, and serves the commands of other processes meanwhile.
async fn run_action(
    (host, submitter): (&RuntimeHost, Arc<RunSubmitter>),
    store: &mut OwnedStore,
    (prepared, followed): (PreparedRun, Option<FollowState>),
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
    let work = Box::pin(execute_action(runtime, (prepared, followed), (&reader, signals), run_display));
    host::serve_commands((slot, runtime), submitter, notes, crash_history.watch_trial(work)).await
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
    runtime: &Arc<Runtime>,
    (PreparedRun { action, spec, target }, followed): (PreparedRun, Option<FollowState>),
    (reader, signals): (&StoreReader, &mut Signals),
    (ids, display): RunDisplay<'_>,
) -> Result<FollowOutcome, CliError> {
    if spec.script.is_some() && followed.is_none() {
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
                expects: task.expects,
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
            print_accepted(accepted.run, accepted.session, (&model, &workspace));
            let first = runtime.row(accepted.run).await?.first;
            let follower = RunFollower::new(runtime, accepted.run, runtime.watch(accepted.session, first));
            let state = FollowState::new(accepted.run, first);
            follow::follow(runtime, follower, (state, display), (signals, reader)).await
        }
        RunAction::Resume((run, session)) => {
            *ids = Some((run, session));
            print_progress(format!("goes on   run {run} session {session}"));
            let mut state = followed.unwrap_or_else(|| FollowState::new(run, 1));
            let first = target.open.iter().map(|(row, _)| row.first).min().unwrap_or(1).max(state.next);
            // Earlier records are not printed; they are only read for the names of calls. Those that came after the ones
            // of an earlier owner are printed.
            if !state.is_resumed {
                let known = reader.records(session, first, |seq, record| state.skip(seq, &record));
                if let ControlFlow::Break(signal) = signals.run_until_signal(known).await? {
                    return Ok(FollowOutcome::Interrupted(signal.into()));
                }
            }
            if runtime.row(run).await?.state == RunState::Ended {
                return Ok(FollowOutcome::Ended(Box::new(runtime.wait(run, None).await?)));
            }
            let follower = RunFollower::new(runtime, run, runtime.watch(session, state.next));
            runtime.revive(session)?;
            follow::follow(runtime, follower, (state, display), (signals, reader)).await
        }
        RunAction::Report((run, session)) => {
            *ids = Some((run, session));
            Ok(FollowOutcome::Ended(Box::new(runtime.wait(run, None).await?)))
        }
    }
}

/// The lines about an accepted run, its first model and its workspace.
pub(super) fn print_accepted(run: RunId, session: SessionId, (model, workspace): (&str, &str)) {
    print_progress(format!("accepted  run {run} session {session}"));
    print_progress(format!("with      {model} in {workspace}"));
}
