//! `hermod runs resume` while a service holds the store: the service goes on with the runs. With `--wait` this command
//! polls them until they have ended.

use std::{collections::BTreeMap, path::Path, time::Duration};

use hermod_actors::model::{RunId, SessionId};
use tokio::time::sleep;

use super::{CliError, print_progress};
use crate::{
    control::{ControlRequest, ControlResponse, OwnerKind, RunOutcomeFilter},
    host::{HandoverError, HostError, OwnerConnection, StoreClient, unexpected_response},
    view::{RunStateView, RunView},
};

/// Pause between two polls of a run.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Rows of the list in which unfinished runs are sought.
const MAX_RUNS: usize = 10_000;

/// The runs with which a service goes on.
pub(super) struct ServiceRuns {
    /// In the order of their acceptance.
    pub(super) runs: Vec<RunView>,
    /// The last texts of the ended ones.
    pub(super) texts: BTreeMap<RunId, String>,
    /// False if a run was left without a process while it was waited for.
    pub(super) is_complete: bool,
}

/// Lets the service that holds the store go on with the unfinished runs: those of the conversation that `id` names, or all.
/// `None` if no service holds it.
pub(super) async fn resume_at_service(
    (id, wait): (Option<&str>, bool),
    state: &Path,
    client: &StoreClient,
) -> Result<Option<ServiceRuns>, CliError> {
    let Some(mut owner) = OwnerConnection::connect(state).await? else { return Ok(None) };
    if !owner.submissions.is_some_and(OwnerKind::is_service) {
        return Ok(None);
    }
    let pid = owner.pid;
    let session = match id {
        Some(id) => Some(owner.resume(id).await.map_err(gone)?.session),
        None => None,
    };
    let mut runs = unfinished(client, session).await?;
    for run in &runs {
        match owner.resume(&run.id.to_string()).await {
            // It may have ended meanwhile.
            Ok(_) | Err(HandoverError::Failed(_)) => {}
            Err(error @ (HandoverError::Gone | HandoverError::Crowded(_))) => return Err(gone(error).into()),
        }
    }
    print_progress(format!("service   process {pid} goes on with what is unfinished ({})", runs.len()));
    let (mut texts, mut is_complete) = (BTreeMap::new(), true);
    if wait {
        for run in &mut runs {
            let (now, text) = wait_for(client, run.id).await?;
            is_complete &= now.state != RunStateView::Suspended;
            texts.extend(text.map(|text| (run.id, text)));
            *run = now;
        }
    }
    Ok(Some(ServiceRuns { runs, texts, is_complete }))
}

fn gone(error: HandoverError) -> HostError {
    match error {
        HandoverError::Gone => HostError::ConnectionLost("`hermod runs list` shows the runs".to_owned()),
        HandoverError::Crowded(error) => error.into(),
        HandoverError::Failed(error) => error,
    }
}

async fn unfinished(client: &StoreClient, session: Option<SessionId>) -> Result<Vec<RunView>, HostError> {
    let request = ControlRequest::newest_runs(MAX_RUNS, vec![RunOutcomeFilter::Unfinished]);
    let ControlResponse::Runs(rows) = client.request(&request).await? else {
        return Err(unexpected_response().into());
    };
    let runs = rows.into_iter().map(|row| row.run);
    Ok(runs
        .filter(|run| run.ended.is_none() && session.is_none_or(|session| run.session == session))
        .collect())
}

/// Waits until a run has ended, waits for a person, or has no process; returns it with its last text.
async fn wait_for(client: &StoreClient, run: RunId) -> Result<(RunView, Option<String>), HostError> {
    loop {
        let detail = client.run_detail(run.to_string()).await?;
        let is_over = match detail.run.state {
            RunStateView::Ended | RunStateView::Parked | RunStateView::Suspended => true,
            RunStateView::Queued => is_behind_parked(client, &detail.run).await?,
            RunStateView::Running => false,
        };
        if is_over {
            return Ok((detail.run, detail.last_text));
        }
        sleep(POLL_INTERVAL).await;
    }
}

async fn is_behind_parked(client: &StoreClient, run: &RunView) -> Result<bool, HostError> {
    let before = unfinished(client, Some(run.session)).await?;
    Ok(before.first().is_some_and(|first| first.state == RunStateView::Parked))
}
