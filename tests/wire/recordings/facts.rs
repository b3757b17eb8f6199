//! What was decoded, as facts that can be compared with what the SDKs say.

use std::collections::BTreeMap;

use hermod_actors::model::{Failure, FailureClass, ModelAnswer, ToolCall};
use serde_json::{Value, json};

/// Facts by their names.
pub(crate) type Facts = BTreeMap<String, Value>;

/// The facts of a result; `arguments` says how those of a call are compared.
pub(crate) fn of(result: &Result<ModelAnswer, Failure>, arguments: fn(&str) -> Value) -> Facts {
    match result {
        Ok(answer) => of_answer(answer, arguments),
        Err(failure) => of_failure(&failure.class),
    }
}

pub(crate) fn facts<const N: usize>(facts: [(&str, Value); N]) -> Facts {
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A call as it is compared.
pub(crate) fn call(id: &str, name: &str, arguments: Value) -> Value {
    json!({ "id": id, "name": name, "arguments": arguments })
}

/// Arguments as they are written.
pub(crate) fn as_text(arguments: &str) -> Value {
    arguments.into()
}

/// Arguments by what they say, not by how they are written; text if they are no JSON.
pub(crate) fn as_json(arguments: &str) -> Value {
    serde_json::from_str(arguments).unwrap_or_else(|_| arguments.into())
}

fn of_answer(answer: &ModelAnswer, arguments: fn(&str) -> Value) -> Facts {
    let usage = answer.usage.map(|usage| {
        json!({
            "input": usage.input_tokens, "output": usage.output_tokens,
            "cached": usage.cached_tokens, "written": usage.cache_write_tokens,
        })
    });
    let of_call = |call: &ToolCall| self::call(&call.id, &call.name, arguments(&call.arguments));
    facts([
        ("outcome", json!("answer")),
        ("text", json!(answer.message.text)),
        ("reasoning", json!(answer.message.reasoning)),
        ("calls", answer.message.calls.iter().map(of_call).collect()),
        ("finish", json!(answer.finish)),
        ("usage", json!(usage)),
    ])
}

fn of_failure(class: &FailureClass) -> Facts {
    let mut of = facts([("outcome", json!("failure")), ("retry", json!(helps_to_retry(class)))]);
    if let FailureClass::RateLimited { retry_after_ms: Some(ms), .. } = class {
        of.insert("retry_after_ms".to_owned(), json!(ms));
    }
    of
}

fn helps_to_retry(class: &FailureClass) -> bool {
    match class {
        FailureClass::RateLimited { .. }
        | FailureClass::Overloaded
        | FailureClass::Server
        | FailureClass::Timeout { .. }
        | FailureClass::Network
        | FailureClass::IncompleteStream
        | FailureClass::Lost
        | FailureClass::NotSent
        | FailureClass::Interrupted => true,
        FailureClass::NotAnApi
        | FailureClass::Auth
        | FailureClass::QuotaExhausted { .. }
        | FailureClass::ContextTooLong { .. }
        | FailureClass::OutputCap { .. }
        | FailureClass::InvalidRequest
        | FailureClass::ContentRefused
        | FailureClass::ModelNotFound
        | FailureClass::Cancelled => false,
    }
}
