//! Finds the run that an idempotency key already stands for.

use std::path::Path;

use hermod_actors::{FirstTask, RunRequest, SessionChoice, model::RunRow};

use super::input::RunInput;
use crate::{
    artifacts::FileArtifacts,
    cli::{exit::CliError, output::print_note},
    control::StoreReader,
};

/// The first run accepted with this key, if there is one; an error if its task differs.
pub(super) async fn first_of_key(
    reader: &StoreReader,
    (key, task): (&str, &RunInput),
    session: &SessionChoice,
    state: &Path,
) -> Result<Option<RunRow>, CliError> {
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
    repeats.map_err(|conflict| CliError::usage(format!("--key {conflict}")))?;
    print_note(format!("known     key {key} stands for run {} session {}", row.id, row.session));
    Ok(Some(row))
}
