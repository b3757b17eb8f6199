//! Health of a runtime, without waiting for its actors' work: what a run waits for, and whether the disk answers.

use std::sync::Arc;

use crate::{
    handlers::{STALL_LIMIT_MS, StalledHandler},
    inspect::Inspect,
    model::{DiskFull, RunId, RunState, RunWait, SessionId, Timestamp, WaitKind},
    runtime::{RunError, Runtime},
    supervisor::{Directory, RuntimeParts, SessionsMsg},
    turn::WaitTracker,
};

/// Milliseconds after which a commit is reported as a wait; shorter ones are the usual cost of a record.
const SLOW_COMMIT_MS: u64 = 1_000;

/// Reports the health of a runtime. Clones report on the same runtime. After its end, no session is active.
#[derive(Debug, Clone)]
pub struct HealthProbe(Arc<RuntimeParts>);

impl HealthProbe {
    /// Whether this runtime carries out the runs of this session.
    pub async fn runs(&self, session: SessionId) -> bool {
        let (inspection, runs) = Inspect::read(move |directory: &Directory| directory.is_active(session));
        self.0.sessions.cast(SessionsMsg::Inspect(inspection)).is_ok() && runs.await.unwrap_or(false)
    }

    /// Start of the commit that is under way; `None` if there is none. A time that does not change means a disk that
    /// does not answer.
    pub fn writing_since(&self) -> Option<Timestamp> {
        self.0.commit_monitor.since()
    }

    /// Handlers of actors that have run for 3 s or longer: each blocks its actor and a thread. May be called on any
    /// thread.
    pub fn stalled_handlers(&self) -> Vec<StalledHandler> {
        self.0.handlers.stalled(STALL_LIMIT_MS)
    }

    /// The write that lacks disk space; all other writes wait behind it.
    pub fn disk_full(&self) -> Option<DiskFull> {
        self.0.commit_monitor.disk_full()
    }

    /// What a run waits for now, by the records of its session.
    pub async fn waits(&self, session: SessionId, run: RunId, waits: &WaitTracker) -> Vec<RunWait> {
        let parts = &self.0;
        let at = parts.clock.at();
        if !self.runs(session).await {
            return waits.waits_unowned(run, at);
        }
        let mut all = waits.waits_running(run, at, &**parts);
        let full = self.disk_full();
        let is_long = |since: &Timestamp| full.is_some() || at.ms_since(*since) >= SLOW_COMMIT_MS;
        if let Some(since) = self.writing_since().filter(is_long) {
            all.push(RunWait { kind: WaitKind::Disk { full }, since, until: None });
        }
        all
    }
}

impl Runtime {
    /// A probe that other tasks and threads can use.
    pub fn health_probe(&self) -> HealthProbe {
        HealthProbe(self.parts.clone())
    }

    /// What a run waits for, since when, and until when; empty if it has ended.
    pub async fn waits(&self, run: RunId) -> Result<Vec<RunWait>, RunError> {
        let row = self.row(run).await?;
        if row.state == RunState::Ended {
            return Ok(Vec::new());
        }
        let mut waits = WaitTracker::new(row.session);
        self.journal(row.session, 1).await?.iter().for_each(|(_, record)| waits.take(record));
        Ok(self.health_probe().waits(row.session, run, &waits).await)
    }
}
