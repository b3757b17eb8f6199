//! What open calls wait for, counted by reason.

use std::collections::BTreeMap;

use hermod_actors::model::{CallId, RunId};

/// What the open calls of unfinished runs wait for.
#[derive(Debug, Default)]
pub(super) struct OpenWaits {
    reasons: BTreeMap<CallId, &'static str>,
    /// By reason; none is 0.
    counts: BTreeMap<&'static str, u64>,
}

impl OpenWaits {
    /// Number of open calls by what they wait for.
    pub(super) const fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    /// The call waits for `reason`, and for nothing else any more.
    pub(super) fn insert(&mut self, call: CallId, reason: &'static str) {
        let previous = self.reasons.insert(call, reason);
        previous.into_iter().for_each(|previous| self.subtract(previous));
        *self.counts.entry(reason).or_default() += 1;
    }

    /// The call waits for nothing.
    pub(super) fn remove(&mut self, call: &CallId) {
        let previous = self.reasons.remove(call);
        previous.into_iter().for_each(|previous| self.subtract(previous));
    }

    /// Forgets the calls of a run.
    pub(super) fn forget(&mut self, run: RunId) {
        let (first, last) =
            (CallId { run, iteration: 0, n: 0 }, CallId { run, iteration: u32::MAX, n: u32::MAX });
        let forgotten: Vec<_> = self.reasons.extract_if(first..=last, |_, _| true).collect();
        forgotten.into_iter().for_each(|(_, reason)| self.subtract(reason));
    }

    fn subtract(&mut self, reason: &'static str) {
        if let Some(count) = self.counts.get_mut(reason) {
            *count -= 1;
        }
        self.counts.retain(|_, count| *count > 0);
    }
}
