//! The section `lanes`: how many runs of each lane may be under way at once.

use hermod_actors::model::LaneLimits;
use serde::Deserialize;

use super::values::OptionalCount;

/// The section `lanes`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LanesSection {
    /// Submitted runs.
    pub main: OptionalCount,
    /// Delegated runs.
    pub subagent: OptionalCount,
    /// Runs that begin at a time.
    pub cron: OptionalCount,
}

impl LanesSection {
    /// The limits; one above what a lane counts is that.
    pub fn limits(&self) -> LaneLimits {
        let of = |limit: OptionalCount| limit.0.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
        LaneLimits { main: of(self.main), subagent: of(self.subagent), cron: of(self.cron) }
    }
}
