//! The public interface of gc: one pass at a time, made of steps that the committer runs.

use std::{
    collections::HashSet,
    sync::{Arc, Weak, mpsc::sync_channel},
    time::Duration,
};

use hermod_actors::model::{RunId, SessionId, Timestamp};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    super::{committer::Committer, error::StoreError, journal::RedbJournal},
    footprint::{self, StoreFootprint},
    mark,
    snapshot::{GcSnapshot, RemovableSession},
    steps::MAX_ROWS_PER_STEP,
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
    fn from(error: StoreError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Garbage collection of a store that is open in this process. Does not keep the store open. All methods block.
#[derive(Debug, Clone)]
pub struct GarbageCollector {
    pub(in super::super) journal: Weak<RedbJournal>,
}

/// The sessions that this pass removed, or would remove.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RemovedSet {
    /// The removed sessions.
    pub sessions: HashSet<SessionId>,
    /// Their runs.
    pub runs: HashSet<RunId>,
}

/// What was removed with a session; otherwise a session that must stay, and why.
pub type SessionRemovalResult = Result<RemovedSet, (SessionId, &'static str)>;

impl GarbageCollector {
    /// Starts a pass; fails with [`GcError::Busy`] while another pass or a backup is under way.
    pub fn start(&self, mode: GcMode) -> Result<GcPass, GcError> {
        let gate = Arc::clone(&self.journal()?.gc_gate);
        let permit = gate.try_acquire_owned().map_err(|_| GcError::Busy)?;
        Ok(GcPass { collector: self.clone(), mode, max_append_wait: Duration::ZERO, _exclusive: permit })
    }

    /// The disk usage of the store's file. Reads all of it.
    pub fn footprint(&self) -> Result<StoreFootprint, GcError> {
        let snapshot = self.snapshot()?;
        let file = &snapshot.reader.file;
        Ok(file.run(|| footprint::measure(snapshot.txn(), &file.path))?)
    }

    /// Reads the store; adds file and remedy to errors of damaged pages.
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T, GcError>) -> Result<T, GcError> {
        let file = self.journal()?.db.file.clone();
        file.catch(work)?.map_err(|error| match (error, file.known_damage()) {
            (GcError::Failed(_), Some(error)) => error.into(),
            (error, _) => error,
        })
    }

    fn journal(&self) -> Result<Arc<RedbJournal>, GcError> {
        self.journal.upgrade().ok_or(GcError::Closed)
    }

    fn snapshot(&self) -> Result<GcSnapshot, GcError> {
        Ok(GcSnapshot { reader: self.journal()?.reader()? })
    }
}

/// A gc pass under way.
#[derive(Debug)]
pub struct GcPass {
    collector: GarbageCollector,
    /// Whether the pass removes or only reports.
    pub mode: GcMode,
    /// The longest time that appends waited for a step.
    pub max_append_wait: Duration,
    _exclusive: OwnedSemaphorePermit,
}

impl GcPass {
    /// A snapshot of now.
    pub fn snapshot(&self) -> Result<GcSnapshot, GcError> {
        self.collector.snapshot()
    }

    /// Removes the sessions whose last record is not newer than `before`, and the rest of sessions that an earlier pass
    /// removed; `None` keeps all sessions.
    /// Returns the tally of sessions, the tally of their idempotency keys, and the removed set.
    /// The removal is durable on return, so that files of these sessions can be removed.
    pub fn remove_sessions(
        &mut self,
        before: Option<Timestamp>,
    ) -> Result<(Tally, Tally, RemovedSet), GcError> {
        let collector = self.collector.clone();
        let done = collector.guarded(|| self.expire(before))?;
        if self.mode == GcMode::Remove {
            self.run_step(|committer| {
                committer.flush_acknowledged();
                Ok(())
            })?;
        }
        Ok(done)
    }

    /// Removes a session and those of its subagents, whatever their age. Returns the removed set, or a session
    /// that must stay and why: then all of them stay, unless that one has changed meanwhile. The removal is durable on return.
    pub fn remove_session(&mut self, session: SessionId) -> Result<SessionRemovalResult, GcError> {
        let collector = self.collector.clone();
        let removed = collector.guarded(|| self.remove_tree(session))?;
        self.run_step(|committer| {
            committer.flush_acknowledged();
            Ok(())
        })?;
        Ok(removed)
    }

    fn remove_tree(&mut self, session: SessionId) -> Result<SessionRemovalResult, GcError> {
        self.remove_leftovers()?;
        let found = match self.snapshot()?.with_subagents(session)? {
            Ok(found) => found,
            Err(why) => return Ok(Err((session, why))),
        };
        let snapshot = self.snapshot()?;
        let found: Result<Option<Vec<RemovableSession>>, _> =
            found.into_iter().map(|one| snapshot.removable(one)).collect();
        drop(snapshot);
        let Some(found) = found? else { return Ok(Err((session, why::UNREADABLE))) };
        // Nothing is removed if one of them is open. Those of subagents go first: no account loses its parent.
        for mode in [GcMode::DryRun, GcMode::Remove] {
            self.mode = mode;
            let mut removed = RemovedSet::default();
            for one in &found {
                let (mut tally, mut keys) = (Tally::default(), Tally::default());
                self.remove_batch(vec![one.clone()], &mut tally, &mut keys, &mut removed)?;
                if let Some(why) = tally.retained.keys().next() {
                    return Ok(Err((one.session, why)));
                }
            }
            if mode == GcMode::Remove {
                self.remove_leftovers()?;
                return Ok(Ok(removed));
            }
        }
        Ok(Ok(RemovedSet::default()))
    }

