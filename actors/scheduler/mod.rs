//! Scheduler: the actor that starts the runs of schedules. It keeps one task for each schedule (`worker.rs`), tells it of
//! changes, and watches the clock. What a schedule does next is decided by `core/policy/schedule`.
//!
//! It keeps nothing that is not in the store: after a crash it reads the schedules and their runs again.

mod actor;
mod worker;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::{
    lock,
    model::{RunId, ScheduleName, Timestamp},
    port::{Calendar, OccurrenceSubmitter},
    supervisor::StableActorRef,
};
pub(crate) use actor::SchedulerActor;
#[cfg(feature = "testkit")]
pub(crate) use actor::SchedulerState;

/// The messages of [`SchedulerActor`].
#[derive(Debug)]
pub(crate) enum SchedulerMsg {
    /// The ports are there: the schedules are read and served.
    Start,
    /// A schedule was written or removed.
    Changed(ScheduleName),
    /// A run of a schedule was submitted outside of its times.
    Submitted(ScheduleName, RunId),
    /// No further run is started.
    Halt,
    /// The task with this number has ended: its schedule is gone, or it has panicked.
    WorkerEnded(ScheduleName, u64, bool),
    /// Looks at the clock.
    Tick,
    /// Inspects the state.
    #[cfg(feature = "testkit")]
    Inspect(crate::inspect::Inspect<SchedulerState>),
}

/// How schedules get their times and their runs.
#[derive(Debug, Clone)]
pub(crate) struct SchedulerPorts {
    pub(crate) calendar: Arc<dyn Calendar>,
    pub(crate) submitter: Arc<dyn OccurrenceSubmitter>,
}

/// The scheduler, as the other parts see it.
#[derive(Debug, Default)]
pub(crate) struct SchedulerHandle {
    pub(crate) actor: StableActorRef<SchedulerMsg>,
    ports: Mutex<Option<SchedulerPorts>>,
    /// By schedule: whether it is paused, and when it is due.
    statuses: Mutex<BTreeMap<ScheduleName, ScheduleStatus>>,
    last_tick_ms: Mutex<Option<u64>>,
}

/// What a task reports of its schedule.
#[derive(Debug, Clone, Copy)]
struct ScheduleStatus {
    is_paused: bool,
    next: Option<Timestamp>,
}

/// The health of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerHealth {
    /// Milliseconds since its last look at the clock; it looks each minute.
    pub tick_age_ms: u64,
    /// Number of schedules that it serves.
    pub schedules: usize,
    /// Those that are paused.
    pub paused: usize,
    /// The earliest time at which one is due.
    pub next_due: Option<Timestamp>,
}

impl SchedulerHandle {
    pub(crate) fn ports(&self) -> Option<SchedulerPorts> {
        lock(&self.ports).clone()
    }

    /// Sets or removes the ports; without them nothing is started.
    pub(crate) fn set_ports(&self, ports: Option<SchedulerPorts>) {
        *lock(&self.ports) = ports;
    }

    /// The health, if the scheduler was started.
    pub(crate) fn health(&self, now_ms: u64) -> Option<SchedulerHealth> {
        let last_tick_ms = (*lock(&self.last_tick_ms))?;
        let statuses = lock(&self.statuses);
        Some(SchedulerHealth {
            tick_age_ms: now_ms.saturating_sub(last_tick_ms),
            schedules: statuses.len(),
            paused: statuses.values().filter(|status| status.is_paused).count(),
            next_due: statuses.values().filter_map(|status| status.next).min(),
        })
    }

    fn set_status(&self, name: &ScheduleName, status: Option<ScheduleStatus>) {
        let mut statuses = lock(&self.statuses);
        match status {
            Some(status) => drop(statuses.insert(name.clone(), status)),
            None => drop(statuses.remove(name)),
        }
    }
}

/// How the actor reaches a task.
#[derive(Debug, Default)]
struct WorkerSignal {
    changed: Notify,
    /// Runs that the task has not submitted itself.
    submitted: Mutex<Vec<RunId>>,
}
