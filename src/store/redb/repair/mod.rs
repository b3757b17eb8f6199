//! Repairs a store that no process has open, by setting damaged sessions aside.
//! All that names such a session is written to a file, then removed from the store in one transaction. A kill in
//! between leaves the store as it was, and an extra file.

mod dump;
mod erase;
mod survey;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use hermod_actors::model::SessionId;
use redb::ReadableDatabase;

use self::survey::Survey;
use super::{
    damage::Damage,
    error::StoreError,
    open::{self, LockedStore, OpenError},
};

/// The folder of the state directory for sessions that were set aside.
pub const SET_ASIDE: &str = "set-aside";

/// The sessions to set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairTarget {
    /// This session, damaged or not.
    Session(SessionId),
    /// All damaged sessions, and damaged rows that belong to no session.
    All,
}

/// The changes of a repair, or of a dry run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// The sessions set aside, each with its file and the number of rows in it.
    pub sessions: BTreeMap<SessionId, (PathBuf, u64)>,
    /// The retained sessions whose tail and marks are rewritten, and from whose log foreign rows are removed.
    pub mended: Vec<SessionId>,
    /// The file of damaged rows that belong to no retained session, and their number.
    pub strays: Option<(PathBuf, u64)>,
}

/// Repairs the store in `dir`, which no process may have open, after a check that found `damages`. Blocks.
/// `stamp` becomes part of the file names. With `dry_run` nothing is written.
pub fn repair(
    dir: &Path,
    (target, damages): (RepairTarget, &[Damage]),
    (stamp, dry_run): (&str, bool),
) -> Result<RepairReport, OpenError> {
    let held = open::lock_store(dir)?;
    let work = || repair_locked(&held, (dir, target, damages), (stamp, dry_run));
    held.db.file().run(work).map_err(|fault| held.explain(fault))
}

fn repair_locked(
    held: &LockedStore,
    (dir, target, damages): (&Path, RepairTarget, &[Damage]),
    (stamp, dry_run): (&str, bool),
) -> Result<RepairReport, StoreError> {
    let txn = held.db.begin_read()?;
    let survey = Survey::of(&txn, &held.blobs, target, damages)?;
    let folder = dir.join(SET_ASIDE);
    let mut repaired =
        RepairReport { mended: survey.mended.keys().copied().collect(), ..RepairReport::default() };
    for session in &survey.removable {
        let path = folder.join(format!("{session}-{stamp}.jsonl"));
        let rows = dump::session((&txn, &held.blobs), &survey, *session, (!dry_run).then_some(&*path))?;
        repaired.sessions.insert(*session, (path, rows));
    }
    if !survey.strays.is_empty() {
        let path = folder.join(format!("strays-{stamp}.jsonl"));
        let rows = dump::strays((&txn, &held.blobs), &survey, (!dry_run).then_some(&*path))?;
        repaired.strays = Some((path, rows));
    }
    drop(txn);
    if !dry_run {
        erase::erase(&held.db, &survey)?;
    }
    Ok(repaired)
}
