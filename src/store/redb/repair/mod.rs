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
    error::Result,
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
    /// The damaged sessions that stay in the store. The rows that locate their records are rewritten, and rows of other
    /// sessions are removed from their logs.
    pub mended: Vec<SessionId>,
    /// The file of damaged rows that belong to no retained session, and their number.
    pub strays: Option<(PathBuf, u64)>,
}

/// A repair of the store in a state directory, after a check that found damages.
#[derive(Debug, Clone, Copy)]
pub struct Repair<'r> {
    /// The state directory. No process may have its store open.
    pub dir: &'r Path,
    /// The sessions to set aside.
    pub target: RepairTarget,
    /// The damages that the check found.
    pub damages: &'r [Damage],
    /// The time of the repair, as a part of the names of its files, so that a later repair overwrites none.
    pub stamp: &'r str,
}

impl Repair<'_> {
    /// Repairs the store. Blocks. With `dry_run` nothing is written.
    pub fn run(&self, dry_run: bool) -> Result<RepairReport, OpenError> {
        open::with_locked_store(self.dir, |store| self.run_on(store, dry_run))
    }

    fn run_on(&self, store: &LockedStore, dry_run: bool) -> Result<RepairReport> {
        let txn = store.db.begin_read()?;
        let survey = Survey::of(&txn, &store.blobs, self.target, self.damages)?;
        let mut report =
            RepairReport { mended: survey.mended.keys().copied().collect(), ..RepairReport::default() };
        for (owner, rows) in &survey.rows {
            let name = owner.map_or_else(|| "strays".to_owned(), |session| session.to_string());
            let path = self.dir.join(SET_ASIDE).join(format!("{name}-{}.jsonl", self.stamp));
            let lines =
                dump::write_rows(&txn, &store.blobs, *owner, rows, (!dry_run).then_some(path.as_path()))?;
            match owner {
                Some(session) => drop(report.sessions.insert(*session, (path, lines))),
                None => report.strays = Some((path, lines)),
            }
        }
        drop(txn);
        if !dry_run {
            erase::erase(&store.db, &survey)?;
        }
        Ok(report)
    }
}
