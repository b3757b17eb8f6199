//! `hermod schedules run-now`: starts a run beside the times of its schedule, and waits for its end.

use std::time::Duration;

use hermod_actors::model::RunId;
use serde::Serialize;
use tokio::time::sleep;

use super::NameArgs;
use crate::{
    cli::{CliError, Exit, print, print_json},
    host::StoreClient,
    view::{RunDetailView, RunStateView},
};

/// Pauses between two looks at a run that is waited for: the first, and the longest.
const POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// The run that was started: `{run, outcome?}`.
#[derive(Debug, Serialize)]
struct RunNowResult {
    run: RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
}

/// Starts a run; with `wait`, its outcome is that of the command.
pub(super) async fn execute(
    NameArgs { name, json }: NameArgs,
    wait: bool,
    client: &StoreClient,
) -> Result<Exit, CliError> {
    let run = client.run_schedule(&name).await?;
    let (exit, outcome) = if wait { ended(run, client).await? } else { (Exit::Ok, None) };
    if json {
        print_json(&RunNowResult { run, outcome })?;
    } else {
        let outcome = outcome.map(|outcome| format!(": {outcome}")).unwrap_or_default();
        print(&format!("run {run} of {name}{outcome}"))?;
    }
    Ok(exit)
}

/// How a run has ended; it may wait for a person.
async fn ended(run: RunId, client: &StoreClient) -> Result<(Exit, Option<String>), CliError> {
    let [mut pause, longest] = POLL_INTERVALS;
    loop {
        let RunDetailView { run, .. } = client.run_detail(run.to_string()).await?;
        if let Some(ended) = &run.ended {
            return Ok((Exit::from(ended), Some(ended.outcome.name().to_owned())));
        }
        if run.state == RunStateView::Parked {
            return Ok((Exit::Parked, Some("waits for a person".to_owned())));
        }
        sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}
