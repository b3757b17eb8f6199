//! Logs, for whoever asks for them: without `-v` and HERMOD_LOG nothing is set up.

use std::io;

use tracing_subscriber::EnvFilter;

use super::exit::{Exit, Failure};
use crate::environment::Variables;

const VARIABLE: &str = "HERMOD_LOG";

/// Sends logs to standard error, as HERMOD_LOG says, else as often as `-v` was given.
pub(crate) fn start(verbose: u8, variables: &Variables) -> Result<(), Failure> {
    let filter = match (variables.get(VARIABLE).filter(|filter| !filter.is_empty()), verbose) {
        (Some(filter), _) => filter.as_str(),
        (None, 0) => return Ok(()),
        (None, 1) => "hermod=info,hermod_actors=info",
        (None, _) => "hermod=debug,hermod_actors=debug",
    };
    let wrong = |error: String| Failure { exit: Exit::Config, text: format!("{VARIABLE}={filter}: {error}") };
    let parsed = EnvFilter::try_new(filter).map_err(|error| wrong(error.to_string()))?;
    tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_writer(io::stderr)
        .try_init()
        .map_err(|error| wrong(error.to_string()))
}
