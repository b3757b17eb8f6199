//! Runs `hermod run`: becomes the owner of the store or gives its run to the owner, again and again until the run has
//! ended, and prints its end. `own_run.rs` has the owner's part, `handover.rs` the other one.

use std::{ops::ControlFlow, path::PathBuf, sync::Arc};

use hermod_actors::model::{RunId, SessionId};

use super::{
    args::{OutputArgs, RunArgs},
    follow::FollowOutcome,
    handover::Handover,
    own_run::run_as_owner,
    task_input::{read_history, read_images, read_task},
};
use crate::{
    cli::{
        CliError, Exit,
        display::{OutputForm, ProgressDisplay},
        exit::has_failed,
        format::{dollars, seconds},
        output::{StderrNotes, print_last_text},
        print_error, print_note, print_progress,
    },
    config::Config,
    control::OwnerKind,
    control::{BudgetUsage, continuation},
    discovery::Variables,
    host::{self, HostError, NoteSink, OwnedStore, RunInput, StartError},
    store::redb::OpenError,
    view::ResultView,
};

/// The ids of the run that the command waits for.
pub(super) type RunAndSession = (RunId, SessionId);

/// What the command was told, read once.
pub(super) struct RunCommand<'a> {
    pub(super) args: &'a RunArgs,
    pub(super) config: &'a Config,
    pub(super) variables: &'a Variables,
    /// The state directory.
    pub(super) state: PathBuf,
    /// The new task with its workspace, if one is named; `None` resumes an unfinished run.
    pub(super) new: Option<(RunInput, Option<PathBuf>)>,
}

/// Executes the command, and prints the result.
pub(crate) async fn execute(args: RunArgs, variables: &Variables) -> Result<Exit, CliError> {
    let mut ids = None;
    let mut display = ProgressDisplay::new(&args.display, args.output.form(), variables);
    let outcome = run(&args, variables, (&mut ids, &mut display)).await;
    report(outcome, (ids, args.text.is_some()), args.output, display)
}

/// Prints how following a run has ended: of a task that was given to the command, or of an earlier one.
pub(super) fn report(
    outcome: Result<FollowOutcome, CliError>,
    (ids, has_task): (Option<RunAndSession>, bool),
    output: OutputArgs,
    mut display: ProgressDisplay,
) -> Result<Exit, CliError> {
    display.close();
    let is_text = output.form() == OutputForm::Text;
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
            if is_text {
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
            let (suspension, error) = format_suspended(ids, has_task);
            print_note(suspension);
            (ResultView::without_outcome(ids, error), exit)
        }
        Ok(FollowOutcome::Left { exit, pid }) => {
            print_note(format_left(ids.map(|(run, _)| run), pid));
            (ResultView::without_outcome(ids, "left"), exit)
        }
        Err(failure) => {
            if is_text {
                return Err(failure);
            }
            print_error(format!("hermod: {failure}"));
            (ResultView::without_outcome(ids, &failure.text), failure.exit)
        }
    };
    if !is_text {
        output.print_end(&object)?;
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

/// The line about a run that goes on in process `pid`; without a run, about a task that it was given.
fn format_left(run: Option<RunId>, pid: u32) -> String {
    match run {
        Some(run) => format!(
            "left      run {run}: it goes on in process {pid}; `hermod run --resume {run}` shows it again, `hermod stop \
             {run}` stops it"
        ),
        None => format!(
            "left      the task was given to process {pid}, which may still accept it; `hermod runs list` shows whether it did"
        ),
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
pub(super) type RunDisplay<'a> = (&'a mut Option<RunAndSession>, &'a mut ProgressDisplay);

async fn run(
    args: &RunArgs,
    variables: &Variables,
    run_display: RunDisplay<'_>,
) -> Result<FollowOutcome, CliError> {
    let text = read_task(args.text.as_deref())?;
    if text.is_none() {
        args.check_without_text()?;
    }
    let images = read_images(&args.image, "--image")?;
    let history = read_history(args.history.as_deref())?;
    let expects = args.expects.read()?;
    let isolation_key = args.task_id.as_deref().map(Into::into);
    let config = Config::read(variables)?;
    let state = host::configured_state_dir(variables)?;
    let workspace = args.workspace_choice().map(|choice| host::resolve_workspace(choice, &state));
    let workspace = workspace.transpose().map_err(CliError::of_workspace)?;
    let new = text.map(|text| {
        let request_hash = None;
        (RunInput { text, images, history, isolation_key, expects, request_hash }, workspace)
    });
    let command = RunCommand { args, config: &config, variables, state, new };
    let mut handover = Handover::new(&command);
    loop {
        let busy = match acquire(&command, &mut handover).await? {
            ControlFlow::Continue(Ok(mut store)) => {
                let followed = run_as_owner(&command, &mut store, handover.into_taken(), run_display).await;
                store.release(has_failed(&followed)).await;
                return followed;
            }
            ControlFlow::Continue(Err(busy)) => busy,
            ControlFlow::Break(outcome) => return Ok(outcome),
        };
        let (ids, display) = (&mut *run_display.0, &mut *run_display.1);
        if let ControlFlow::Break(outcome) = handover.hand_over(busy, (ids, display)).await? {
            return Ok(outcome);
        }
    }
}

/// Becomes the owner of the store. The inner error says that another process is; there is none while a service is
/// expected back.
async fn acquire(
    command: &RunCommand<'_>,
    handover: &mut Handover<'_>,
) -> Result<ControlFlow<FollowOutcome, Result<OwnedStore, Option<HostError>>>, CliError> {
    if handover.expects_service() {
        return Ok(ControlFlow::Continue(Err(None)));
    }
    let durability = command.args.durability.unwrap_or_else(|| command.config.store.durability.into());
    let owner: (_, Arc<dyn NoteSink>) = (OwnerKind::Command, Arc::new(StderrNotes));
    let acquired = OwnedStore::acquire(command.state.clone(), durability.into(), owner);
    Ok(match handover.run_until_signal(Box::pin(acquired)).await {
        ControlFlow::Break(signal) => ControlFlow::Break(FollowOutcome::Interrupted(signal.into())),
        ControlFlow::Continue(Err(busy @ HostError::Start(StartError::Store(OpenError::Busy { .. })))) => {
            ControlFlow::Continue(Err(Some(busy)))
        }
        ControlFlow::Continue(acquired) => ControlFlow::Continue(Ok(acquired?)),
    })
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
