//! The tool `message`, with which a model sends a text to a configured target: its definition, and the arguments of a
//! call. Pure; `turn/outbox.rs` writes the message.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::model::{BadArguments, ToolSpec};

/// The name of the tool with which a model sends a message.
pub const MESSAGE: &str = "message";

/// Most bytes of a text.
pub const MAX_TEXT_BYTES: usize = 32 * 1024;

/// Bounds of the files that go with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachmentLimits {
    /// Most files.
    pub count: usize,
    /// Most bytes of one.
    pub bytes: u64,
    /// Most bytes of all together.
    pub total_bytes: u64,
}

const DESCRIPTION: &str = "Sends a text to a target that the operator has set up, such as a webhook or a mailbox. It is \
                           sent at once and cannot be taken back: send what the task asks to be sent, once. Your answer \
                           needs no message. Returns {id, target, state}; the text is delivered in the background.";

/// A parsed call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageRequest {
    /// The name of a target.
    pub target: String,
    /// The text, not empty.
    pub text: String,
    /// Paths of the files that go with it.
    #[serde(default)]
    pub attachments: Vec<String>,
}

/// Whether the call with these arguments takes files along. Then it is a task, which captures them before the message is
/// written.
pub fn takes_files(arguments: &str) -> bool {
    let parsed = super::parse_arguments(arguments).ok();
    parsed
        .and_then(|arguments| parse_message(&arguments).ok())
        .is_some_and(|call| !call.attachments.is_empty())
}

/// A text as it is compared with another one, to deliver none twice: white space does not count.
pub fn comparable_text(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The definition of the tool for the model; `targets` are names with what the operator says about them.
pub fn tool_spec(targets: &[(String, String)], files: Option<&AttachmentLimits>) -> ToolSpec {
    let names: Vec<&str> = targets.iter().map(|(name, _)| name.as_str()).collect();
    let described = targets.iter().filter(|(_, text)| !text.is_empty());
    let described: Vec<String> = described.map(|(name, text)| format!("`{name}`: {text}")).collect();
    let about = if described.is_empty() { String::new() } else { format!(" {}.", described.join("; ")) };
    let mut parameters = json!({
        "type": "object", "additionalProperties": false, "required": ["target", "text"],
        "properties": {
            "target": {"enum": names, "description": format!("Where it goes.{about}")},
            "text": {
                "type": "string", "maxLength": MAX_TEXT_BYTES,
                "description": "The whole text, which stands for itself: the reader sees nothing else."
            }
        }
    });
    if let Some(AttachmentLimits { count, bytes, total_bytes }) = files {
        parameters["properties"]["attachments"] = json!({
            "type": "array", "maxItems": count, "items": {"type": "string"},
            "description": format!(
                "Paths of files of the workspace that go with it, as they are at this moment; at most {bytes} bytes each \
                 and {total_bytes} together."
            )
        });
    }
    ToolSpec { name: MESSAGE.into(), description: DESCRIPTION.into(), parameters }
}

/// Parses and checks the arguments, except for the name of the target.
pub fn parse_message(arguments: &Value) -> Result<MessageRequest, BadArguments> {
    let parsed = MessageRequest::deserialize(arguments)
        .map_err(|error| BadArguments::new(None, error.to_string(), "send {target, text}"))?;
    let bytes = parsed.text.len();
    if parsed.text.trim().is_empty() {
        return Err(BadArguments::new(Some("text"), "it is empty", "say what is to be sent"));
    }
    if bytes > MAX_TEXT_BYTES {
        let error = format!("it has {bytes} bytes, over the limit of {MAX_TEXT_BYTES}");
        return Err(BadArguments::new(Some("text"), error, "say it shorter, or name the file that has it"));
    }
    Ok(parsed)
}

/// Parses and checks the arguments of a call: its target must be one of these, and it may have so many files.
pub fn check_message(
    arguments: &Value,
    targets: &[(String, String)],
    files: Option<&AttachmentLimits>,
) -> Result<MessageRequest, BadArguments> {
    let request = parse_message(arguments)?;
    let (target, count) = (&request.target, request.attachments.len());
    let max = files.map_or(0, |files| files.count);
    if count > max {
        let error = format!("it has {count} files, over the limit of {max}");
        return Err(BadArguments::new(
            Some("attachments"),
            error,
            "send fewer, or put them into one archive",
        ));
    }
    if targets.iter().any(|(name, _)| name == target) {
        return Ok(request);
    }
    let names: Vec<&str> = targets.iter().map(|(name, _)| name.as_str()).collect();
    let error = format!("there is no target `{target}`");
    Err(BadArguments::new(Some("target"), error, format!("the targets are: {}", names.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(arguments: Value, expected: Result<(), &str>) {
        let targets = [("ops".to_owned(), "the people on call".to_owned())];
        let files = AttachmentLimits { count: 2, bytes: 10, total_bytes: 20 };
        let checked = check_message(&arguments, &targets, Some(&files)).map(drop);
        let checked = checked.map_err(|bad| bad.field.unwrap_or_default());
        assert_eq!(checked, expected.map_err(Into::into), "{arguments}");
    }

    #[test]
    fn a_message_has_a_known_target_and_a_short_text() {
        check(json!({"target": "ops", "text": "x".repeat(MAX_TEXT_BYTES)}), Ok(()));
        check(json!({"target": "ops", "text": "x".repeat(MAX_TEXT_BYTES + 1)}), Err("text"));
        check(json!({"target": "ops", "text": " "}), Err("text"));
        check(json!({"target": "dev", "text": "x"}), Err("target"));
        check(json!({"target": "ops"}), Err(""));
        check(json!({"target": "ops", "text": "x", "attachments": []}), Ok(()));
        check(json!({"target": "ops", "text": "x", "attachments": ["a", "b"]}), Ok(()));
        check(json!({"target": "ops", "text": "x", "attachments": ["a", "b", "c"]}), Err("attachments"));
        check(json!({"target": "ops", "text": "x", "files": []}), Err(""));
        let one = json!({"target": "ops", "text": "x", "attachments": ["a"]});
        let targets = [("ops".to_owned(), String::new())];
        assert!(check_message(&one, &targets, None).is_err(), "without limits no file goes");
    }

    #[test]
    fn the_model_reads_what_the_targets_are() {
        let spec = tool_spec(&[("a".into(), String::new()), ("b".into(), "the team".into())], None);
        assert_eq!(spec.parameters["properties"].get("attachments"), None);
        assert_eq!(spec.parameters["properties"]["target"]["enum"], json!(["a", "b"]));
        assert_eq!(spec.parameters["properties"]["target"]["description"], "Where it goes. `b`: the team.");
    }
}
