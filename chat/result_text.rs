//! What the result of a tool call says to a person, with its middle left out if it is long.

use serde::Deserialize;
use serde_json::Value;

use crate::{command_end::CommandEnd, event::CallOutcome};

/// Bytes that are kept of the beginning and of the end of an output.
pub(crate) const KEPT_BYTES: (usize, usize) = (8 << 10, 24 << 10);

/// The output of a command: what it printed, its errors last.
pub(crate) fn command_output(command: &CommandEnd) -> String {
    let CommandEnd { stdout, stderr, .. } = command;
    if stderr.is_empty() {
        return bounded(stdout);
    }
    let separator = if stdout.is_empty() || stdout.ends_with('\n') { "" } else { "\n" };
    bounded(&format!("{stdout}{separator}{stderr}"))
}

/// The text of any other result: of a subagent its answer, of an error its texts, of others the whole.
pub(crate) fn result_text(tool: &str, content: &str, outcome: CallOutcome) -> String {
    let error = if outcome == CallOutcome::Ok { None } else { error_text(content) };
    let answer = || if tool == "delegate_task" { answer_text(content) } else { None };
    bounded(error.or_else(answer).as_deref().unwrap_or(content))
}

fn answer_text(content: &str) -> Option<String> {
    let result: Value = serde_json::from_str(content).ok()?;
    result.get("answer").and_then(Value::as_str).map(str::to_owned)
}

/// The texts of an error: what is wrong with which field, and what to do about it.
fn error_text(content: &str) -> Option<String> {
    /// As [`hermod_core::model::CallEnd::error`] writes it. Another object is shown as it is.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct CallError {
        error: String,
        field: Option<String>,
        hint: String,
    }
    let CallError { error, field, hint } = serde_json::from_str(content).ok()?;
    let field = field.map(|field| format!("{field}: ")).unwrap_or_default();
    Some(format!("{field}{error}\n{hint}"))
}

/// The text with its middle left out if it is long.
fn bounded(text: &str) -> String {
    let (head, tail) = KEPT_BYTES;
    if text.len() <= head + tail {
        return text.to_owned();
    }
    let (mut first, mut last) = (head, text.len() - tail);
    while !text.is_char_boundary(first) {
        first -= 1;
    }
    while !text.is_char_boundary(last) {
        last += 1;
    }
    format!("{}\n[{} bytes left out]\n{}", &text[..first], last - first, &text[last..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_shown_as_text() {
        let check = |tool, content, outcome, expect| assert_eq!(result_text(tool, content, outcome), expect);
        let answer = r#"{"answer":"Done.","run":"01"}"#;
        check("delegate_task", answer, CallOutcome::Ok, "Done.");
        check("delegate_task", answer, CallOutcome::Failed, "Done.");
        check("read_file", answer, CallOutcome::Ok, answer);
        let error = r#"{"error":"not started","hint":"ask again"}"#;
        check("read_file", error, CallOutcome::NotStarted, "not started\nask again");
        check("shell", error, CallOutcome::Stopped, "not started\nask again");
        check("delegate_task", error, CallOutcome::Failed, "not started\nask again");
        // What a file or a server says is no error of the call.
        check("read_file", error, CallOutcome::Ok, error);
        let of_field = r#"{"error":"it is empty","field":"path","hint":"name a file"}"#;
        check("read_file", of_field, CallOutcome::Failed, "path: it is empty\nname a file");
        let other = r#"{"error":"no","hint":"x","code":7}"#;
        check("server.tool", other, CallOutcome::Failed, other);
        check("server.tool", "no", CallOutcome::Failed, "no");
    }

    #[test]
    fn errors_of_a_command_stand_last() {
        let check = |stdout: &str, stderr: &str, expect: &str| {
            let content = serde_json::json!({
                "exit_code": 1, "signal": null, "timed_out": false, "stdout": stdout, "stderr": stderr
            });
            let command = CommandEnd::parse("shell", &content.to_string()).expect("a command's result");
            assert_eq!(command_output(&command), expect);
        };
        check("a", "", "a");
        check("a", "b", "a\nb");
        check("a\n", "b", "a\nb");
        check("", "b", "b");
    }

    #[test]
    fn the_middle_of_a_long_text_is_left_out() {
        let (head, tail) = KEPT_BYTES;
        assert_eq!(bounded(&"x".repeat(head + tail)).len(), head + tail);
        let cut = bounded(&format!("é{}", "é".repeat(head + tail)));
        assert!(cut.contains("bytes left out]"), "{cut}");
        assert!(cut.starts_with('é') && cut.ends_with('é'), "{cut}");
        assert!(cut.len() < head + tail + 40, "{}", cut.len());
    }
}
