//! Answers calls of the tool `todo` within the decision, and records the changed to-do list. The list's operations are
//! in `policy/todo.rs`, the tool's definition is in `todo_tool.rs`.
//!
//! Invariant: the list is that of the last `todo.changed`, and its call ends in the same append. Such a call is
//! therefore never under way, and needs no permit and no reservation.

use crate::{
    model::{Body, CallEnd, CallId, CallStatus, TodoChanged},
    policy::{
        delegation::ArgumentError,
        parse_arguments,
        todo::{TODO, list_json, parse_todo},
    },
    turn::{decision::DecisionBuilder, tool_calls::ActiveToolCall},
};

impl DecisionBuilder {
    /// Answers the admitted calls of `todo`, in their order in the model's answer.
    pub(super) fn answer_todo_calls(&mut self) {
        let is_ready = |call: &&ActiveToolCall| *call.tool == *TODO && call.is_admitted();
        while let Some(run) =
            self.run().filter(|run| run.planned_end.is_none() && run.budget.exhausted.is_none())
            && let Some(call) = run.tool_calls().iter().find(is_ready).map(|call| call.id)
        {
            let end = self.change_todo(call).unwrap_or_else(|bad| {
                CallEnd::error(CallStatus::Error, &bad.error, bad.field.as_deref(), &bad.hint)
            });
            self.end_call(call.attempt(0), end);
        }
    }

    /// Applies a call to the list and returns the call's result.
    fn change_todo(&mut self, call: CallId) -> Result<CallEnd, ArgumentError> {
        let arguments =
            parse_arguments(self.run().map_or("", |run| run.arguments(call))).map_err(|error| {
                ArgumentError { field: None, error: error.to_string(), hint: "send JSON".into() }
            })?;
        let items = parse_todo(&arguments)?.apply(&self.turn.todo)?;
        let end = CallEnd::ok(list_json(&items));
        if items != self.turn.todo {
            self.record(Body::TodoChanged(TodoChanged { call, items }));
        }
        Ok(end)
    }
}
