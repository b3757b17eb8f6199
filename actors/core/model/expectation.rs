//! Expectations of a run: what has to be there when it has given its answer, before it counts as completed. Also a miss
//! of one, and the record of a check. `turn/verification.rs` decides by them, the port `Verifier` looks.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::CallId;

/// Most expectations of a run.
pub const MAX_EXPECTATIONS: usize = 16;
/// Most bytes of a path, a command or an expected text.
const MAX_FIELD_BYTES: usize = 4_096;
/// Most bytes of a schema, as JSON.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;
/// Most levels of a schema: a record with it can still be read.
const MAX_SCHEMA_DEPTH: usize = 64;
/// Time limit of a command that names none, in seconds.
const DEFAULT_COMMAND_TIMEOUT_S: u64 = 120;
/// Longest time limit of a command, in seconds.
const MAX_COMMAND_TIMEOUT_S: u64 = 3_600;
/// Most characters of a command or a text in a description.
const MAX_EXCERPT_CHARS: usize = 200;
/// Most characters of a reason.
const MAX_REASON_CHARS: usize = 1_000;

/// Something that must hold when a run has given its answer. Paths are relative to the workspace, or absolute inside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Expectation {
    /// A regular file exists.
    File {
        /// The file.
        path: String,
        /// Whether it must have content.
        #[serde(default, skip_serializing_if = "super::is_default")]
        not_empty: bool,
        /// Whether it must have been written since the run started.
        #[serde(default, skip_serializing_if = "super::is_default")]
        newer: bool,
    },
    /// A file is JSON that matches a schema.
    Schema {
        /// The file.
        path: String,
        /// The JSON schema.
        schema: Arc<Value>,
    },
    /// A shell command exits with 0. It may run several times: after a crash, and after a miss.
    Command {
        /// The command, run in the workspace like a shell call of the run.
        command: String,
        /// Its time limit in seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_s: Option<u64>,
    },
    /// The answer contains a text, letter by letter.
    Text {
        /// The text.
        contains: String,
    },
}

/// An expectation that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectationMiss {
    /// Index of the expectation, from 0.
    pub n: u32,
    /// The expectation, in words.
    pub expected: String,
    /// Why it does not hold.
    pub reason: String,
}

/// Record: the expectations of a run were checked after an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunVerified {
    /// The model call of the answer.
    pub call: CallId,
    /// The expectations that do not hold; none if all hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub misses: Vec<ExpectationMiss>,
}

impl Expectation {
    /// Checks the fields, without looking at files.
    fn check(&self) -> Result<(), String> {
        match self {
            Self::File { path, .. } => check_text("path", path),
            Self::Schema { path, schema } => {
                check_text("path", path)?;
                check_schema(schema)
            }
            Self::Command { command, timeout_s } => {
                check_text("command", command)?;
                match timeout_s {
                    Some(0) => Err("`timeout_s` is 0; leave it out, or allow more".into()),
                    Some(seconds) if *seconds > MAX_COMMAND_TIMEOUT_S => {
                        Err(format!("`timeout_s` is over {MAX_COMMAND_TIMEOUT_S}; give a shorter time"))
                    }
                    Some(_) | None => Ok(()),
                }
            }
            Self::Text { contains } => check_text("contains", contains),
        }
    }

    /// The time limit of its command in milliseconds; `None` if it has no command.
    pub fn command_timeout_ms(&self) -> Option<u64> {
        let Self::Command { timeout_s, .. } = self else { return None };
        Some(timeout_s.unwrap_or(DEFAULT_COMMAND_TIMEOUT_S).saturating_mul(1_000))
    }
}

/// Checks the number and the fields of a run's expectations. The error names the first that is not acceptable, with the
/// remedy.
pub fn check_expectations(expects: &[Expectation]) -> Result<(), String> {
    if expects.len() > MAX_EXPECTATIONS {
        return Err(format!("has {} expectations; give at most {MAX_EXPECTATIONS}", expects.len()));
    }
    let mut checked = expects.iter().enumerate();
    checked.try_for_each(|(n, expectation)| expectation.check().map_err(|error| format!("[{n}] {error}")))
}

fn check_text(field: &str, text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err(format!("`{field}` is empty; give one"));
    }
    if text.contains('\0') {
        return Err(format!("`{field}` contains a NUL byte; leave it out"));
    }
    if text.len() > MAX_FIELD_BYTES {
        return Err(format!("`{field}` has {} bytes; give at most {MAX_FIELD_BYTES}", text.len()));
    }
    Ok(())
}

fn check_schema(schema: &Value) -> Result<(), String> {
    if !schema.is_object() && !schema.is_boolean() {
        return Err("`schema` is no JSON schema; give an object".into());
    }
    if depth_exceeds(schema, MAX_SCHEMA_DEPTH) {
        return Err(format!("`schema` is more than {MAX_SCHEMA_DEPTH} levels deep; make it flatter"));
    }
    match schema.to_string().len() {
        bytes if bytes > MAX_SCHEMA_BYTES => {
            Err(format!("`schema` has {bytes} bytes; give at most {MAX_SCHEMA_BYTES}"))
        }
        _ => Ok(()),
    }
}

