//! Finds the run that an idempotency key already stands for, and checks that the task is the same.

use std::path::Path;

use hermod_actors::{FirstTask, RunRequest, SessionChoice, model::RunRow};

use super::{error::HostError, new_run::RunInput};
use crate::{artifacts::FileArtifacts, control::StoreReader};

/// The first run accepted with this key, if there is one; an error if its task differs.
pub async fn first_of_key(
    reader: &StoreReader,
    key: &str,
    task: &RunInput,
    session: &SessionChoice,
    state: &Path,
) -> Result<Option<RunRow>, HostError> {
    let Some(row) = reader.read(|rows| rows.run_of_key(key)).await? else { return Ok(None) };
    let request = RunRequest {
        images: task.images.clone(),
        history: task.history.clone(),
        session: session.clone(),
        idempotency_key: Some(key.into()),
        ..RunRequest::new(task.text.clone())
    };
    let (session, accepted) =
        (reader.session(&row.session.to_string()).await?, reader.acceptance(&row).await?);
    let first = FirstTask { row: &row, session: &session, accepted: &accepted };
    let repeats = request.check_repeats(first, &FileArtifacts::at(state)).await;
    repeats.map_err(|conflict| HostError::usage(conflict.to_string()))?;
    Ok(Some(row))
}
