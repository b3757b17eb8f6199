//! The steps of gc that the committer's thread runs between two batches: they check again what `plan.rs` has selected,
//! and remove it.

use std::io;

use redb::ReadableTable;

use super::{
    super::{
        batch::CommitterState,
        blobs::BlobHash,
        committer::Committer,
        error::StoreError,
        journal::Durability,
        log::SessionTail,
        tables::{Tables, rows_of, runs_of},
    },
    plan::{RemovableSession, Tombstone},
    tally::{GcMode, why},
};

/// Maximum number of log rows or files that one step removes, which takes about a millisecond. Each row lies on a page
/// of its own.
pub(super) const MAX_ROWS_PER_STEP: usize = 96;
/// Index rows of a run.
const ROWS_PER_RUN: usize = 4;

/// A step of gc: runs on the committer's thread, between two batches.
pub(in super::super) type GcStep = Box<dyn FnOnce(&mut Committer) + Send>;

/// Whether a session was removed, or the reason why not.
type RemoveOutcome = Result<(), &'static str>;
/// The bytes of a removed blob, or the reason why it stays.
type UnlinkOutcome = Result<u64, &'static str>;

impl Committer {
    /// Makes the removals durable.
    pub(in super::super) fn flush_removals(&mut self) -> Result<(), String> {
        self.flush_acknowledged();
        self.unless_failed(|_| Ok(()))
    }

    /// Runs `work`, unless an earlier commit failed.
    pub(super) fn unless_failed<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, String> {
        if let Some(failed) = &self.failure {
            return Err(format!("an earlier commit failed: {failed}"));
        }
        self.file().run(|| work(self)).map_err(|fault| self.fail(&fault))
    }

    /// Removes as many of these sessions as one step may, at least one; returns an outcome for each that was reached.
    pub(super) fn remove_sessions(
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
            room = room.saturating_sub(doomed.rows.positions.len() + ROWS_PER_RUN * doomed.runs.len());
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

    /// Removes remaining rows of a removed session.
    pub(super) fn remove_rest(&mut self, grave: &Tombstone) -> Result<(), StoreError> {
        let txn = self.begin_write()?;
        let mut tables = Tables::of(&txn);
        let graves = tables.graves.open()?;
        match grave.rows.next {
            // Rows before a lost one cannot be found: they stay.
            None | Some(0) => drop(graves.remove(grave.session.bits())?),
            Some(next) => drop(graves.insert(grave.session.bits(), next)?),
        }
        for place in &grave.rows.positions {
            tables.log.open()?.remove(place)?;
        }
        drop(tables);
        txn.commit()?;
        self.pending += u32::from(self.durability == Durability::Relaxed);
        Ok(())
    }

    /// Removes those of these blobs that were not stored since the tracking started.
    pub(super) fn unlink_blobs(&mut self, blobs: &[BlobHash], mode: GcMode) -> Vec<UnlinkOutcome> {
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

/// Whether the session is unchanged since the snapshot, not open, and without unread messages.
fn check_removable(
    tables: &mut Tables<'_>,
    memory: &CommitterState,
    doomed: &RemovableSession,
) -> Result<RemoveOutcome, StoreError> {
    let session = doomed.session;
    if memory.is_open(session) {
        return Ok(Err(why::OPEN));
    }
    let tail = SessionTail::read(tables.tails.open()?, session)?;
    if tail != Some(doomed.tail) || tables.graves.open()?.get(session.bits())?.is_some() {
        return Ok(Err(why::CHANGED));
    }
    let waits = tables.inbox.open()?.range(rows_of(session))?.next().transpose()?.is_some();
    Ok(if waits { Err(why::MESSAGE) } else { Ok(()) })
}

/// Removes every row that names the session, and at most `room` log rows of its records.
fn remove_session(tables: &mut Tables<'_>, doomed: &RemovableSession, room: usize) -> Result<(), StoreError> {
    let (session, bits) = (doomed.session, doomed.session.bits());
    tables.sessions.open()?.remove(bits)?;
    let key = tables.session_keys.open()?;
    if key.get(&*doomed.key)?.is_some_and(|id| id.value() == bits) {
        key.remove(&*doomed.key)?;
    }
    tables.tails.open()?.remove(bits)?;
    tables.marks.open()?.retain_in(rows_of(session), |_, _| false)?;
    tables.runs_by_session.open()?.retain_in(runs_of(session), |_, ()| false)?;
    for run in &doomed.runs {
        tables.runs.open()?.remove(run)?;
        tables.accounts.open()?.remove(run)?;
    }
    for key in &doomed.keys {
        tables.keys.open()?.remove(&**key)?;
    }
    let positions = &doomed.rows.positions;
    let (now, later) = positions.split_at(positions.len().min(room));
    for place in now {
        tables.log.open()?.remove(place)?;
    }
    if let Some(place) = later.first() {
        tables.graves.open()?.insert(bits, place)?;
    }
    Ok(())
}
