//! Checks a whole store: pages, log and index rows. Changes only what the engine itself repairs. The store is one that
//! no process has open (`hermod store check`), or the copy in a backup.

mod index;
mod log;
mod pass;

use std::path::Path;

use redb::{Database, ReadableDatabase};

use self::pass::CheckPass;
pub(super) use self::pass::ReferencedFiles;
pub use self::pass::{ArtifactLookup, CheckReport, StoreCounts};
use super::{
    damage::Damage,
    error::{Result, ThrottleFn},
    open::{self, OpenError},
};

/// Checks the store in `dir`, which no process may have open, and whose schema must be this program's. Blocks until all
/// of it is read.
pub fn check(dir: &Path, artifacts: ArtifactLookup<'_>) -> Result<CheckReport, OpenError> {
    open::with_locked_store(dir, |store| {
        let references = ReferencedFiles { blobs: &store.blobs, artifacts: Some(artifacts) };
        let mut checked = check_over(&mut store.db, references)?;
        checked.counts.bytes = store.bytes;
        Ok(checked)
    })
}

/// Checks a database that is open.
pub(super) fn check_over(db: &mut Database, references: ReferencedFiles<'_>) -> Result<CheckReport> {
    let checked = pages(db)?;
    rows(db, checked, references, &mut |_| Ok(()))
}

/// Checks the pages of the file.
pub(super) fn pages(db: &mut Database) -> Result<CheckReport> {
    let mut checked = CheckReport::default();
    if !db.check_integrity()? {
        let what =
            "what is free in the file is not what was noted; the engine puts it right when it opens it";
        checked.add_damage(Damage::store("pages", what));
    }
    Ok(checked)
}

/// Checks all rows; `checked` is the report of [`pages`].
pub(super) fn rows(
    db: &Database,
    checked: CheckReport,
    references: ReferencedFiles<'_>,
    throttle: &mut ThrottleFn<'_>,
) -> Result<CheckReport> {
    let txn = db.begin_read()?;
    let (facts, marks, owners) = Default::default();
    let mut pass =
        CheckPass { txn: &txn, checked, references, throttle, uncounted_bytes: 0, facts, marks, owners };
    pass.check_log()?;
    pass.check_index()?;
    pass.finish()
}
