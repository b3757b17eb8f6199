//! The section `queue`: how messages to a session queue while a run of it is under way.

use hermod_actors::model::Queueing;
use serde::Deserialize;

use super::values::{DropPolicyName, PositiveCount, PositiveDuration, QueueModeName};

/// The section `queue`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSection {
    /// What happens to a message that names no mode.
    pub mode: QueueModeName,
    /// Most messages of a session that wait.
    pub cap: PositiveCount,
    /// What is dropped when more arrive.
    pub drop: DropPolicyName,
    /// Time without another message after which collected messages become a run.
    pub collect_window: PositiveDuration,
}

impl QueueSection {
    /// The section's values.
    pub fn queueing(&self) -> Queueing {
        Queueing {
            mode: self.mode.0,
            cap: self.cap.0,
            drop: self.drop.0,
            collect_ms: u64::try_from(self.collect_window.0.as_millis()).unwrap_or(u64::MAX),
        }
    }
}
