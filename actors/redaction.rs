//! Redacts what comes from outside before it becomes a record or part of a view: answers and failures of models,
//! results of tools, messages of users. A redacted value is what the session records, sends and executes.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    model::{
        AssistantMessage, CallEnd, Expectation, Failure, HookAnswer, Message, MessageContent, ModelAnswer,
        OpaqueState,
    },
    port::TextRedactor,
};

/// Redacts a shared text. A text without a secret stays the same allocation.
pub(crate) fn redact_text(text: &mut Arc<str>, redactor: &dyn TextRedactor) {
    if let Some(redacted) = redactor.redacted(text) {
        *text = redacted.into();
    }
}

/// Redacts the result of a tool call.
pub(crate) fn redact_end(end: &mut CallEnd, redactor: &dyn TextRedactor) {
    let CallEnd { status: _, content, artifact: _, images: _, attachments: _, hooks: _ } = end;
    redact_text(content, redactor);
}

/// Redacts what hooks have answered, before it is recorded.
pub(crate) fn redact_hook_answer(answer: &mut HookAnswer, redactor: &dyn TextRedactor) {
    let HookAnswer { decisions, replacement } = answer;
    for reason in decisions.iter_mut().filter_map(|decision| decision.reason.as_mut()) {
        redact_text(reason, redactor);
    }
    if let Some(value) = replacement {
        redact_json(value, redactor);
    }
}

/// Redacts the message of a failed model call.
pub(crate) fn redact_failure(failure: &mut Failure, redactor: &dyn TextRedactor) {
    let Failure { class: _, message, request: _, usage: _, anomaly: _ } = failure;
    redact_string(message, redactor);
}

/// Redacts an answer of a model, before its calls are prepared.
pub(crate) fn redact_answer(answer: &mut ModelAnswer, redactor: &dyn TextRedactor) {
    let ModelAnswer { message, finish: _, usage: _ } = answer;
    redact_assistant(message, redactor);
}

/// Redacts the messages of an imported history.
pub(crate) fn redact_messages(messages: &mut [Message], redactor: &dyn TextRedactor) {
    for message in messages {
        match message {
            Message::System(text) => redact_text(text, redactor),
            Message::Assistant(message) => redact_assistant(Arc::make_mut(message), redactor),
            Message::User(content) | Message::Tool { call: _, name: _, content } => {
                redact_content(content, redactor);
            }
        }
    }
}

fn redact_content(content: &mut MessageContent, redactor: &dyn TextRedactor) {
    let MessageContent { text, images: _, note } = content;
    redact_text(text, redactor);
    if let Some(note) = note {
        redact_text(note, redactor);
    }
}

fn redact_assistant(message: &mut AssistantMessage, redactor: &dyn TextRedactor) {
    let AssistantMessage { text, reasoning, calls, opaque } = message;
    redact_string(text, redactor);
    redact_string(reasoning, redactor);
    for call in calls {
        redact_string(&mut call.id, redactor);
        redact_string(&mut call.name, redactor);
        redact_arguments(&mut call.arguments, redactor);
    }
    // A provider refuses state that was changed, and takes an answer without it.
    let has_secret = |opaque: &OpaqueState| opaque.parts().iter().any(|part| has_secret(part, redactor));
    if opaque.as_ref().is_some_and(|opaque| has_secret(opaque)) {
        *opaque = None;
    }
}

/// Redacts the expectations of a request.
pub(crate) fn redact_expectations(expects: &mut [Expectation], redactor: &dyn TextRedactor) {
    for expectation in expects {
        match expectation {
            Expectation::File { path: text, .. }
            | Expectation::Command { command: text, .. }
            | Expectation::Text { contains: text } => redact_string(text, redactor),
            Expectation::Schema { path, schema } => {
                redact_string(path, redactor);
                if has_secret(schema, redactor) {
                    redact_json(Arc::make_mut(schema), redactor);
                }
            }
        }
    }
}

pub(crate) fn redact_string(text: &mut String, redactor: &dyn TextRedactor) {
    if let Some(redacted) = redactor.redacted(text) {
        *text = redacted;
    }
}

/// Redacts the arguments of a call. Those that are JSON stay JSON, and are searched without their escapes too.
fn redact_arguments(arguments: &mut String, redactor: &dyn TextRedactor) {
    let redacted = redactor.redacted(arguments);
    if redacted.is_none() && !arguments.contains('\\') {
        return;
    }
    // Arguments that are no JSON, or nest too deeply, are no call: they are only recorded.
    let parsed = serde_json::from_str::<Value>(arguments);
    match (parsed, redacted) {
        (Ok(mut value), redacted) => {
            if redact_json(&mut value, redactor) || redacted.is_some() {
                *arguments = value.to_string();
                redact_string(arguments, redactor);
            }
        }
        (Err(_), Some(redacted)) => *arguments = redacted,
        (Err(_), None) => {}
    }
}

