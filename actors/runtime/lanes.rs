//! The limits of lanes: set while runs continue. Also the places of runs that an earlier process has left.

use std::{sync::Arc, time::Duration};

use super::Runtime;
use crate::{
    model::{BeginRules, HookPoint, Lane, LaneLimits, RunRow, RunState},
    supervisor::RuntimeParts,
};

/// How long places are kept for runs whose sessions are not open: a session that cannot be opened must not hold up others.
const KEPT_FOR: Duration = Duration::from_mins(1);

impl Runtime {
    /// Keeps the places of runs that were under way in an earlier process and that will be revived, for at most a minute: no
    /// other run begins in their place meanwhile.
    pub fn keep_lane_places(&self, rows: &[RunRow]) {
        let under_way = rows.iter().filter(|row| row.state == RunState::Running);
        self.parts.lanes.keep(under_way.map(|row| (row.id, row.lane)));
        let lanes = Arc::downgrade(&self.parts.lanes);
        tokio::spawn(async move {
            tokio::time::sleep(KEPT_FOR).await;
            if let Some(lanes) = lanes.upgrade() {
                lanes.forget_all_kept();
            }
        });
    }

    /// Sets how many runs of each lane may be under way at once. Without this there are no limits. Runs that have begun
    /// go on; a run that waits begins once it has a place by the new limit.
    pub fn set_lane_limits(&self, limits: LaneLimits) {
        self.parts.lanes.set_limits(limits);
    }

    /// How many runs of a lane are under way, and how many wait for a place in it. Runs that wait for a person, for
    /// subagents, or for a time that a provider has named are not under way.
    pub fn lane_counts(&self, lane: Lane) -> (usize, usize) {
        self.parts.lanes.counts(lane)
    }
}

impl RuntimeParts {
    /// What runs wait for that are accepted now.
    pub(crate) fn begin_rules(&self) -> BeginRules {
        let are_hooks_asked = self.hooks.is_asked(HookPoint::BeforeRun, None);
        BeginRules { lanes: self.lanes.limits(), are_hooks_asked }
    }
}
