//! The public interface of gc: one pass at a time, made of steps that the committer runs.

use std::{
    collections::HashSet,
    sync::{Arc, Weak, mpsc::sync_channel},
    time::Duration,
};

use hermod_actors::model::{RunId, SessionId, Timestamp};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    super::{error::StoreError, journal::RedbJournal},
    footprint::{self, StoreFootprint},
    mark::{self, Lookup},
    plan::{GcSnapshot, RemovableSession},
    steps::{GcStep, MAX_ROWS_PER_STEP, StepReplySender},
    tally::{GcMode, Tally, why},
};

/// Sessions that are looked up per snapshot.
const SESSIONS_PER_SNAPSHOT: usize = 64;

/// Why gc failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GcError {
    /// The store was closed.
    #[error("the store was closed before this was done; what is left is removed the next time")]
    Closed,
    /// Another gc or a backup is under way.
    #[error("another care of the store is under way; try again when that has ended")]
    Busy,
    /// The store cannot be read or written.
    #[error("the store cannot be cared for: {0}")]
    Failed(String),
}

impl From<StoreError> for GcError {
    fn from(fault: StoreError) -> Self {
        Self::Failed(fault.to_string())
    }
}

/// Garbage collection of a store that is open in this process. Does not keep the store open. All methods block.
#[derive(Debug, Clone)]
pub struct GarbageCollector {
    journal: Weak<RedbJournal>,
}

/// The sessions that this pass removed, or would remove.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RemovedSet {
    /// The removed sessions.
    pub sessions: HashSet<SessionId>,
    /// Their runs.
    pub runs: HashSet<RunId>,
}

impl GarbageCollector {
    pub(in super::super) const fn new(journal: Weak<RedbJournal>) -> Self {
        Self { journal }
    }

    /// Starts a pass; fails with [`GcError::Busy`] while another pass or a backup is under way.
    pub fn start(&self, mode: GcMode) -> Result<GcPass, GcError> {
        let gate = Arc::clone(self.journal()?.gc_gate());
        let alone = gate.try_acquire_owned().map_err(|_| GcError::Busy)?;
        Ok(GcPass { collector: self.clone(), mode, max_append_wait: Duration::ZERO, _exclusive: alone })
    }

    /// The disk usage of the store. Reads all of it.
    pub fn footprint(&self) -> Result<StoreFootprint, GcError> {
        let (reader, blobs) = {
            let journal = self.journal()?;
            (journal.reader()?, journal.blobs().clone())
        };
        let file = reader.file();
        Ok(file.run(|| footprint::measure(reader.txn(), file.path(), &blobs))?)
    }

    /// Reads the store; adds file and remedy to errors of damaged pages.
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T, GcError>) -> Result<T, GcError> {
        let file = self.journal()?.db.file().clone();
        file.catch(work)?.map_err(|error| match (error, file.known_damage()) {
            (GcError::Failed(_), Some(fault)) => fault.into(),
            (error, _) => error,
        })
    }

    fn journal(&self) -> Result<Arc<RedbJournal>, GcError> {
        self.journal.upgrade().ok_or(GcError::Closed)
    }

    fn snapshot(&self) -> Result<GcSnapshot, GcError> {
        let journal = self.journal()?;
        Ok(GcSnapshot::new(journal.reader()?, journal.blobs().clone()))
    }
}

/// A gc pass under way.
#[derive(Debug)]
pub struct GcPass {
    collector: GarbageCollector,
    mode: GcMode,
    max_append_wait: Duration,
    _exclusive: OwnedSemaphorePermit,
}

impl GcPass {
    /// Whether the pass removes or only reports.
    pub const fn mode(&self) -> GcMode {
        self.mode
    }

    /// The longest time that appends waited for a step.
    pub const fn max_append_wait(&self) -> Duration {
        self.max_append_wait
    }

    /// Lookups in a snapshot of now.
    pub fn lookup(&self) -> Result<Lookup, GcError> {
        Ok(Lookup::new(self.collector.journal()?.reader()?))
    }

    /// Removes the sessions whose last record is not newer than `before`, and the rest of sessions that an earlier pass
    /// removed; `None` keeps all sessions.
    /// Returns the tally of sessions, the tally of their idempotency keys, and the removed set.
    /// The removal is durable on return, so that files of these sessions can be removed.
    pub fn remove_sessions(
        &mut self,
        before: Option<Timestamp>,
    ) -> Result<(Tally, Tally, RemovedSet), GcError> {
        let care = self.collector.clone();
        let done = care.guarded(|| self.expire(before))?;
        if self.mode == GcMode::Remove {
            self.run_step(GcStep::Flush)?;
        }
        Ok(done)
    }

