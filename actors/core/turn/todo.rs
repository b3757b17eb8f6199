//! Answers calls of the tool `todo` within the decision, and records the changed to-do list. The list's operations are
//! in `policy/todo.rs`, the tool itself is in `builtin_tools.rs`.
//!
//! Invariant: the list is that of the last `todo.changed`, and its call ends in the same append. Such a call is
//! therefore never under way, and needs no permit and no reservation.

use crate::{
    model::{BadArguments, Body, CallEnd, CallId, TodoChanged},
    policy::{
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
            let end = self.change_todo(call).unwrap_or_else(CallEnd::from);
            self.end_call(call.attempt(0), end);
        }
    }

    /// Applies a call to the list and returns the call's result.
    fn change_todo(&mut self, call: CallId) -> Result<CallEnd, BadArguments> {
        let text = self.run().map_or("", |run| run.arguments(call));
        let arguments =
            parse_arguments(text).map_err(|error| BadArguments::new(None, error.to_string(), "send JSON"))?;
        let items = parse_todo(&arguments)?.apply(&self.turn.todo)?;
        let end = CallEnd::ok(list_json(&items));
        if items != self.turn.todo {
            self.record(Body::TodoChanged(TodoChanged { call, items }));
        }
        Ok(end)
    }
}
