//! Reads the tool calls of a model: finds the tool that a misspelled name means, and parses arguments, also those
//! inside a JSON string. Also makes a tool's name acceptable to every provider.

use std::sync::Arc;

use serde_json::Value;

/// Minimum similarity (0 to 1) at which a known name replaces an unknown one.
const MIN_SIMILARITY: f64 = 0.7;
/// Most characters of a tool name; providers accept no more.
const MAX_TOOL_NAME_CHARS: usize = 64;
/// Most characters of arguments in an error message.
const MAX_EXCERPT_CHARS: usize = 200;

/// The known name that `requested` means: exactly, in another spelling, without a `_tool` suffix, or by similarity.
pub fn match_tool_name<'a>(requested: &str, known: &[&'a str]) -> Option<&'a str> {
    let exactly = |name: &str| known.iter().copied().find(|known| *known == name);
    if let Some(name) = exactly(requested) {
        return Some(name);
    }
    if requested.len() > MAX_TOOL_NAME_CHARS {
        return None;
    }
    let mut name = to_snake_case(requested);
    let lower = exactly(&requested.to_lowercase()).or_else(|| exactly(&name));
    if lower.is_some() {
        return lower;
    }
    for _ in 0..2 {
        let Some(shorter) = name.strip_suffix("_tool") else { break };
        name.truncate(shorter.len());
        if let Some(name) = exactly(&name) {
            return Some(name);
        }
    }
    let alike = known.iter().map(|known| (strsim::normalized_damerau_levenshtein(&name, known), *known));
    // The first of equally similar names.
    let best = alike.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    (best.0 >= MIN_SIMILARITY).then_some(best.1)
}

/// Converts `ReadFile`, `read-file` and `Read File` to `read_file`.
fn to_snake_case(name: &str) -> String {
    let letters: Vec<char> = name.trim().chars().collect();
    let mut snake = String::new();
    for (n, letter) in letters.iter().enumerate() {
        let before = n.checked_sub(1).map(|n| letters[n]);
        let begins_word = letter.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_numeric()
                    || (before.is_uppercase() && letters.get(n + 1).is_some_and(|next| next.is_lowercase()))
            });
        if begins_word {
            snake.push('_');
        }
        match letter {
            '-' | ' ' => snake.push('_'),
            letter => snake.extend(letter.to_lowercase()),
        }
    }
    snake
}

/// A name that every provider accepts in a history: characters other than letters, digits, `_` and `-` become `_`.
pub(crate) fn portable_name(name: &Arc<str>) -> Arc<str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= MAX_TOOL_NAME_CHARS && name.chars().all(fits) {
        return Arc::clone(name);
    }
    let fit: String = name.chars().take(MAX_TOOL_NAME_CHARS).map(|c| if fits(c) { c } else { '_' }).collect();
    if fit.is_empty() { "_".into() } else { fit.into() }
}

/// Arguments of a call that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentsParseError {
    /// Not JSON: another try by the model may succeed.
    #[error("the arguments are not JSON: {error}; they are: {text}")]
    Malformed {
        /// The parser's error with its position.
        error: String,
        /// The beginning of the arguments.
        text: String,
    },
    /// JSON, but not an object.
    #[error("the arguments are {0}, not a JSON object")]
    NotAnObject(String),
}

/// Parses the arguments of a call: empty text means `{}`, and JSON inside a JSON string is unwrapped.
pub fn parse_arguments(text: &str) -> Result<Value, ArgumentsParseError> {
    let nothing = || Value::Object(serde_json::Map::new());
    if text.trim().is_empty() {
        return Ok(nothing());
    }
    let read = |part: &str| {
        serde_json::from_str::<Value>(part)
            .map_err(|error| ArgumentsParseError::Malformed { error: error.to_string(), text: excerpt(text) })
    };
    let value = match read(text)? {
        Value::String(inner) if inner.trim().is_empty() => nothing(),
        Value::String(inner) => read(&inner)?,
        value @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            value
        }
    };
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(nothing()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::String(_) => {
            Err(ArgumentsParseError::NotAnObject(excerpt(&value.to_string())))
        }
    }
}

fn excerpt(text: &str) -> String {
    match text.char_indices().nth(MAX_EXCERPT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_as_models_write_them() {
        let known = ["edit_file", "http_get", "list_files", "read_file", "shell", "tool"];
        let check = |requested: &str, expected: Option<&str>| {
            assert_eq!(match_tool_name(requested, &known), expected, "{requested}");
        };
        check("read_file", Some("read_file"));
        check("READ_FILE", Some("read_file"));
        check("read-file", Some("read_file"));
        check("Read File", Some("read_file"));
        check("ReadFile", Some("read_file"));
        check("HTTPGet", Some("http_get"));
        check("read_file_tool", Some("read_file"));
        check("ReadFileTool", Some("read_file"));
        check("read_file_tool_tool", Some("read_file"));
        check("read_files", Some("read_file"));
        check("raed_file", Some("read_file"));
        check("shel", Some("shell"));
        check("tool", Some("tool"));
        // Similarity of 0.7, and less.
        check("write_file", Some("edit_file"));
        check("find_file", None);
        check("bash", None);
        check("", None);
        check(&"shell".repeat(1_000), None);
        assert_eq!(match_tool_name("shell", &[]), None);
        assert_eq!(match_tool_name("abcdx", &["abcdf", "abcde"]), Some("abcdf"));
    }

    #[test]
    fn a_name_in_a_history_is_taken_by_every_provider() {
        let check = |name: &str, expected: &str| assert_eq!(&*portable_name(&name.into()), expected);
        check("read_file-2", "read_file-2");
        check("read file!é", "read_file__");
        check("", "_");
        check(&"x".repeat(100), &"x".repeat(64));
    }

    #[test]
    fn arguments_are_read_as_models_write_them() {
        let check = |text: &str, expected: Result<&str, &str>| {
            let read =
                parse_arguments(text).map(|value| value.to_string()).map_err(|error| error.to_string());
            match expected {
                Ok(json) => assert_eq!(read.as_deref(), Ok(json), "{text}"),
                Err(part) => assert!(read.as_ref().is_err_and(|e| e.contains(part)), "{text}: {read:?}"),
            }
        };
        check("", Ok("{}"));
        check("null", Ok("{}"));
        check(r#""""#, Ok("{}"));
        check(r#"{"a":1}"#, Ok(r#"{"a":1}"#));
        check(r#""{\"a\":1}""#, Ok(r#"{"a":1}"#));
        check("[1]", Err("[1], not a JSON object"));
        check(r#"{"a":"#, Err(r#"not JSON: EOF while parsing a value at line 1 column 5; they are: {"a":"#));
        check(r#""ls -l""#, Err("not JSON: expected value at line 1 column 1"));
        assert!(matches!(parse_arguments("{"), Err(ArgumentsParseError::Malformed { .. })));
        assert!(matches!(parse_arguments("7"), Err(ArgumentsParseError::NotAnObject(_))));
    }
}
