//! Starts the log at standard error; it is off unless `-v` or HERMOD_LOG requests it.

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use super::{CliError, Exit, output::LogLines, terminal::Palette};
use crate::discovery::Variables;

const VARIABLE: &str = "HERMOD_LOG";

/// How a log entry is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object a line, with the fields of the spans that it stands in.
    Json,
}

/// True if the arguments request JSON logs; for arguments that clap could not parse.
pub(crate) fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let arguments: Vec<OsString> = arguments.take_while(|argument| argument != "--").collect();
    arguments.iter().any(|argument| argument == "--log-format=json")
        || arguments.windows(2).any(|pair| pair == ["--log-format", "json"])
}

/// Sends logs to standard error, filtered by HERMOD_LOG, else by the number of `-v`.
pub(crate) fn start(verbose: u8, format: LogFormat, variables: &Variables) -> Result<(), CliError> {
    let filter = match (variables.get(VARIABLE).filter(|filter| !filter.is_empty()), verbose) {
        (Some(filter), _) => filter.as_str(),
        (None, 0) => return Ok(()),
        (None, 1) => "hermod=info,hermod_actors=info",
        (None, _) => "hermod=debug,hermod_actors=debug",
    };
    let filter_error =
        |error: String| CliError { exit: Exit::Config, text: format!("{VARIABLE}={filter}: {error}") };
    let parsed = EnvFilter::try_new(filter).map_err(|error| filter_error(error.to_string()))?;
    let ansi = io::stderr().is_terminal() && Palette::of(variables) == Palette::Coloured;
    let logs = tracing_subscriber::fmt().with_env_filter(parsed).with_ansi(ansi).with_writer(|| LogLines);
    // A line that cannot be written is lost: standard error is also where that loss would be reported.
    let logs = logs.log_internal_errors(false);
    let init = match format {
        LogFormat::Text => logs.try_init(),
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
    init.map_err(|error| filter_error(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_asked_for_even_in_what_is_not_understood() {
        let check = |arguments: &[&str], expect: bool| {
            assert_eq!(wants_json(arguments.iter().map(OsString::from)), expect, "{arguments:?}");
        };
        check(&["hermod", "--log-format", "json", "rum"], true);
        check(&["hermod", "rum", "--log-format=json"], true);
        check(&["hermod", "--log-format", "text", "json"], false);
        check(&["hermod", "run", "--", "--log-format=json"], false);
    }
}
