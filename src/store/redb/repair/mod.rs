//! Sets damaged sessions of a store that no process holds aside: all that names one is written into a file, then removed
//! from the store in one transaction. A kill in between leaves the store as it was, and a file too many.

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

/// The folder in the state directory for what was set aside.
pub const SET_ASIDE: &str = "set-aside";

/// Which sessions are set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairTarget {
    /// This one, damaged or not.
    Session(SessionId),
    /// Each that is damaged; and damaged rows that belong to no session.
    All,
}

/// What a repair removes, or would.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// The sessions that are set aside: the file of each, and how many rows went into it.
    pub sessions: BTreeMap<SessionId, (PathBuf, u64)>,
    /// The sessions that stay and whose marks, or rows that only claim to be theirs, are put right.
    pub mended: Vec<SessionId>,
    /// Damaged rows that belong to no session that stays: how many, and their file.
    pub strays: Option<(PathBuf, u64)>,
}

/// Repairs the store in `dir`, which no process may have open, after a check that found `damages`. `stamp` is part of the
/// names of files. With `dry_run` nothing is written. Blocks.
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
    let survey = Survey::of(&txn, &held.blobs, (target, damages))?;
    let folder = dir.join(SET_ASIDE);
    let mut repaired =
        RepairReport { mended: survey.mended.keys().copied().collect(), ..RepairReport::default() };
    for session in &survey.removable {
        let path = folder.join(format!("{session}-{stamp}.jsonl"));
        let rows = dump::session((&txn, &held.blobs), (&survey, *session), (!dry_run).then_some(&*path))?;
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
