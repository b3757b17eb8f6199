//! Looks at all of a store, and changes nothing but what the engine itself can repair: one that nobody holds
//! (`hermod store check`), or the copy in a backup.

mod index;
mod log;
mod pass;

use std::path::Path;

use redb::{Database, ReadableDatabase};

pub(super) use self::pass::Beside;
use self::pass::Pass;
pub use self::pass::{Artifacts, Checked, Counts};
use super::{
    damage::Damage,
    fault::Fault,
    open::{self, OpenError},
    pace::Pace,
};

/// Checks the store in `dir`, which no process may have open, and which this program or one of the same schema has written.
/// Blocks, for as long as it takes to read it.
pub fn check(dir: &Path, artifacts: Artifacts<'_>) -> Result<Checked, OpenError> {
    let mut held = open::hold(dir)?;
    let beside = Beside { blobs: &held.blobs, artifacts: Some(artifacts) };
    let file = held.db.file().clone();
    let checked = file.run(|| check_over(&mut held.db, beside)).map_err(|fault| held.explain(fault))?;
    Ok(Checked { counts: Counts { bytes: held.bytes, ..checked.counts }, ..checked })
}

/// Likewise, in a database that is open.
pub(super) fn check_over(db: &mut Database, beside: Beside<'_>) -> Result<Checked, Fault> {
    let checked = pages(db)?;
    rows((db, checked), beside, &mut |_| Ok(()))
}

/// Looks at the pages of the file.
pub(super) fn pages(db: &mut Database) -> Result<Checked, Fault> {
    let mut checked = Checked::default();
    if !db.check_integrity()? {
        let what =
            "what is free in the file is not what was noted; the engine puts it right when it opens it";
        checked.damage(Damage::store("pages", what));
    }
    Ok(checked)
}

/// Looks at all rows, after the pages.
pub(super) fn rows(
    (db, checked): (&Database, Checked),
    beside: Beside<'_>,
    pace: &mut Pace<'_>,
) -> Result<Checked, Fault> {
    let txn = db.begin_read()?;
    let mut pass = Pass::new((&txn, checked), beside, pace);
    let facts = log::look(&mut pass)?;
    index::look(&mut pass, &facts)?;
    pass.end()
}
