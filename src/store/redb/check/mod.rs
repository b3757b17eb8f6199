//! Looks at all of a store that nobody holds, and changes nothing but what the engine itself can repair.

mod index;
mod log;

use std::{io, path::Path};

use hermod_actors::{model::SessionId, port::Presence};
use redb::{Database, ReadableDatabase};

use super::{
    blobs::Blobs,
    damage::Damage,
    fault::Fault,
    open::{self, OpenError},
};

/// So much damage is told one by one.
const TOLD: usize = 1_000;

/// What a check has looked at, and what is wrong.
#[derive(Debug, Default)]
pub struct Checked {
    /// How much was looked at.
    pub counts: Counts,
    /// What is wrong; of much, the first 1,000.
    pub damages: Vec<Damage>,
    /// How much more is wrong.
    pub more: u64,
}

/// How much a check has looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Bytes of the store's file.
    pub bytes: u64,
    /// Sessions with records.
    pub sessions: u64,
    /// Records.
    pub records: u64,
    /// Rows of the log, of some records each.
    pub rows: u64,
    /// Rows of runs.
    pub runs: u64,
    /// Those that have not ended.
    pub open_runs: u64,
    /// Accounts.
    pub accounts: u64,
    /// Messages that wait in inboxes.
    pub inbox: u64,
    /// Idempotency keys.
    pub keys: u64,
    /// References to values in files of their own.
    pub blobs: u64,
    /// References to artifacts.
    pub artifacts: u64,
}

impl Checked {
    fn damage(&mut self, damage: Damage) {
        if self.damages.len() < TOLD {
            self.damages.push(damage);
        } else {
            self.more += 1;
        }
    }
}

/// Says what there is of an artifact of a session.
pub type Artifacts<'a> = &'a dyn Fn(SessionId, &str) -> io::Result<Presence>;

/// Checks the store in `dir`, which no process may have open, and which this program or one of the same schema has written.
/// Blocks, for as long as it takes to read it.
pub fn check(dir: &Path, artifacts: Artifacts<'_>) -> Result<Checked, OpenError> {
    let mut held = open::hold(dir)?;
    let checked = check_over(&mut held.db, &held.blobs, artifacts).map_err(|fault| held.explain(fault))?;
    Ok(Checked { counts: Counts { bytes: held.bytes, ..checked.counts }, ..checked })
}

/// Likewise, in a database that is open.
pub(super) fn check_over(
    db: &mut Database,
    blobs: &Blobs,
    artifacts: Artifacts<'_>,
) -> Result<Checked, Fault> {
    let mut checked = Checked::default();
    if !db.check_integrity()? {
        let what = "what is free in the file was not what was noted; it has been put right";
        checked.damage(Damage::store("pages", what));
    }
    let txn = db.begin_read()?;
    let mut look = log::Look::new(&mut checked, blobs, artifacts);
    look.rows(&txn)?;
    look.ends(&txn)?;
    let facts = look.facts;
    index::look(&txn, &facts, blobs, &mut checked)?;
    Ok(checked)
}
