//! The options of `hermod run` that say what the run must leave behind. The doc comments of clap items are the help text.

use std::{path::Path, sync::Arc};

use clap::Args;
use hermod_actors::model::{Expectation, check_expectations};
use serde_json::Value;

use crate::{cli::CliError, files::read_regular};

/// Most bytes of a file with a schema.
const MAX_SCHEMA_BYTES: usize = 1 << 20;

/// What must hold before the run counts as completed. What misses is told to the model once; then the run has failed
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ExpectArgs {
    /// A file of the workspace that must exist and have content; may be repeated, as the other `--expect-…`
    #[arg(long, value_name = "PATH")]
    expect_file: Vec<String>,
    /// A file that the run must write, with content
    #[arg(long, value_name = "PATH")]
    expect_new_file: Vec<String>,
    /// A file that must be JSON and match the JSON schema in the file SCHEMA, which is read now
    #[arg(long, value_name = "PATH=SCHEMA")]
    expect_schema: Vec<String>,
    /// A shell command that must exit with 0. It runs in the workspace like a command of the model, and perhaps again
    #[arg(long, value_name = "COMMAND")]
    expect_command: Vec<String>,
    /// A text that the answer must contain
    #[arg(long, value_name = "TEXT")]
    expect_text: Vec<String>,
}

impl ExpectArgs {
    /// The first option that is given.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--expect-file", &self.expect_file),
            ("--expect-new-file", &self.expect_new_file),
            ("--expect-schema", &self.expect_schema),
            ("--expect-command", &self.expect_command),
            ("--expect-text", &self.expect_text),
        ];
        given.iter().find(|(_, values)| !values.is_empty()).map(|(option, _)| *option)
    }

    /// The expectations: files first, commands after them.
    pub(super) fn read(&self) -> Result<Vec<Expectation>, CliError> {
        let file =
            |newer| move |path: &String| Ok(Expectation::File { path: path.clone(), not_empty: true, newer });
        let command =
            |command: &String| Ok(Expectation::Command { command: command.clone(), timeout_s: None });
        let text = |text: &String| Ok(Expectation::Text { contains: text.clone() });
        let files = self.expect_file.iter().map(file(false));
        let files = files.chain(self.expect_new_file.iter().map(file(true)));
        let files = files.chain(self.expect_schema.iter().map(|given| read_schema(given)));
        let rest = self.expect_command.iter().map(command).chain(self.expect_text.iter().map(text));
        let expects: Vec<Expectation> = files.chain(rest).collect::<Result<_, CliError>>()?;
        check_expectations(&expects).map_err(|error| CliError::usage(format!("--expect-…: {error}")))?;
        Ok(expects)
    }
}

/// The schema is read here: the run must not be able to change what it is judged by.
fn read_schema(given: &str) -> Result<Expectation, CliError> {
    let wrong = |reason: String| CliError::usage(format!("--expect-schema {given}: {reason}"));
    let (path, schema) =
        given.split_once('=').ok_or_else(|| wrong("is not PATH=SCHEMA; name both files".into()))?;
    let json =
        read_regular(Path::new(schema), MAX_SCHEMA_BYTES as u64).map_err(|error| wrong(error.to_string()))?;
    let schema: Value =
        serde_json::from_slice(&json).map_err(|error| wrong(format!("the schema is not JSON: {error}")))?;
    Ok(Expectation::Schema { path: path.to_owned(), schema: Arc::new(schema) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_is_an_expectation() {
        let one = |text: &str| vec![text.to_owned()];
        let args = ExpectArgs {
            expect_file: one("a"),
            expect_new_file: one("b"),
            expect_schema: Vec::new(),
            expect_command: one("make"),
            expect_text: one("done"),
        };
        let told: Vec<String> = args.read().unwrap().iter().map(ToString::to_string).collect();
        let expect = [
            "file a, not empty",
            "file b, not empty, written by this run",
            "command `make` exits with 0",
            "answer with the text \"done\"",
        ];
        assert_eq!(told, expect);
        assert_eq!(args.first_given(), Some("--expect-file"));
        assert_eq!(ExpectArgs::default().first_given(), None);
    }

    #[test]
    fn what_cannot_be_expected_is_named() {
        let check = |args: ExpectArgs, part: &str| {
            let error = args.read().expect_err("it is wrong").text;
            assert!(error.contains(part), "{error}");
        };
        let schema = |given: &str| ExpectArgs { expect_schema: vec![given.into()], ..ExpectArgs::default() };
        check(schema("a.json"), "is not PATH=SCHEMA");
        check(schema("a.json=/nowhere"), "/nowhere");
        check(
            ExpectArgs { expect_file: vec![String::new()], ..ExpectArgs::default() },
            "[0] `path` is empty",
        );
    }
}
