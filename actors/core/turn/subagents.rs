//! Subagents of a session's runs that have not ended, by the records. A read-only projection; never drives actions.

use std::collections::BTreeMap;

use crate::model::{CallId, CallStarted, ChildEnded, RunId, RunWait, Timestamp, WaitKind};

/// The subagents of each delegating call.
#[derive(Debug, Default)]
pub(super) struct SubagentTracker(BTreeMap<CallId, SpawnedSubagents>);

/// The subagents of one call, and the time of its start.
#[derive(Debug)]
struct SpawnedSubagents {
    at: Timestamp,
    /// Each subagent's run, and whether its end is recorded.
    runs: BTreeMap<RunId, bool>,
}

impl SubagentTracker {
    /// Tracks the start of a call. A call that starts again names the same subagents, whose recorded ends stay valid.
    pub(super) fn on_call_started(&mut self, started: &CallStarted, at: Timestamp) {
        if started.children.is_empty() {
            return;
        }
        let begun =
            self.0.entry(started.call).or_insert_with(|| SpawnedSubagents { at, runs: BTreeMap::new() });
        for child in &*started.children {
            begun.runs.entry(child.run).or_insert(false);
        }
    }

    pub(super) fn on_subagent_ended(&mut self, ended: &ChildEnded) {
        let begun = self.0.get_mut(&ended.call);
        if let Some(heard) = begun.and_then(|begun| begun.runs.get_mut(&ended.child.run)) {
            *heard = true;
        }
    }

    /// Drops the subagents of an ended run.
    pub(super) fn forget(&mut self, run: RunId) {
        self.0.retain(|call, _| call.run != run);
    }

    /// The wait for the subagents of one call; `None` if it has none or all have ended.
    pub(super) fn of_call(&self, call: CallId) -> Option<RunWait> {
        self.0.get(&call).and_then(|begun| begun.wait(call))
    }

    /// The waits for all subagents of a run, one for each call.
    pub(super) fn of_run(&self, run: RunId) -> impl Iterator<Item = RunWait> {
        let of_run = self.0.iter().filter(move |(call, _)| call.run == run);
        of_run.filter_map(|(call, begun)| begun.wait(*call))
    }
}

impl SpawnedSubagents {
    fn wait(&self, call: CallId) -> Option<RunWait> {
        let left = self.runs.values().filter(|heard| !**heard).count();
        let what = WaitKind::Children { call, left: u32::try_from(left).unwrap_or(u32::MAX) };
        (left > 0).then_some(RunWait { kind: what, since: self.at, until: None })
    }
}