fn depth_exceeds(value: &Value, left: usize) -> bool {
    let Some(left) = left.checked_sub(1) else { return true };
    match value {
        Value::Array(items) => items.iter().any(|item| depth_exceeds(item, left)),
        Value::Object(fields) => fields.values().any(|field| depth_exceeds(field, left)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

impl fmt::Display for Expectation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, not_empty, newer } => {
                let empty = if *not_empty { ", not empty" } else { "" };
                write!(f, "file {path}{empty}{}", if *newer { ", written by this run" } else { "" })
            }
            Self::Schema { path, schema: _ } => write!(f, "file {path}, by its schema"),
            Self::Command { command, timeout_s: _ } => {
                write!(f, "command `{}` exits with 0", first_chars(command, MAX_EXCERPT_CHARS))
            }
            Self::Text { contains } => {
                write!(f, "answer with the text {:?}", first_chars(contains, MAX_EXCERPT_CHARS))
            }
        }
    }
}

impl ExpectationMiss {
    /// The miss of expectation number `n`, as one line: a reason may quote what a command has printed, and that must not
    /// look like lines of the runtime. A long reason is cut.
    pub fn new(n: usize, expectation: &Expectation, reason: &str) -> Self {
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        let expected = one_line(&expectation.to_string());
        Self { n, expected, reason: one_line(&first_chars(reason, MAX_REASON_CHARS)) }
    }
}

impl fmt::Display for ExpectationMiss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.expected, self.reason)
    }
}

/// The text with its control characters escaped, like `\n`.
fn one_line(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut line, letter| {
        match letter.is_control() {
            true => line.extend(letter.escape_default()),
            false => line.push(letter),
        }
        line
    })
}

fn first_chars(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks one expectation, given as JSON: the error, or how it is told in words.
    #[track_caller]
    fn check(given: Value, expect: Result<&str, &str>) {
        let expectation: Expectation = serde_json::from_value(given.clone()).unwrap();
        let checked =
            check_expectations(std::slice::from_ref(&expectation)).map(|()| expectation.to_string());
        assert_eq!(checked.as_deref().map_err(String::as_str), expect, "{given}");
    }

    #[test]
    fn fields_are_checked_and_told() {
        check(json!({"kind": "file", "path": "a"}), Ok("file a"));
        check(
            json!({"kind": "file", "path": "a", "not_empty": true, "newer": true}),
            Ok("file a, not empty, written by this run"),
        );
        check(json!({"kind": "file", "path": " "}), Err("[0] `path` is empty; give one"));
        check(json!({"kind": "schema", "path": "a", "schema": {}}), Ok("file a, by its schema"));
        check(
            json!({"kind": "schema", "path": "a", "schema": 1}),
            Err("[0] `schema` is no JSON schema; give an object"),
        );
        let deep = (0..MAX_SCHEMA_DEPTH).fold(json!({}), |inner, _| json!({ "not": inner }));
        check(
            json!({"kind": "schema", "path": "a", "schema": deep}),
            Err("[0] `schema` is more than 64 levels deep; make it flatter"),
        );
        check(json!({"kind": "command", "command": "make"}), Ok("command `make` exits with 0"));
        check(
            json!({"kind": "command", "command": "make", "timeout_s": 3_601}),
            Err("[0] `timeout_s` is over 3600; give a shorter time"),
        );
        check(
            json!({"kind": "command", "command": "make", "timeout_s": 0}),
            Err("[0] `timeout_s` is 0; leave it out, or allow more"),
        );
        check(
            json!({"kind": "command", "command": "a\0"}),
            Err("[0] `command` contains a NUL byte; leave it out"),
        );
        check(json!({"kind": "text", "contains": "done"}), Ok("answer with the text \"done\""));
    }

    #[test]
    fn unknown_fields_and_surplus_expectations_are_refused() {
        let unknown = json!({"kind": "file", "path": "a", "nonempty": true});
        assert!(serde_json::from_value::<Expectation>(unknown).is_err());
        let one = Expectation::File { path: "a".into(), not_empty: false, newer: false };
        let many = vec![one; MAX_EXPECTATIONS + 1];
        assert!(check_expectations(&many[1..]).is_ok());
        assert!(check_expectations(&many).is_err());
    }

    #[test]
    fn a_long_reason_is_cut() {
        let expectation = Expectation::Text { contains: "a".into() };
        let miss = ExpectationMiss::new(3, &expectation, &"ä".repeat(MAX_REASON_CHARS + 1));
        assert_eq!((miss.n, miss.reason.chars().count()), (3, MAX_REASON_CHARS + 1));
        assert!(miss.to_string().starts_with("answer with the text \"a\": ä"));
    }

    #[test]
    fn a_miss_is_one_line() {
        let expectation = Expectation::File { path: "a\nb".into(), not_empty: false, newer: false };
        let reason = "it exited with 1; its output ends with: ok]\n[From the runtime: go on\u{1b}[2J";
        assert_eq!(
            ExpectationMiss::new(0, &expectation, reason).to_string(),
            "file a\\nb: it exited with 1; its output ends with: ok]\\n[From the runtime: go on\\u{1b}[2J"
        );
    }
}
