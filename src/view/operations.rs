//! Views of the service as its operator sees it: its status, a drain, a reload.

use std::path::PathBuf;

use hermod_actors::model::{BreakerState, Timestamp};
use serde::{Deserialize, Serialize};

use super::{channel::ChannelView, encoding, hook::HookView};

/// A running service: `{pid, version, address, state_dir, started_at, phase, reasons, runs, submissions, sessions,
/// breakers, hooks, gone_targets, channels, connections, streams}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStatusView {
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// Where it listens.
    pub address: String,
    /// The state directory with its store.
    pub state_dir: PathBuf,
    /// When it began to serve.
    #[serde(with = "encoding::time")]
    pub started_at: Timestamp,
    /// What it does.
    pub phase: ServicePhase,
    /// Why it is not healthy; empty if it is.
    pub reasons: Vec<String>,
    /// Unfinished runs by state.
    pub runs: UnfinishedRunsView,
    /// Submissions that wait until they are durable.
    pub submissions: usize,
    /// Sessions in memory.
    pub sessions: usize,
    /// The circuit breakers that are not closed.
    pub breakers: Vec<BreakerView>,
    /// The hooks, by priority.
    #[serde(default)]
    pub hooks: Vec<HookView>,
    /// The targets for which messages wait, though the configuration does not have them.
    #[serde(default)]
    pub gone_targets: Vec<String>,
    /// The channels, by name.
    #[serde(default)]
    pub channels: Vec<ChannelView>,
    /// Open HTTP connections.
    pub connections: u64,
    /// Open streams of events.
    pub streams: u64,
}

/// What a service does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ServicePhase {
    /// It takes work.
    Serving,
    /// After repeated crashes its unfinished runs go on one at a time, and it takes no work meanwhile.
    Probation,
    /// It takes no work, and ends with its runs.
    Draining,
}

/// Unfinished runs by state: `{queued, running, parked}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UnfinishedRunsView {
    /// Those behind other runs of their sessions.
    pub queued: usize,
    /// Those that make progress.
    pub running: usize,
    /// Those that wait for a person.
    pub parked: usize,
}

/// A circuit breaker: `{provider, model, state, until}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerView {
    /// The provider.
    pub provider: String,
    /// The model; `None` (`null`) for the endpoint as a whole.
    pub model: Option<String>,
    /// Its state.
    #[serde(flatten)]
    pub breaker: BreakerState,
}

/// The end of a drain: `{suspended, parked}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainView {
    /// Runs that were still under way when the time was over. They go on at the next start.
    pub suspended: usize,
    /// Unfinished runs that wait for a person.
    pub parked: usize,
}

/// A reload of the configuration: `{files, changed, restart}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadView {
    /// The files that were read.
    pub files: Vec<PathBuf>,
    /// The keys with new values that hold for new runs from now on.
    pub changed: Vec<String>,
    /// The keys with new values that hold only after a restart.
    pub restart: Vec<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_breaker_is_one_flat_object() {
        let view = BreakerView {
            provider: "p".into(),
            model: None,
            breaker: BreakerState::Open { until: Timestamp(0) },
        };
        let written =
            json!({ "provider": "p", "model": null, "state": "open", "until": "1970-01-01T00:00:00.000Z" });
        assert_eq!(serde_json::to_value(&view).unwrap(), written);
        assert_eq!(serde_json::from_value::<BreakerView>(written).unwrap(), view);
    }
}