    fn expire(&mut self, before: Option<Timestamp>) -> Result<(Tally, Tally, RemovedSet), GcError> {
        let (mut tally, mut keys, mut removed) = (Tally::default(), Tally::default(), RemovedSet::default());
        self.remove_leftovers()?;
        let all_keys = self.snapshot()?.keys()?;
        let Some(before) = before else {
            tally.retain(why::FOREVER, self.snapshot()?.sessions()?);
            keys.retain(why::RUN, all_keys);
            return Ok((tally, keys, removed));
        };
        let mut expired = self.snapshot()?.expired(before, &mut tally)?.into_iter();
        loop {
            let mut removable = Vec::new();
            // A snapshot prevents the engine from reusing freed pages: it is dropped as soon as possible.
            let snapshot = self.snapshot()?;
            for expired in expired.by_ref().take(SESSIONS_PER_SNAPSHOT) {
                match snapshot.removable(expired)? {
                    Some(session) => removable.push(session),
                    None => tally.retain(why::UNREADABLE, 1),
                }
            }
            drop(snapshot);
            if removable.is_empty() && expired.len() == 0 {
                break;
            }
            self.remove_batch(removable, &mut tally, &mut keys, &mut removed)?;
            self.remove_leftovers()?;
        }
        keys.retain(why::RUN, all_keys.saturating_sub(keys.removed));
        Ok((tally, keys, removed))
    }

    fn remove_batch(
        &mut self,
        mut removable: Vec<RemovableSession>,
        tally: &mut Tally,
        keys: &mut Tally,
        removed: &mut RemovedSet,
    ) -> Result<(), GcError> {
        while !removable.is_empty() {
            let (batch, mode) = (removable.clone(), self.mode);
            let outcomes = self.run_step(move |committer| committer.remove_sessions(&batch, mode))?;
            for (session, outcome) in removable.drain(..outcomes.len()).zip(outcomes) {
                if let Err(why) = outcome {
                    tally.retain(why, 1);
                    continue;
                }
                tally.remove(session.rows.bytes);
                session.keys.iter().for_each(|key| keys.remove(key.len() as u64));
                removed.sessions.insert(session.session);
                removed.runs.extend(session.runs.into_iter().map(RunId::from_bits));
            }
        }
        Ok(())
    }

    /// Removes the remaining rows of removed sessions.
    fn remove_leftovers(&mut self) -> Result<(), GcError> {
        while self.mode == GcMode::Remove {
            let tombstones = self.snapshot()?.tombstones()?;
            if tombstones.is_empty() {
                break;
            }
            for tombstone in tombstones {
                self.run_step(move |committer| committer.remove_rest(&tombstone))?;
            }
        }
        Ok(())
    }

    /// Removes the blobs without references; rows of removed sessions do not count as references.
    pub fn remove_blobs(&mut self, removed: &RemovedSet) -> Result<Tally, GcError> {
        self.run_step(|committer| {
            committer.spiller.tracked = Some(HashSet::new());
            Ok(())
        })?;
        let collector = self.collector.clone();
        let tally = collector.guarded(|| self.sweep(removed));
        if let Ok(journal) = self.collector.journal() {
            journal.send_gc_step(Box::new(|committer| committer.spiller.tracked = None));
        }
        tally
    }

    fn sweep(&mut self, removed: &RemovedSet) -> Result<Tally, GcError> {
        let mut tally = Tally::default();
        let snapshot = self.snapshot()?;
        let mut all = snapshot.reader.blobs.all().map_err(|error| GcError::Failed(error.to_string()))?;
        if all.is_empty() {
            return Ok(tally);
        }
        // After a real removal the removed sessions have no rows. A row with such an id would be a new one.
        let removed = if self.mode == GcMode::DryRun { removed } else { &RemovedSet::default() };
        let Some(referenced) = mark::referenced_blobs(snapshot.txn(), removed)? else {
            tally.retain(why::UNKNOWN, all.len() as u64);
            return Ok(tally);
        };
        drop(snapshot);
        let before = all.len();
        all.retain(|blob| !referenced.contains(blob));
        tally.retain(why::REFERRED, (before - all.len()) as u64);
        for slice in all.chunks(MAX_ROWS_PER_STEP) {
            let (slice, mode) = (slice.to_vec(), self.mode);
            let freed = self.run_step(move |committer| Ok(committer.unlink_blobs(&slice, mode)))?;
            for freed in freed {
                match freed {
                    Ok(bytes) => tally.remove(bytes),
                    Err(why) => tally.retain(why, 1),
                }
            }
        }
        Ok(tally)
    }

    /// Sends a step to the committer, which runs it between two batches, and waits for its result.
    fn run_step<T: Send + 'static>(
        &mut self,
        step: impl FnOnce(&mut Committer) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, GcError> {
        let (reply, answer) = sync_channel(1);
        let timed = move |committer: &mut Committer| {
            let started = tokio::time::Instant::now();
            let result = committer.unless_failed(step);
            // The receiver may be dropped.
            let _ = reply.send((result, started.elapsed()));
        };
        if !self.collector.journal()?.send_gc_step(Box::new(timed)) {
            return Err(GcError::Closed);
        }
        let (result, elapsed) = answer.recv().map_err(|_| GcError::Closed)?;
        self.max_append_wait = self.max_append_wait.max(elapsed);
        result.map_err(GcError::Failed)
    }
}
