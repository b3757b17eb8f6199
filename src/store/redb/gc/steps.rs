//! The steps of gc that the committer's thread runs between two batches.

use std::{io, sync::mpsc::SyncSender, time::Duration};

use hermod_actors::model::SessionId;
use redb::ReadableTable;
use tokio::time::Instant;

use super::{
    super::{
        batch::CommitterState,
        blobs::BlobHash,
        committer::Committer,
        error::StoreError,
        journal::Durability,
        tables::{CompositeKey, Tables},
    },
    plan::{RemovableSession, Tombstone},
    tally::{GcMode, why},
};

/// Maximum number of log rows or files that one step removes, which takes about a millisecond. Each row lies on a page
/// of its own.
pub(super) const MAX_ROWS_PER_STEP: usize = 96;
/// Index rows of a run.
const ROWS_PER_RUN: usize = 4;

/// A step of gc, run by the committer.
pub(in super::super) enum GcStep {
    /// Tracks every blob that is stored from now on.
    StartTracking(StepReplySender<()>),
    /// Removes as many of these sessions as one step may, at least one; the reply has one outcome for each that was
    /// reached.
    Remove(Vec<RemovableSession>, GcMode, StepReplySender<Vec<RemoveOutcome>>),
    /// Removes remaining rows of a removed session.
    RemoveRest(Tombstone, StepReplySender<()>),
    /// Removes those of these blobs that were not stored since the tracking started.
    Unlink(Vec<BlobHash>, GcMode, StepReplySender<Vec<UnlinkOutcome>>),
    /// Makes the removals durable.
    Flush(StepReplySender<()>),
    /// Ends the tracking.
    StopTracking,
}

/// Sends a step's result to the waiting pass.
pub(in super::super) type StepReplySender<T> = SyncSender<StepResult<T>>;

/// The result of a step, and the time for which it kept writes waiting.
pub(in super::super) struct StepResult<T> {
    pub(in super::super) result: Result<T, String>,
    pub(super) took: Duration,
}

/// Whether a session was removed, or the reason why not.
pub(in super::super) type RemoveOutcome = Result<(), &'static str>;
/// The bytes of a removed blob, or the reason why it stays.
pub(in super::super) type UnlinkOutcome = Result<u64, &'static str>;

impl Committer {
    pub(in super::super) fn run_gc_step(&mut self, gc_step: GcStep) {
        let begun = Instant::now();
        match gc_step {
            GcStep::StartTracking(reply) => {
                self.spiller.start_tracking();
                send_result(&reply, begun, Ok(()));
            }
            GcStep::Remove(doomed, mode, reply) => {
                let done = self.unless_failed(|this| this.remove_sessions(&doomed, mode));
                send_result(&reply, begun, done);
            }
            GcStep::RemoveRest(grave, reply) => {
                let done = self.unless_failed(|this| this.remove_rest(&grave));
                send_result(&reply, begun, done);
            }
            GcStep::Unlink(blobs, mode, reply) => {
                let done = self.unless_failed(|this| Ok(this.unlink_blobs(&blobs, mode)));
                send_result(&reply, begun, done);
            }
            GcStep::Flush(reply) => {
                self.flush_acknowledged();
                let done = self.unless_failed(|_| Ok(()));
                send_result(&reply, begun, done);
            }
            GcStep::StopTracking => self.spiller.stop_tracking(),
        }
    }

    fn unless_failed<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, String> {
        if let Some(failed) = &self.failure {
            return Err(format!("an earlier commit failed: {failed}"));
        }
        self.file().run(|| work(self)).map_err(|fault| self.fail(&fault))
    }

    fn remove_sessions(
        &mut self,
        doomed: &[RemovableSession],
        mode: GcMode,
    ) -> Result<Vec<RemoveOutcome>, StoreError> {
        let txn = self.begin_write()?;
        let (mut tables, mut verdicts, mut room) = (Tables::of(&txn), Vec::new(), MAX_ROWS_PER_STEP);
        for doomed in doomed {
            let verdict = check_removable(&mut tables, &self.state, doomed)?;
            if verdict.is_ok() && mode == GcMode::Remove {
                remove_session(&mut tables, doomed, room)?;
            }
            verdicts.push(verdict);
            room = room.saturating_sub(doomed.positions.len() + ROWS_PER_RUN * doomed.runs.len());
            if room == 0 {
                break;
            }
        }
        drop(tables);
        if mode == GcMode::Remove && verdicts.iter().any(Result::is_ok) {
            txn.commit()?;
            self.pending += u32::from(self.durability == Durability::Relaxed);
        } else {
            txn.abort()?;
        }
        Ok(verdicts)
    }

