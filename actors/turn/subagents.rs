//! Which subagents of a session's runs have not ended, by the records: for telling, never for doing.

use std::collections::BTreeMap;

use crate::model::{CallId, CallStarted, ChildEnded, RunId, RunWait, Timestamp, WaitKind};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SubagentTracker(BTreeMap<CallId, SpawnedSubagents>);

/// What a call has begun.
#[derive(Debug)]
struct SpawnedSubagents {
    at: Timestamp,
    /// Each run, and whether its end was heard.
    runs: BTreeMap<RunId, bool>,
}

impl SubagentTracker {
    /// Takes in a start. A call that is started again names what it has begun before, whose ends still hold.
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

    /// Takes in an end.
    pub(super) fn on_subagent_ended(&mut self, ended: &ChildEnded) {
        let begun = self.0.get_mut(&ended.call);
        if let Some(heard) = begun.and_then(|begun| begun.runs.get_mut(&ended.child.run)) {
            *heard = true;
        }
    }

    /// A run that has ended waits for nobody.
    pub(super) fn forget(&mut self, run: RunId) {
        self.0.retain(|call, _| call.run != run);
    }

    /// The wait for those of one call; `None` if it has begun none, or if all have ended.
    pub(super) fn of_call(&self, call: CallId) -> Option<RunWait> {
        self.0.get(&call).and_then(|begun| begun.wait(call))
    }

    /// The waits for all of a run, call by call.
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
