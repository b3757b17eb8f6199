//! The tool `clarify`, with which a model asks a person: its definition, and the arguments of a call. Pure;
//! `turn/approval.rs` parks the call until the answer.

use std::fmt;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::model::{BadArguments, ToolSpec};

/// The name of the tool with which a model asks a person.
pub const CLARIFY: &str = "clarify";

/// Most characters of a question.
const MAX_QUESTION_CHARS: usize = 4_000;
/// Most choices.
const MAX_CHOICES: usize = 8;
/// Most characters of a choice.
const MAX_CHOICE_CHARS: usize = 500;

const DESCRIPTION: &str = "Asks the person who gave you the task, and waits for the answer, which may take hours. Ask only \
                           if the task cannot be done well without the answer and nothing you can look at has it; ask one \
                           thing at a time. Returns the answer as text, or that there is no answer.";

/// A question of a model to a person.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClarifyQuestion {
    question: String,
    #[serde(default)]
    choices: Vec<String>,
}

/// The question with its choices, as text for a person.
impl fmt::Display for ClarifyQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.question)?;
        self.choices.iter().zip(1..).try_for_each(|(choice, n)| write!(f, "\n{n}. {choice}"))
    }
}

/// The definition of the tool for the model.
pub fn tool_spec() -> ToolSpec {
    let parameters = json!({
        "type": "object", "additionalProperties": false, "required": ["question"],
        "properties": {
            "question": {
                "type": "string", "maxLength": MAX_QUESTION_CHARS,
                "description": "The question, with all that the person has to know to answer it."
            },
            "choices": {
                "type": "array", "maxItems": MAX_CHOICES, "items": {"type": "string", "maxLength": MAX_CHOICE_CHARS},
                "description": "Answers to choose from; the person may answer otherwise."
            }
        }
    });
    ToolSpec { name: CLARIFY.into(), description: DESCRIPTION.into(), parameters }
}

/// Parses and checks the arguments.
pub fn parse_clarify(arguments: &Value) -> Result<ClarifyQuestion, BadArguments> {
    let parsed = ClarifyQuestion::deserialize(arguments)
        .map_err(|error| BadArguments::new(None, error.to_string(), "send {question, choices}"))?;
    let too_long = |text: &str, limit: usize| text.chars().nth(limit).is_some();
    if parsed.question.trim().is_empty() || too_long(&parsed.question, MAX_QUESTION_CHARS) {
        let error = format!("the question has to have 1 to {MAX_QUESTION_CHARS} characters");
        return Err(BadArguments::new(Some("question"), error, "ask one short question"));
    }
    if parsed.choices.len() > MAX_CHOICES {
        let error =
            format!("there are {} choices, and at most {MAX_CHOICES} are shown", parsed.choices.len());
        return Err(BadArguments::new(Some("choices"), error, "leave the least likely ones out"));
    }
    let is_bad = |choice: &String| choice.trim().is_empty() || too_long(choice, MAX_CHOICE_CHARS);
    match parsed.choices.iter().position(is_bad) {
        Some(n) => {
            let error = format!("a choice has to have 1 to {MAX_CHOICE_CHARS} characters");
            Err(BadArguments::new(Some(&format!("choices[{n}]")), error, "write it shorter, or leave it out"))
        }
        None => Ok(parsed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(arguments: Value, expected: Result<&str, &str>) {
        let parsed = parse_clarify(&arguments);
        let field = |bad: BadArguments| bad.field.unwrap_or_default();
        let parsed = parsed.map(|question| question.to_string()).map_err(field);
        assert_eq!(parsed, expected.map(Into::into).map_err(Into::into), "{arguments}");
    }

    #[test]
    fn questions_are_short_and_choices_few() {
        check(json!({"question": "Which?"}), Ok("Which?"));
        check(json!({"question": "Which?", "choices": ["a", "b"]}), Ok("Which?\n1. a\n2. b"));
        check(json!({"question": " "}), Err("question"));
        check(json!({"question": "x".repeat(4_001)}), Err("question"));
        check(json!({"question": "x".repeat(4_000)}), Ok(&"x".repeat(4_000)));
        check(json!({"question": "Which?", "choices": ["a", ""]}), Err("choices[1]"));
        check(json!({"question": "Which?", "choices": vec!["a"; 9]}), Err("choices"));
        check(json!({"question": "Which?", "chioces": []}), Err(""));
        check(json!({}), Err(""));
    }
}
