//! What a reply knows of tool calls: their summaries, the last error, and the texts that the message tool has sent.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde_json::Value;

use super::reply::{ToolSummary, Verbosity};
use crate::{
    model::{CallAdmitted, CallEnded, CallId, CallStatus, ModelAnswered},
    policy::{
        message::{MAX_TEXT_BYTES, MESSAGE, comparable_text, parse_message},
        parse_arguments,
    },
};

/// Most characters of the arguments in a summary.
const MAX_ARGUMENT_CHARS: usize = 200;
/// Most characters of an output in a summary, and of an error.
const MAX_OUTPUT_CHARS: usize = 2_000;
const MAX_ERROR_CHARS: usize = 500;

/// Most texts that are remembered, the last ones.
const MAX_SENT: usize = 64;

/// The tool calls of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct ReplyTools {
    /// The calls of the present answer without a result.
    open: BTreeMap<CallId, OpenCall>,
    /// The last failed call, unless a later call of its tool has succeeded.
    error: Option<ToolError>,
    pub(super) sent: SentTexts,
}

#[derive(Debug, Clone)]
struct OpenCall {
    tool: Arc<str>,
    arguments: String,
    /// The text that the call sends.
    message: Option<String>,
}

impl OpenCall {
    fn new(tool: Arc<str>, arguments: &str) -> Self {
        Self { tool, arguments: excerpt(arguments, MAX_ARGUMENT_CHARS), message: message_text(arguments) }
    }
}

#[derive(Debug, Clone)]
struct ToolError {
    tool: Arc<str>,
    text: String,
}

impl ReplyTools {
    /// Takes the calls of an answer.
    pub(super) fn on_answer(&mut self, answered: &ModelAnswered) {
        self.open.clear();
        for (call, n) in answered.message.calls.iter().zip(1..) {
            let open = OpenCall::new(call.name.as_str().into(), &call.arguments);
            self.open.insert(CallId { n, ..answered.call }, open);
        }
    }

    /// Takes the registered name of a call's tool, and the arguments that hooks have put in place of the model's.
    pub(super) fn on_admitted(&mut self, admitted: &CallAdmitted) {
        let Some(open) = self.open.get_mut(&admitted.call) else { return };
        let replaced = admitted.hooks.as_ref().and_then(|hooks| hooks.arguments.as_ref());
        match replaced {
            Some(arguments) => *open = OpenCall::new(Arc::clone(&admitted.tool), arguments),
            None => open.tool = Arc::clone(&admitted.tool),
        }
    }

    /// Takes the end of a call; returns its summary, if one is asked for.
    pub(super) fn on_ended(&mut self, ended: &CallEnded, verbose: Verbosity) -> Option<ToolSummary> {
        let OpenCall { tool, arguments, message } = self.open.remove(&ended.call)?;
        let (status, content) = (ended.end.status, &ended.end.content);
        match status {
            CallStatus::Ok => {
                self.error = self.error.take().filter(|error| error.tool != tool);
                if &*tool == MESSAGE {
                    self.sent.push(message.as_deref().unwrap_or_default());
                }
            }
            CallStatus::Error => {
                let text = format!("{tool}: {}", excerpt(&error_text(content), MAX_ERROR_CHARS));
                self.error = Some(ToolError { tool: Arc::clone(&tool), text });
            }
            CallStatus::Stopped | CallStatus::NotStarted | CallStatus::InDoubt => {}
        }
        let line = format!("{tool} {arguments}: {}", status.name().replace('_', " "));
        let text = match verbose {
            Verbosity::Off => return None,
            Verbosity::On => line,
            Verbosity::Full => format!("{line}\n{}", excerpt(content, MAX_OUTPUT_CHARS)),
        };
        Some(ToolSummary { call: ended.call, tool: tool.to_string(), status, text })
    }

    /// The error to deliver when there is nothing else: none if the message tool has spoken.
    pub(super) fn error(&self) -> Option<&str> {
        let error = self.error.as_ref().filter(|_| !self.sent.has_spoken);
        error.map(|error| error.text.as_str())
    }
}

/// The texts that the message tool has sent.
#[derive(Debug, Clone, Default)]
pub(super) struct SentTexts {
    texts: VecDeque<String>,
    has_spoken: bool,
}

impl SentTexts {
    fn push(&mut self, text: &str) {
        self.has_spoken = true;
        let text = comparable_text(text);
        if text.is_empty() || text.len() > MAX_TEXT_BYTES {
            return;
        }
        if self.texts.len() >= MAX_SENT {
            self.texts.pop_front();
        }
        self.texts.push_back(text);
    }

    /// Whether this text was sent. White space does not count.
    pub(super) fn has(&self, text: &str) -> bool {
        !self.texts.is_empty() && self.texts.contains(&comparable_text(text))
    }

    /// Whether a text that begins like this may be one that was sent.
    pub(super) fn may_become_one(&self, text: &str) -> bool {
        let longest = self.texts.iter().map(String::len).max().unwrap_or(0);
        // White space without an end is held no longer.
        if longest == 0 || text.len() > 2 * longest {
            return false;
        }
        let text = comparable_text(text);
        self.texts.iter().any(|sent| sent.starts_with(&text))
    }
}

fn message_text(arguments: &str) -> Option<String> {
    let arguments = parse_arguments(arguments).ok()?;
    parse_message(&arguments).ok().map(|message| message.text)
}

/// The error in a result of the form `{error, …}`, else the result.
fn error_text(content: &str) -> String {
    let error = serde_json::from_str::<Value>(content).ok();
    let error = error.as_ref().and_then(|content| content.get("error")?.as_str());
    error.unwrap_or(content).to_owned()
}

/// The beginning of a text.
fn excerpt(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sent_text_is_known_whatever_its_white_space() {
        let mut sent = SentTexts::default();
        assert!(!sent.has("") && !sent.may_become_one(""));
        sent.push("Hello  there,\nfriend");
        assert!(sent.has(" Hello there, friend\n") && !sent.has("Hello there") && !sent.has(""));
        for (text, expect) in
            [("", true), ("Hel", true), ("Hello \n", true), ("Hello you", false), ("hello", false)]
        {
            assert_eq!(sent.may_become_one(text), expect, "{text:?}");
        }
        assert!(!sent.may_become_one(&" ".repeat(50)));
    }

    #[test]
    fn an_error_is_told_by_its_text() {
        assert_eq!(error_text(r#"{"error":"no such file","hint":"look"}"#), "no such file");
        assert_eq!(error_text("exit 1"), "exit 1");
        assert_eq!(excerpt("äöü", 2), "äö…");
    }
}
