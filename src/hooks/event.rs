//! The JSON that hooks get which decide.

use hermod_actors::port::{HookQuestion, HookSubject};
use serde_json::{Map, Value, json};

/// The question as a hook gets it. `replacement` is what an earlier hook has put in place of the arguments or the result.
pub(super) fn question_json(question: &HookQuestion, hook: &str, replacement: Option<&Value>) -> Value {
    let HookQuestion { point, session, id, spec, subject } = question;
    let mut event = Map::new();
    event.insert("id".to_owned(), format!("{}/{}/{}", id.call, id.attempt, point.name()).into());
    event.insert("name".to_owned(), point.name().into());
    event.insert("hook".to_owned(), hook.into());
    event.insert("session".to_owned(), session.to_string().into());
    event.insert("run".to_owned(), id.call.run.to_string().into());
    event.insert("call".to_owned(), id.call.to_string().into());
    event.insert("attempt".to_owned(), id.attempt.into());
    event.insert("agent".to_owned(), spec.agent.to_string().into());
    event.insert("workspace".to_owned(), spec.workspace.clone().into());
    let fields = match subject {
        HookSubject::Call { tool, arguments } => {
            json!({ "tool": tool, "arguments": replacement.unwrap_or(arguments) })
        }
        HookSubject::Result { tool, arguments, status, content } => {
            let arguments = serde_json::from_str::<Value>(arguments);
            let arguments = arguments.unwrap_or_else(|error| error.to_string().into());
            let result = replacement.cloned().unwrap_or_else(|| Value::from(&**content));
            json!({ "tool": tool, "arguments": arguments, "status": status.name(), "result": result })
        }
        HookSubject::Run { input } => {
            let change = |field: &str| replacement.and_then(|change| change.get(field)).cloned();
            json!({ "input": change("input").unwrap_or_else(|| Value::from(&**input)), "context": change("context") })
        }
        HookSubject::ModelCall { model, bytes, max_tokens } => {
            json!({ "model": model.to_string(), "bytes": bytes, "max_tokens": max_tokens })
        }
    };
    if let Value::Object(fields) = fields {
        event.extend(fields);
    }
    Value::Object(event)
}
