//! What the shell asks about the tool calls, approvals and subagents of the run under way. Changes nothing. Other
//! questions are answered in `mod.rs`.

use std::sync::Arc;

use serde_json::json;

use crate::{
    model::{Boot, CallEnd, CallId, CallStarted, PendingApproval, RunId, RunSpec, SubagentRef, ToolClass},
    turn::{Turn, active_run::ActiveRun, tool_calls::ActiveToolCall},
};

/// When a delegating call ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DelegationMode {
    /// The call ends with its last subagent.
    Foreground,
    /// The call ends at once, with this result.
    Background(CallEnd),
}

impl Turn {
    fn call(&self, id: CallId) -> Option<&ActiveToolCall> {
        self.run()?.tool_calls().iter().find(|call| call.id == id)
    }

    /// The record of the start of this call, if it is started and has not ended.
    fn call_start(&self, id: CallId) -> Option<&CallStarted> {
        self.call(id)?.started().map(|started| &**started)
    }

    /// The tool and the arguments of a call of the present answer, and the spec of its run.
    pub fn tool_call(&self, id: CallId) -> Option<(Arc<str>, &str, &Arc<RunSpec>)> {
        let (run, call) = (self.run()?, self.call(id)?);
        Some((Arc::clone(&call.tool), run.arguments(id), &run.spec))
    }

    /// Whether this call is under way and an earlier incarnation has started it.
    pub fn is_of_earlier_incarnation(&self, id: CallId) -> bool {
        self.call_start(id).is_some_and(|started| started.incarnation != self.incarnation)
    }

    /// Whether the call was started on the present boot of the machine; `Other` for a call that is not under way.
    pub fn boot_of(&self, id: CallId) -> Boot {
        let is_same = self.call_start(id).is_some_and(|started| started.boot == self.boot);
        if is_same { Boot::Same } else { Boot::Other }
    }

    /// Whether the tool of this call can find out what became of the call after a crash of the process.
    pub fn is_detached(&self, id: CallId) -> bool {
        self.call(id).is_some_and(|call| call.detached)
    }

    /// The permit class of a tool call of the present answer.
    pub fn tool_class(&self, id: CallId) -> Option<ToolClass> {
        self.call(id).map(|call| call.access.class())
    }

    /// The open approval requests.
    pub fn open_approvals(&self) -> Vec<PendingApproval> {
        let in_doubt = self.run().map(ActiveRun::parked_tool_calls).unwrap_or_default();
        let pending = in_doubt.iter().map(|call| (call.request.clone(), call.requested_at));
        pending.map(|(request, since)| PendingApproval { request, since }).collect()
    }

    /// The run under way, if it waits for a person and none of its calls can make progress.
    pub fn parked_run(&self) -> Option<RunId> {
        self.run().filter(|run| run.is_parked()).map(|run| run.id)
    }

    /// The subagent of task `n` of this call.
    pub fn subagent(&self, call: CallId, n: u32) -> Option<SubagentRef> {
        self.run()?.subagents.find(call, n)
    }

    /// The calls of the present answer that have subagents, each with their number.
    pub fn subagent_counts(&self) -> Vec<(CallId, usize)> {
        let Some(run) = self.run() else { return Vec::new() };
        let counts = run.tool_calls().iter().map(|call| (call.id, run.subagents.of_call(call.id).count()));
        counts.filter(|(_, subagents)| *subagents > 0).collect()
    }

    /// The mode of a delegating call; `None` for any other call.
    pub fn delegation_mode(&self, id: CallId) -> Option<DelegationMode> {
        let run = self.run()?;
        self.call(id).filter(|call| call.delegates())?;
        let is_background = run.delegation_request(id).is_some_and(|request| request.background);
        if !is_background || run.planned_end.is_some() {
            return Some(DelegationMode::Foreground);
        }
        let subagents = run.subagents.of_call(id);
        let handles: Vec<_> = subagents.map(|subagent| json!(subagent.child.run.to_string())).collect();
        let note =
            "they work in the background; each result comes to you by itself, and you cannot end before";
        Some(DelegationMode::Background(CallEnd::ok(
            json!({"background": true, "runs": handles, "note": note}).to_string(),
        )))
    }
}
