//! Watches one run of the process that holds the store, with the display of `hermod run`. Nothing goes on by it.

use std::path::Path;

use hermod_actors::model::RunId;
use serde::Serialize;
use tokio::time::{Duration, Instant, sleep};

use super::{
    args::OutputArgs,
    execute::report,
    follow::{FollowOutcome, FollowState},
    followed_view::FollowedView,
    subagents::SubagentMonitor,
};
use crate::{
    cli::{
        CliError, Exit,
        display::{DisplayArgs, OutputForm, ProgressDisplay},
        output::print_last_text,
        print_json, print_note,
    },
    discovery::Variables,
    host::{FollowedStep, HandoverError, HostError, OwnerConnection, StoreClient},
    view::{RunDetailView, RunStateView},
};

/// How long another owner of the store is expected after one has gone.
const RESTART_TIME: Duration = Duration::from_secs(5);
/// Pause between two tries to find it.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Shows the run that `id` names until it ends or waits for a person, and prints its end.
pub(crate) async fn watch_run(
    id: String,
    (shown, output): (&DisplayArgs, OutputArgs),
    client: &StoreClient,
    variables: &Variables,
) -> Result<Exit, CliError> {
    let detail = client.run_detail(id).await?;
    let (run, session) = (detail.run.id, detail.run.session);
    let mut display = ProgressDisplay::new(shown, output.form(), variables);
    match follow(run, client.state(), &mut display).await {
        Ok(None) => print_state(client.run_detail(run.to_string()).await?, output, display),
        Ok(Some(outcome)) => report(Ok(outcome), (Some((run, session)), false), output, display),
        Err(error) => report(Err(error), (Some((run, session)), false), output, display),
    }
}

/// Follows the run over restarts of the process that holds the store; `None` if no process holds it any more.
async fn follow(
    run: RunId,
    folder: &Path,
    display: &mut ProgressDisplay,
) -> Result<Option<FollowOutcome>, CliError> {
    let mut state = FollowState::new(run, 1);
    let mut until = Instant::now();
    display.show_run(run);
    loop {
        let Some(owner) = OwnerConnection::connect(folder).await? else {
            if Instant::now() >= until {
                return Ok(None);
            }
            sleep(POLL_INTERVAL).await;
            continue;
        };
        match watch(owner, (folder, &mut state), display).await {
            Ok(outcome) => return Ok(Some(outcome)),
            Err(HandoverError::Gone) => until = Instant::now() + RESTART_TIME,
            Err(HandoverError::Failed(error)) => return Err(error.into()),
            Err(HandoverError::Crowded(error)) => return Err(HostError::from(error).into()),
        }
    }
}

async fn watch(
    owner: OwnerConnection,
    (folder, state): (&Path, &mut FollowState),
    display: &mut ProgressDisplay,
) -> Result<FollowOutcome, HandoverError> {
    let (pid, from) = (owner.pid, state.is_resumed.then_some(state.next));
    let mut followed = owner.watch_run(state.run, from).await?;
    let subagents = SubagentMonitor::at_owner(folder.to_owned());
    let mut view = FollowedView { pid, folder, state, display, subagents, stop: None };
    loop {
        let step: Option<FollowedStep> = tokio::select! {
            step = followed.next() => Some(step?),
            () = view.subagents.wait_for_poll() => {
                view.display.show_subagents(view.subagents.poll().await);
                None
            }
            () = view.display.frame() => {
                view.display.draw();
                None
            }
        };
        if let Some(outcome) = step.and_then(|step| view.on_step(step)) {
            return Ok(outcome);
        }
    }
}

/// The run as it is stored, as the last event.
#[derive(Serialize)]
struct RunEvent<'a> {
    event: &'static str,
    #[serde(flatten)]
    run: &'a RunDetailView,
}

/// Prints a run that no process carries out.
fn print_state(
    detail: RunDetailView,
    output: OutputArgs,
    mut display: ProgressDisplay,
) -> Result<Exit, CliError> {
    display.close();
    let (id, state) = (detail.run.id, detail.run.state);
    let exit = match (&detail.run.ended, state) {
        (Some(ended), _) => {
            print_note(format!("ended     {ended}; `hermod runs show {id}` shows all of it"));
            Exit::from(ended)
        }
        (None, RunStateView::Parked) => {
            print_note(format!("parked    run {id}: answer with `hermod approvals`"));
            Exit::Parked
        }
        (None, _) => {
            print_note(format!(
                "suspended no process carries run {id} out; `hermod run --resume {id}` goes on with it"
            ));
            Exit::Suspended
        }
    };
    if output.form() == OutputForm::Text {
        print_last_text(detail.last_text.as_deref(), exit == Exit::Ok)?;
    } else {
        print_json(&RunEvent { event: "run", run: &detail })?;
    }
    Ok(exit)
}
