//! To-do lists in a simulation: the calls that models make, and the invariant of their results.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    answers::call_id,
    invariants::{FinalState, Violations},
};
use hermod_actors::{
    TODO,
    model::{Body, CallStatus, ToolCall},
};

/// The to-do call of a model at step `at` of run `run`: it writes or reads the list. `None` if the step has none.
pub(super) fn call((run, at): (usize, usize)) -> Option<ToolCall> {
    let id = format!("{run}.{at}");
    let arguments = match (run + at) % 4 {
        0 => json!({"todos": [{"id": "last", "content": id, "status": "in_progress"}], "merge": true}),
        1 => json!({"todos": [{"id": id, "content": "begun"}]}),
        2 => json!({}),
        _ => return None,
    };
    Some(ToolCall { id: call_id((run, at), "l"), name: TODO.into(), arguments: arguments.to_string() })
}

/// Every to-do call returns the list last recorded in its session, despite crashes in between.
pub(super) fn list_is_current(past: &FinalState<'_>) -> Violations {
    let mut found = Violations::new();
    for records in past.journals.values() {
        let (mut list, mut calls) = (json!([]), BTreeMap::new());
        for record in records {
            match &record.body {
                Body::CallAdmitted(admitted) => drop(calls.insert(admitted.call, &admitted.tool)),
                Body::TodoChanged(changed) => list = json!(changed.items),
                Body::CallEnded(ended)
                    if calls.get(&ended.call).is_some_and(|tool| ***tool == *TODO)
                        && ended.end.status == CallStatus::Ok =>
                {
                    let result = serde_json::from_str(&ended.end.content).unwrap_or(Value::Null);
                    if result["todos"] != list || ended.attempt != 0 {
                        found.push(format!("{} is told {result} and not {list}", ended.call));
                    }
                }
                _ => {}
            }
        }
    }
    found
}
