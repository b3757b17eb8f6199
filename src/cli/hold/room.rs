//! That the disk is full, told to whoever looks on.

use std::time::Duration;

use hermod_actors::{Runtime, Vitals, model::NoRoom};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Between two looks.
const BETWEEN: Duration = Duration::from_secs(1);

/// Looks whether the disk is full.
#[derive(Debug)]
pub(crate) struct Room {
    vitals: Vitals,
    is_missing: bool,
    looks: Interval,
}

impl Room {
    /// As far as this runtime writes to it.
    pub(crate) fn of(runtime: &Runtime) -> Self {
        let mut looks = interval(BETWEEN);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { vitals: runtime.vitals(), is_missing: false, looks }
    }

    /// Resolves with a line when the disk is found full, and when there is room on it again. May be dropped at any time.
    pub(crate) async fn changes(&mut self) -> String {
        loop {
            self.looks.tick().await;
            let missing = self.vitals.no_room();
            if missing.is_some() != self.is_missing {
                self.is_missing = missing.is_some();
                return told(missing);
            }
        }
    }
}

fn told(missing: Option<NoRoom>) -> String {
    match missing {
        Some(NoRoom { path, .. }) => {
            format!("waiting   the disk is full: make room for {path}, and it goes on")
        }
        None => "goes on   there is room on the disk again".to_owned(),
    }
}