    fn expire(&mut self, before: Option<Timestamp>) -> Result<(Tally, Tally, RemovedSet), GcError> {
        let (mut tally, mut keys, mut gone) = (Tally::default(), Tally::default(), RemovedSet::default());
        self.remove_leftovers()?;
        let all_keys = self.collector.snapshot()?.keys()?;
        let Some(before) = before else {
            tally.retain(why::FOREVER, self.collector.snapshot()?.sessions()?);
            keys.retain(why::RUN, all_keys);
            return Ok((tally, keys, gone));
        };
        let mut expired = self.collector.snapshot()?.expired(before, &mut tally)?.into_iter();
        loop {
            let mut doomed = Vec::new();
            // A snapshot prevents the engine from reusing freed pages: it is dropped as soon as possible.
            let plan = self.collector.snapshot()?;
            for expired in expired.by_ref().take(SESSIONS_PER_SNAPSHOT) {
                match plan.removable(expired)? {
                    Some(one) => doomed.push(one),
                    None => tally.retain(why::UNREADABLE, 1),
                }
            }
            drop(plan);
            if doomed.is_empty() && expired.len() == 0 {
                break;
            }
            self.remove_batch(doomed, &mut tally, &mut keys, &mut gone)?;
            self.remove_leftovers()?;
        }
        keys.retain(why::RUN, all_keys.saturating_sub(keys.removed));
        Ok((tally, keys, gone))
    }

    fn remove_batch(
        &mut self,
        mut doomed: Vec<RemovableSession>,
        tally: &mut Tally,
        keys: &mut Tally,
        gone: &mut RemovedSet,
    ) -> Result<(), GcError> {
        while !doomed.is_empty() {
            let (sent, mode) = (doomed.clone(), self.mode);
            let verdicts = self.run_step(|reply| GcStep::Remove(sent, mode, reply))?;
            for (one, verdict) in doomed.drain(..verdicts.len()).zip(verdicts) {
                if let Err(why) = verdict {
                    tally.retain(why, 1);
                    continue;
                }
                tally.remove(one.bytes);
                one.keys.iter().for_each(|key| keys.remove(key.len() as u64));
                gone.sessions.insert(SessionId::from_bits(one.session));
                gone.runs.extend(one.runs.into_iter().map(RunId::from_bits));
            }
        }
        Ok(())
    }

    /// Removes the remaining rows of removed sessions.
    fn remove_leftovers(&mut self) -> Result<(), GcError> {
        while self.mode == GcMode::Remove {
            let graves = self.collector.snapshot()?.tombstones()?;
            if graves.is_empty() {
                break;
            }
            for grave in graves {
                self.run_step(|reply| GcStep::RemoveRest(grave, reply))?;
            }
        }
        Ok(())
    }

    /// Removes the blobs without references; rows of removed sessions do not count as references.
    pub fn remove_blobs(&mut self, gone: &RemovedSet) -> Result<Tally, GcError> {
        self.run_step(GcStep::StartTracking)?;
        let care = self.collector.clone();
        let swept = care.guarded(|| self.sweep(gone));
        if let Ok(journal) = self.collector.journal() {
            journal.send_gc_step(GcStep::StopTracking);
        }
        swept
    }

    fn sweep(&mut self, gone: &RemovedSet) -> Result<Tally, GcError> {
        let mut tally = Tally::default();
        let (reader, blobs) = {
            let journal = self.collector.journal()?;
            (journal.reader()?, journal.blobs().clone())
        };
        let mut all = Vec::new();
        blobs.for_each(|blob, _| all.push(blob)).map_err(|error| GcError::Failed(error.to_string()))?;
        if all.is_empty() {
            return Ok(tally);
        }
        // After a real removal the removed sessions have no rows. A row with such an id would be a new one.
        let gone = if self.mode == GcMode::DryRun { gone } else { &RemovedSet::default() };
        let Some(referred) = mark::referenced_blobs(reader.txn(), gone)? else {
            tally.retain(why::UNKNOWN, all.len() as u64);
            return Ok(tally);
        };
        drop(reader);
        let before = all.len();
        all.retain(|blob| !referred.contains(blob));
        tally.retain(why::REFERRED, (before - all.len()) as u64);
        for slice in all.chunks(MAX_ROWS_PER_STEP) {
            let mode = self.mode;
            for freed in self.run_step(|reply| GcStep::Unlink(slice.to_vec(), mode, reply))? {
                match freed {
                    Ok(bytes) => tally.remove(bytes),
                    Err(why) => tally.retain(why, 1),
                }
            }
        }
        Ok(tally)
    }

    /// Sends a step to the committer, which runs it between two batches, and waits for its result.
    fn run_step<T>(&mut self, make_step: impl FnOnce(StepReplySender<T>) -> GcStep) -> Result<T, GcError> {
        let (reply, answer) = sync_channel(1);
        if !self.collector.journal()?.send_gc_step(make_step(reply)) {
            return Err(GcError::Closed);
        }
        let done = answer.recv().map_err(|_| GcError::Closed)?;
        self.max_append_wait = self.max_append_wait.max(done.took);
        done.result.map_err(GcError::Failed)
    }
}