    fn remove_rest(&mut self, grave: &Tombstone) -> Result<(), StoreError> {
        let txn = self.begin_write()?;
        let mut tables = Tables::of(&txn);
        for place in &grave.positions {
            tables.log.open()?.remove(place)?;
        }
        match grave.next {
            0 => drop(tables.graves.open()?.remove(grave.session)?),
            next => drop(tables.graves.open()?.insert(grave.session, next)?),
        }
        drop(tables);
        txn.commit()?;
        self.pending += u32::from(self.durability == Durability::Relaxed);
        Ok(())
    }

    fn unlink_blobs(&mut self, blobs: &[BlobHash], mode: GcMode) -> Vec<UnlinkOutcome> {
        // With relaxed durability, a power loss would bring back rows that refer to more blobs than the searched
        // snapshot does.
        self.flush_acknowledged();
        let unlink = |blob: &BlobHash| match (self.failure.is_none() && self.spiller.is_removable(blob), mode)
        {
            (false, _) => Err(why::REFERRED),
            (true, GcMode::Remove) => unlink_outcome(self.spiller.unlink(blob)),
            (true, GcMode::DryRun) => unlink_outcome(self.spiller.length(blob)),
        };
        blobs.iter().map(unlink).collect()
    }
}

fn unlink_outcome(bytes: io::Result<u64>) -> UnlinkOutcome {
    bytes.map_err(|error| {
        tracing::warn!(%error, "a blob that nothing refers to stays");
        why::REFUSED
    })
}

fn send_result<T>(reply: &StepReplySender<T>, begun: Instant, result: Result<T, String>) {
    // The receiver may be dropped.
    let _ = reply.send(StepResult { result, took: begun.elapsed() });
}

/// Whether the session is unchanged since the snapshot, not open, and without unread messages.
fn check_removable(
    tables: &mut Tables<'_>,
    memory: &CommitterState,
    doomed: &RemovableSession,
) -> Result<RemoveOutcome, StoreError> {
    let bits = doomed.session;
    if memory.is_open(SessionId::from_bits(bits)) {
        return Ok(Err(why::OPEN));
    }
    let tail = tables.tails.open()?.get(bits)?.map(|tail| tail.value());
    if tail != Some(doomed.tail) || tables.graves.open()?.get(bits)?.is_some() {
        return Ok(Err(why::CHANGED));
    }
    let waits = tables.inbox.open()?.range(session_range(bits))?.next().transpose()?.is_some();
    Ok(if waits { Err(why::MESSAGE) } else { Ok(()) })
}

/// Removes every row that names the session, and at most `room` log rows of its records.
fn remove_session(tables: &mut Tables<'_>, doomed: &RemovableSession, room: usize) -> Result<(), StoreError> {
    let bits = doomed.session;
    tables.sessions.open()?.remove(bits)?;
    let key = tables.session_keys.open()?;
    if key.get(&*doomed.key)?.is_some_and(|id| id.value() == bits) {
        key.remove(&*doomed.key)?;
    }
    tables.tails.open()?.remove(bits)?;
    tables.marks.open()?.retain_in(session_range(bits), |_, _| false)?;
    tables.runs_by_session.open()?.retain_in((bits, 0)..=(bits, u128::MAX), |_, ()| false)?;
    for run in &doomed.runs {
        tables.runs.open()?.remove(run)?;
        tables.accounts.open()?.remove(run)?;
    }
    for key in &doomed.keys {
        tables.keys.open()?.remove(&**key)?;
    }
    let (now, later) = doomed.positions.split_at(doomed.positions.len().min(room));
    for place in now {
        tables.log.open()?.remove(place)?;
    }
    if let Some(place) = later.first() {
        tables.graves.open()?.insert(bits, place)?;
    }
    Ok(())
}

const fn session_range(session: u128) -> std::ops::RangeInclusive<CompositeKey> {
    (session, 0)..=(session, u64::MAX)
}
