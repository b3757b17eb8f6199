//! The steps of gc that the committer's thread runs between two batches: they check again what `snapshot.rs` has selected,
//! and remove it.

use std::io;

use redb::ReadableTable;

use super::{
    super::{
        batch::CommitterState,
        blobs::BlobHash,
        committer::Committer,
        error::Result,
        journal::Durability,
        log::SessionTail,
        tables::{Tables, rows_of, runs_of},
    },
    snapshot::{RemovableSession, Tombstone},
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
    /// Removes as many of these sessions as one step may, at least one; returns an outcome for each that was reached.
    pub(super) fn remove_sessions(
        &mut self,
        removable: &[RemovableSession],
        mode: GcMode,
    ) -> Result<Vec<RemoveOutcome>> {
        let txn = self.begin_write()?;
        let (mut tables, mut outcomes, mut rows_left) = (Tables::of(&txn), Vec::new(), MAX_ROWS_PER_STEP);
        for removable in removable {
            let outcome = check_removable(&mut tables, &self.state, removable)?;
            if outcome.is_ok() && mode == GcMode::Remove {
                remove_session(&mut tables, removable, rows_left)?;
            }
            outcomes.push(outcome);
            rows_left = rows_left
                .saturating_sub(removable.rows.positions.len() + ROWS_PER_RUN * removable.runs.len());
            if rows_left == 0 {
                break;
            }
        }
        drop(tables);
        if mode == GcMode::Remove && outcomes.iter().any(Result::is_ok) {
            txn.commit()?;
            self.pending += u32::from(self.durability == Durability::Relaxed);
        } else {
            txn.abort()?;
        }
        Ok(outcomes)
    }

    /// Removes remaining rows of a removed session.
    pub(super) fn remove_rest(&mut self, tombstone: &Tombstone) -> Result<()> {
        let txn = self.begin_write()?;
        let mut tables = Tables::of(&txn);
        let tombstones = tables.tombstones()?;
        match tombstone.rows.next {
            // Rows before a lost one cannot be found: they stay.
            None | Some(0) => drop(tombstones.remove(tombstone.session.bits())?),
            Some(next) => drop(tombstones.insert(tombstone.session.bits(), next)?),
        }
        for position in &tombstone.rows.positions {
            tables.log()?.remove(position)?;
        }
        drop(tables);
        txn.commit()?;
        self.pending += u32::from(self.durability == Durability::Relaxed);
        Ok(())
    }

    /// Removes those of these blobs that the spiller has not stored again since this pass began.
    pub(super) fn unlink_blobs(&mut self, blobs: &[BlobHash], mode: GcMode) -> Vec<UnlinkOutcome> {
        // With relaxed durability a power loss can bring back removed rows, which refer to these blobs. So the removal of
        // rows is flushed first.
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
    state: &CommitterState,
    removable: &RemovableSession,
) -> Result<RemoveOutcome> {
    let session = removable.session;
    if state.is_open(session) {
        return Ok(Err(why::OPEN));
    }
    let tail = SessionTail::read(tables.tails()?, session)?;
    if tail != Some(removable.tail) || tables.tombstones()?.get(session.bits())?.is_some() {
        return Ok(Err(why::CHANGED));
    }
    let has_message = tables.inbox()?.range(rows_of(session))?.next().transpose()?.is_some();
    Ok(if has_message { Err(why::MESSAGE) } else { Ok(()) })
}

/// Removes every row that names the session, and at most `max_rows` log rows of its records.
fn remove_session(tables: &mut Tables<'_>, removable: &RemovableSession, max_rows: usize) -> Result<()> {
    let (session, bits) = (removable.session, removable.session.bits());
    tables.sessions()?.remove(bits)?;
    let key = tables.session_keys()?;
    if key.get(&*removable.key)?.is_some_and(|id| id.value() == bits) {
        key.remove(&*removable.key)?;
    }
    tables.tails()?.remove(bits)?;
    tables.marks()?.retain_in(rows_of(session), |_, _| false)?;
    tables.runs_by_session()?.retain_in(runs_of(session), |_, ()| false)?;
    for run in &removable.runs {
        tables.runs()?.remove(run)?;
        tables.accounts()?.remove(run)?;
    }
    tables.messages_by_session()?.retain_in(runs_of(session), |_, ()| false)?;
    for message in &removable.messages {
        tables.messages()?.remove(message)?;
    }
    for key in &removable.keys {
        tables.keys()?.remove(&**key)?;
    }
    let positions = &removable.rows.positions;
    let (now, later) = positions.split_at(positions.len().min(max_rows));
    for position in now {
        tables.log()?.remove(position)?;
    }
    if let Some(position) = later.first() {
        tables.tombstones()?.insert(bits, position)?;
    }
    Ok(())
}
