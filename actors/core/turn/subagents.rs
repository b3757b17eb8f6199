//! State of a run's subagents until a model has read their results, and of the delegated tasks that have failed. Folds
//! records; `delegate.rs` decides.

use std::sync::Arc;

use crate::{
    model::{
        CallId, CallStarted, ChildEnded, Hash, Outcome, RUNTIME_TEXT_PREFIX, RunWait, SubagentRef, Timestamp,
        WaitKind,
    },
    turn::input::DueAction,
};

/// The subagents of the run under way, in the order of their starts.
#[derive(Debug, Clone, Default)]
pub(super) struct Subagents {
    unread: Vec<Subagent>,
    failed_tasks: Vec<FailedTask>,
}

/// A subagent whose end is not yet reported to the model.
#[derive(Debug, Clone)]
pub(super) struct Subagent {
    pub(super) call: CallId,
    /// Index among the tasks of its call.
    n: u32,
    pub(super) child: SubagentRef,
    /// Start of the delegating call.
    since: Timestamp,
    task: Hash,
    ended: Option<Arc<ChildEnded>>,
}

/// A delegated task that has failed, its outcome, and how often it has ended so.
#[derive(Debug, Clone)]
pub(super) struct FailedTask {
    signature: Hash,
    pub(super) outcome: Outcome,
    pub(super) count: u32,
}

impl Subagents {
    /// Adds the subagents of a call; `tasks` are the signatures of its tasks.
    pub(super) fn on_started(&mut self, started: &CallStarted, tasks: &[Hash], since: Timestamp) {
        let call = started.call;
        let new = started.children.iter().enumerate().zip(0..).map(|((at, child), n)| {
            let task = tasks.get(at).copied().unwrap_or_else(|| Hash::of(b""));
            Subagent { call, n, child: *child, since, task, ended: None }
        });
        self.unread.extend(new);
    }

    pub(super) fn on_ended(&mut self, ended: &ChildEnded) {
        let mut unread = self.unread.iter_mut();
        let Some(subagent) = unread.find(|of| of.call == ended.call && of.child.run == ended.child.run)
        else {
            return;
        };
        subagent.ended = Some(Arc::new(ended.clone()));
        let (signature, outcome) = (subagent.task, ended.ended.outcome);
        if !matches!(outcome, Outcome::Completed | Outcome::Stopped) {
            let same = |failed: &&mut FailedTask| failed.signature == signature && failed.outcome == outcome;
            match self.failed_tasks.iter_mut().find(same) {
                Some(failed) => failed.count += 1,
                None => self.failed_tasks.push(FailedTask { signature, outcome, count: 1 }),
            }
        }
    }

    /// Drops the subagents of an ended call if all of them have ended: its result contains theirs. Otherwise all stay,
    /// and the result of each is shown on its own.
    pub(super) fn on_call_ended(&mut self, call: CallId) {
        let has_live = self.live().any(|subagent| subagent.call == call);
        self.unread.retain(|subagent| has_live || subagent.call != call);
    }

    /// Removes the subagents that have ended and returns their results as texts for the model.
    pub(super) fn take_results(&mut self) -> Vec<String> {
        let results = self.unread.iter().filter_map(Subagent::format_result).collect();
        self.unread.retain(|subagent| subagent.ended.is_none());
        results
    }

    /// The subagents that have not ended.
    pub(super) fn live(&self) -> impl Iterator<Item = &Subagent> {
        self.unread.iter().filter(|subagent| subagent.ended.is_none())
    }

    pub(super) fn has_live(&self) -> bool {
        self.live().next().is_some()
    }

    /// Whether the results of all subagents are in the view.
    pub(super) const fn is_empty(&self) -> bool {
        self.unread.is_empty()
    }

    /// The subagents of one call, in the order of its tasks.
    pub(super) fn of_call(&self, call: CallId) -> impl Iterator<Item = &Subagent> {
        self.unread.iter().filter(move |subagent| subagent.call == call)
    }

    /// The subagent of task `n` of this call.
    pub(super) fn find(&self, call: CallId, n: u32) -> Option<SubagentRef> {
        self.of_call(call).find(|subagent| subagent.n == n).map(|subagent| subagent.child)
    }

    /// The results of a call whose subagents have all ended, as content for the model; `None` while one is live.
    pub(super) fn results_of(&self, call: CallId) -> Option<String> {
        let results = self.of_call(call).map(|subagent| Some(&*subagent.ended.as_ref()?.result));
        let results: Vec<&str> = results.collect::<Option<_>>()?;
        Some(match results[..] {
            [result] => result.to_owned(),
            _ => format!("{{\"results\":[{}]}}", results.join(",")),
        })
    }

    /// The most frequent failure of this task.
    pub(super) fn failure_of(&self, task: Hash) -> Option<&FailedTask> {
        self.failed_tasks.iter().filter(|failed| failed.signature == task).max_by_key(|failed| failed.count)
    }

    /// The actions that await the live subagents; with `ends` the subagents must end.
    pub(super) fn due(&self, ends: bool) -> impl Iterator<Item = DueAction> {
        self.live().map(move |Subagent { call, n, .. }| DueAction::AwaitSubagent { call: *call, n: *n, ends })
    }

    /// The wait for the live subagents of one call.
    pub(super) fn wait_of(&self, call: CallId) -> Option<RunWait> {
        let live = || self.live().filter(|subagent| subagent.call == call);
        let kind = WaitKind::Children { call, left: u32::try_from(live().count()).unwrap_or(u32::MAX) };
        live().next().map(|first| RunWait { kind, since: first.since, until: None })
    }

    /// The waits for all live subagents, one for each call.
    pub(super) fn waits(&self) -> Vec<RunWait> {
        let mut calls: Vec<CallId> = self.live().map(|subagent| subagent.call).collect();
        calls.dedup();
        calls.into_iter().filter_map(|call| self.wait_of(call)).collect()
    }
}

impl Subagent {
    fn format_result(&self) -> Option<String> {
        let (run, ended) = (self.child.run, self.ended.as_ref()?);
        let result = &ended.result;
        Some(format!("{RUNTIME_TEXT_PREFIX}a subagent in the background has ended, run {run}:]\n{result}"))
    }
}
