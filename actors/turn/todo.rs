//! What the model of a session means to do: its calls of `todo` are answered here and now.
//!
//! Invariant: the list is that of the last `todo.changed`, whose call has its end in the same append; so such a call is
//! never under way, and costs no permit and no reservation.

use crate::{
    model::{Body, CallEnd, CallId, CallStatus, TodoChanged},
    policy::{
        delegation::ArgumentError,
        parse_arguments,
        todo::{TODO, format_list, list_json, parse_todo},
    },
    turn::{
        Turn,
        active_run::{ActiveToolCall, ToolCallState},
        decision::DecisionBuilder,
    },
};

impl Turn {
    /// The list as text, an item a line; `None` if it is empty.
    pub(super) fn todo(&self) -> Option<String> {
        format_list(&self.todo)
    }
}

impl DecisionBuilder {
    /// Answers the calls of `todo` that are admitted, in the order of the answer.
    pub(super) fn answer_todo_calls(&mut self) {
        let is_ready =
            |call: &&ActiveToolCall| *call.tool == *TODO && matches!(call.state, ToolCallState::Admitted(_));
        while let Some(run) = self.run().filter(|run| run.planned_end.is_none() && run.exhausted.is_none())
            && let Some(call) = run.calls().iter().find(is_ready).map(|call| call.id)
        {
            let end = self.change_todo(call).unwrap_or_else(|bad| {
                CallEnd::error(CallStatus::Error, &bad.error, bad.field.as_deref(), &bad.hint)
            });
            self.end_call(call, 0, end);
        }
    }

    /// Does what a call wants of the list; what its model reads.
    fn change_todo(&mut self, call: CallId) -> Result<CallEnd, ArgumentError> {
        let given = parse_arguments(self.arguments(call)).map_err(|error| ArgumentError {
            field: None,
            error: error.to_string(),
            hint: "send JSON".into(),
        })?;
        let items = parse_todo(&given)?.apply(&self.turn.todo)?;
        let end = CallEnd::ok(list_json(&items));
        if items != self.turn.todo {
            self.record(Body::TodoChanged(TodoChanged { call, items }));
        }
        Ok(end)
    }
}
