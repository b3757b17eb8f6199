//! Polls whether the runtime waits for space on the disk, and words each change as a line for the user. `disk_space.rs`
//! measures the free space.

use std::time::Duration;

use hermod_actors::{HealthProbe, Runtime, model::DiskFull};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Polls whether the disk is full.
#[derive(Debug)]
pub struct DiskFullMonitor {
    health: HealthProbe,
    is_full: bool,
    polls: Interval,
}

impl DiskFullMonitor {
    /// Monitors the disk as far as this runtime writes to it.
    pub fn new(runtime: &Runtime) -> Self {
        let mut polls = interval(POLL_INTERVAL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { health: runtime.health_probe(), is_full: false, polls }
    }

    /// Resolves with a line when the disk becomes full, and when it has space again. Cancel-safe.
    pub async fn next_change(&mut self) -> String {
        loop {
            self.polls.tick().await;
            let shortage = self.health.disk_full();
            if shortage.is_some() != self.is_full {
                self.is_full = shortage.is_some();
                return match shortage {
                    Some(DiskFull { path, .. }) => {
                        format!("waiting   the disk is full: make room for {path}, and it goes on")
                    }
                    None => "goes on   there is room on the disk again".to_owned(),
                };
            }
        }
    }
}
