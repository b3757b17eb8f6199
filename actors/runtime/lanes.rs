//! The limits of lanes: set while runs continue.

use super::Runtime;
use crate::{
    model::{BeginRules, HookPoint, Lane, LaneLimits},
    supervisor::RuntimeParts,
};

impl Runtime {
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
