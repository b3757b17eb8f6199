//! The run that an idempotency key stands for already.

use std::path::Path;

use hermod_actors::{FirstTask, RunRequest, SessionChoice, model::RunRow, port::Read};

use super::task::Task;
use crate::{
    artifacts::FileArtifacts,
    cli::{exit::Failure, output::say},
    control::Reader,
};

/// The run that was accepted first with this key, if there is one. A key that comes with another task is refused.
pub(super) async fn first_of_key(
    reader: &Reader,
    (key, task): (&str, &Task),
    session: &SessionChoice,
    state: &Path,
) -> Result<Option<RunRow>, Failure> {
    let Some(row) = reader.runs(Read::RunOfKey(key.into())).await?.pop() else { return Ok(None) };
    let request = RunRequest {
        images: task.images.clone(),
        history: task.history.clone(),
        session: session.clone(),
        idempotency_key: Some(key.into()),
        ..RunRequest::new(task.text.clone())
    };
    let (session, accepted) = (reader.session(&row.session.to_string()).await?, reader.accepted(&row).await?);
    let first = FirstTask { row: &row, session: &session, accepted: &accepted };
    let repeats = request.check_repeats(first, &FileArtifacts::at(state)).await;
    repeats.map_err(|conflict| Failure::usage(format!("--key {conflict}")))?;
    say(format!("known     key {key} stands for run {} session {}", row.id, row.session));
    Ok(Some(row))
}
