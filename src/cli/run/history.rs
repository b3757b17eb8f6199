//! Reads the file of `--history`: the conversation before the task.

use std::path::Path;

use hermod_actors::model::Message;

use crate::{
    cli::{exit::CliError, wire::message},
    files::read_regular,
};

/// Size limit of a history; more than the window of any model.
const MAX_BYTES: u64 = 64 << 20;

/// The messages of the file; empty without a file.
pub(super) fn read(path: Option<&Path>) -> Result<Vec<Message>, CliError> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let history_error = |reason: String| CliError::usage(format!("--history {}: {reason}", path.display()));
    let json = read_regular(path, MAX_BYTES).map_err(|error| history_error(error.to_string()))?;
    message::history(&json).map_err(history_error)
}
