//! The error of an invalid script, also made from an error of its JSON.

use serde_json::error::Category;

/// Why a script is refused: the place, the problem and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}; {remedy}")]
pub struct ScriptError {
    /// A path into the script, for example `scripts[0].steps[2].delay`.
    pub place: String,
    /// What is wrong there.
    pub problem: String,
    /// The remedy.
    pub remedy: String,
}

impl ScriptError {
    pub(super) fn new(
        place: impl Into<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { place: place.into(), problem: problem.into(), remedy: remedy.into() }
    }

    /// Converts a serde error. Its text has the problem and the expected value; the second half becomes the remedy.
    pub(super) fn of_json(place: &str, error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let text = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
        let place = format!("{place} (line {line}, column {column})");
        match error.classify() {
            Category::Io | Category::Syntax | Category::Eof => {
                Self::new(place, text, "the script must be one valid JSON object")
            }
            Category::Data => match text.split_once(", expected ") {
                Some((problem, expected)) => Self::new(place, problem, format!("expected {expected}")),
                None if text.starts_with("missing") => Self::new(place, text, "add it"),
                None => Self::new(place, text, "correct it as the script's schema says"),
            },
        }
    }
}