/// Redacts the texts, numbers and names of fields in a parsed value, whose depth the parser bounds. True if it changed.
fn redact_json(value: &mut Value, redactor: &dyn TextRedactor) -> bool {
    match value {
        Value::Null | Value::Bool(_) => false,
        Value::Number(number) => {
            let redacted = redactor.redacted(&number.to_string());
            let changed = redacted.is_some();
            redacted.into_iter().for_each(|text| *value = Value::String(text));
            changed
        }
        Value::String(text) => {
            let redacted = redactor.redacted(text);
            let changed = redacted.is_some();
            redacted.into_iter().for_each(|redacted| *text = redacted);
            changed
        }
        Value::Array(items) => {
            let mut changed = false;
            for item in items {
                changed |= redact_json(item, redactor);
            }
            changed
        }
        Value::Object(fields) => {
            let mut changed = false;
            for (_, field) in fields.iter_mut() {
                changed |= redact_json(field, redactor);
            }
            if fields.keys().any(|name| redactor.redacted(name).is_some()) {
                let renamed = std::mem::take(fields).into_iter();
                *fields =
                    renamed.map(|(name, field)| (redactor.redacted(&name).unwrap_or(name), field)).collect();
                changed = true;
            }
            changed
        }
    }
}

/// Whether a text in the value has a secret. The nesting of opaque state is bounded.
fn has_secret(value: &Value, redactor: &dyn TextRedactor) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => redactor.redacted(text).is_some(),
        Value::Array(items) => items.iter().any(|item| has_secret(item, redactor)),
        Value::Object(fields) => fields
            .iter()
            .any(|(name, field)| redactor.redacted(name).is_some() || has_secret(field, redactor)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        model::{AnswerOrigin, FailureClass, FinishReason, ToolCall},
        port::RedactedStream,
    };

    /// Knows one secret, which also is a number.
    #[derive(Debug)]
    struct OneSecret;

    const SECRET: &str = "4711047110";

    impl TextRedactor for OneSecret {
        fn redacted(&self, text: &str) -> Option<String> {
            text.contains(SECRET).then(|| text.replace(SECRET, "[redacted]"))
        }

        fn stream(&self) -> Box<dyn RedactedStream> {
            unreachable!("no text here is a stream")
        }
    }

    #[test]
    fn arguments_stay_json() {
        let check = |arguments: &str, expect: &str| {
            let mut redacted = arguments.to_owned();
            redact_arguments(&mut redacted, &OneSecret);
            assert_eq!(redacted, expect, "{arguments}");
        };
        check(r#"{"a": "b"}"#, r#"{"a": "b"}"#);
        check(r#"{"a": "line\n"}"#, r#"{"a": "line\n"}"#);
        check(r#"{"a": "x 4711047110"}"#, r#"{"a":"x [redacted]"}"#);
        check(r#"{"a": "x \u00347110\u00347110"}"#, r#"{"a":"x [redacted]"}"#);
        check(r#"{"a": [4711047110, 1]}"#, r#"{"a":["[redacted]",1]}"#);
        check(r#"{"4711047110": {"b": null}}"#, r#"{"[redacted]":{"b":null}}"#);
        check("cut \"4711047110", "cut \"[redacted]");
        check("cut \\u0034", "cut \\u0034");
        check("4711047110", "\"[redacted]\"");
    }

    #[test]
    fn each_text_of_an_answer_is_redacted_and_altered_state_is_dropped() {
        let origin = Arc::new(AnswerOrigin { provider: "p".into(), wire: "w".into(), model: "m".into() });
        let state = |part: Value| Some(Arc::new(OpaqueState::new(Arc::clone(&origin), vec![part]).unwrap()));
        let check = |part: Value, keeps_state: bool| {
            let text = format!("say {SECRET}");
            let call = ToolCall {
                id: text.clone(),
                name: text.clone(),
                arguments: format!("{{\"a\":\"{SECRET}\"}}"),
            };
            let message = AssistantMessage {
                text: text.clone(),
                reasoning: text,
                calls: vec![call],
                opaque: state(part),
            };
            let mut answer = ModelAnswer { message, finish: FinishReason::Stop, usage: None };
            redact_answer(&mut answer, &OneSecret);
            assert_eq!(answer.message.opaque.is_some(), keeps_state);
            let written = serde_json::to_string(&answer.message).unwrap();
            assert_eq!((written.contains(SECRET), written.matches("[redacted]").count()), (false, 5));
        };
        check(json!({ "signature": "abc" }), true);
        check(json!({ "parts": [{ "text": format!("x{SECRET}") }] }), false);
        check(json!({ SECRET: 1 }), false);
    }

    #[test]
    fn results_failures_and_messages_are_redacted() {
        let mut end = CallEnd::ok(format!("a {SECRET}"));
        redact_end(&mut end, &OneSecret);
        assert_eq!(end, CallEnd::ok("a [redacted]"));
        let mut failure = Failure::new(FailureClass::Auth, format!("bad key {SECRET}"));
        redact_failure(&mut failure, &OneSecret);
        assert_eq!(failure.message, "bad key [redacted]");
        let assistant = AssistantMessage { text: SECRET.to_owned(), ..AssistantMessage::default() };
        let noted = MessageContent { note: Some(SECRET.into()), ..SECRET.into() };
        let mut messages = [
            Message::System(SECRET.into()),
            Message::User(noted),
            Message::Assistant(Arc::new(assistant)),
            Message::Tool { call: "c".into(), name: "n".into(), content: SECRET.into() },
        ];
        redact_messages(&mut messages, &OneSecret);
        assert!(!format!("{messages:?}").contains(SECRET), "{messages:?}");
        let same: Arc<str> = "plain".into();
        let mut text = Arc::clone(&same);
        redact_text(&mut text, &OneSecret);
        assert!(Arc::ptr_eq(&same, &text));
    }
}
