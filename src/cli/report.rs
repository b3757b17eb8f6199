//! What came of things, as JSON for programs.

use hermod_actors::{
    RunResult,
    model::{Outcome, RunId, RunRow, SessionId, SessionRow, Timestamp},
};
use serde_json::{Map, Value, json};

use crate::{
    clock::rfc3339,
    control::{Node, RunDetail},
};

/// `{run, session, outcome, cause, …of the cause, answer, iterations, usage, started_at, ended_at}`; a text that is no
/// answer is `partial`.
pub(crate) fn result(result: &RunResult) -> Value {
    let mut object = identified(Some((result.run, result.session)));
    object.insert("outcome".into(), Value::Null);
    object.insert("cause".into(), Value::Null);
    object.extend(fields(&result.ended));
    let completed = result.ended.outcome == Outcome::Completed;
    object.insert("answer".into(), result.text.as_deref().filter(|_| completed).into());
    if let Some(text) = result.text.as_deref().filter(|_| !completed) {
        object.insert("partial".into(), text.into());
    }
    object.insert("iterations".into(), result.iterations.into());
    object.insert("usage".into(), json!(result.usage));
    object.insert("started_at".into(), time(result.started_at));
    object.insert("ended_at".into(), time(result.ended_at));
    Value::Object(object)
}

/// The same object for a run without an outcome, or for none: `error` says why.
pub(crate) fn no_result(run: Option<(RunId, SessionId)>, error: &str) -> Value {
    let mut object = identified(run);
    for field in ["outcome", "cause", "answer", "iterations", "usage", "started_at", "ended_at"] {
        object.insert(field.into(), Value::Null);
    }
    object.insert("error".into(), error.into());
    Value::Object(object)
}

fn identified(run: Option<(RunId, SessionId)>) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("run".into(), run.map(|(run, _)| run.to_string()).into());
    object.insert("session".into(), run.map(|(_, session)| session.to_string()).into());
    object
}

/// `{id, session, state, outcome, cause, …of the cause, accepted_at, started_at, ended_at, iterations, usage}`.
pub(crate) fn run(row: &RunRow) -> Value {
    let mut object = Map::new();
    object.insert("id".into(), row.id.to_string().into());
    object.insert("session".into(), row.session.to_string().into());
    object.insert("state".into(), json!(row.state));
    object.insert("outcome".into(), Value::Null);
    object.insert("cause".into(), Value::Null);
    object.extend(row.ended.as_ref().map(fields).unwrap_or_default());
    object.insert("accepted_at".into(), rfc3339(row.accepted_at).into());
    object.insert("started_at".into(), time(row.started_at));
    object.insert("ended_at".into(), time(row.ended_at));
    object.insert("iterations".into(), row.iterations.into());
    object.insert("usage".into(), json!(row.usage));
    Value::Object(object)
}

/// `{id, key, opened_at}`.
pub(crate) fn session(row: &SessionRow) -> Value {
    json!({ "id": row.id.to_string(), "key": row.key, "opened_at": rfc3339(row.opened_at) })
}

/// The run with what it was given and has said: `{…of the run, input, said, spec}`.
pub(crate) fn detail(detail: &RunDetail) -> Value {
    let mut object = as_object(run(&detail.row));
    object.insert("input".into(), detail.input.as_str().into());
    object.insert("said".into(), detail.said.as_deref().into());
    object.insert("spec".into(), json!(detail.spec));
    Value::Object(object)
}

/// The run with what it has started: `{…of the run, children}`, and so on downwards.
pub(crate) fn node(node: &Node) -> Value {
    let mut object = as_object(run(&node.run));
    object.insert("children".into(), node.children.iter().map(self::node).collect());
    Value::Object(object)
}

fn time(at: Option<Timestamp>) -> Value {
    at.map(rfc3339).into()
}

fn fields(ended: &hermod_actors::model::Ended) -> Map<String, Value> {
    as_object(json!(ended))
}

fn as_object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{Cause, Ended, Failure as CallFailure, FailureClass, Usage};

    use super::*;

    fn sample(ended: Ended) -> RunResult {
        RunResult {
            run: RunId::from_bits(1),
            session: SessionId::from_bits(2),
            ended,
            text: Some("said".into()),
            iterations: 3,
            usage: Usage { input_tokens: 5, output_tokens: 6, ..Usage::default() },
            accepted_at: Timestamp(0),
            started_at: Some(Timestamp(0)),
            ended_at: Some(Timestamp(1)),
        }
    }

    #[test]
    fn a_completed_run_has_an_answer() {
        assert_eq!(
            result(&sample(Ended { outcome: Outcome::Completed, cause: None })),
            json!({
                "run": "00000000000000000000000001", "session": "00000000000000000000000002",
                "outcome": "completed", "cause": null, "answer": "said", "iterations": 3,
                "usage": { "input_tokens": 5, "output_tokens": 6 },
                "started_at": "1970-01-01T00:00:00.000Z", "ended_at": "1970-01-01T00:00:00.001Z",
            })
        );
    }

    #[test]
    fn another_run_has_a_cause_and_no_answer() {
        let failure = CallFailure::new(FailureClass::Auth, "no");
        let shown = result(&sample(Ended::because(Outcome::Failed, Cause::Provider { failure })));
        assert_eq!((&shown["outcome"], &shown["cause"]), (&json!("failed"), &json!("provider")));
        assert_eq!(shown["failure"], json!({ "class": "auth", "message": "no" }));
        assert_eq!((&shown["answer"], &shown["partial"]), (&Value::Null, &json!("said")));
    }

    #[test]
    fn no_run_has_the_same_fields() {
        let of_result = result(&sample(Ended { outcome: Outcome::Completed, cause: None }));
        let of_none = no_result(None, "why");
        let fields = |value: &Value| as_object(value.clone()).keys().cloned().collect::<Vec<_>>();
        let mut expect = fields(&of_result);
        expect.push("error".into());
        assert_eq!(fields(&of_none), expect);
    }
}
