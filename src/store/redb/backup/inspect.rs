use std::{
    fs::{self, File},
    path::Path,
};

use redb::{ReadTransaction, ReadableDatabase};

use super::{copy::CopyError, overlay::Overlay, swap::LINEAGE};
use crate::store::redb::{
    blobs::Blobs,
    check::{self, Beside, Checked},
    engine::{Engine, EngineFile},
    fault::Fault,
    open,
    pace::Pace,
    past::{EPOCH, SCHEMA_VERSION},
    tables::META,
};

/// What there is in a store's file, and what it refers to.
#[derive(Debug, Default)]
pub struct Found {
    /// The version of its schema.
    pub schema: u64,
    /// Its last epoch.
    pub epoch: u64,
    /// How often it was restored.
    pub lineage: u64,
    /// All that a check finds, except whether the artifacts are there.
    pub checked: Checked,
}

/// Looks through all of a store's file, whose spilled values are in the folder `blobs`. Nothing is written. Blocks; `pace`
/// hears how many bytes were looked at. Fails if there is no store in the file, or one that this program does not know.
pub fn inspect(file: &Path, blobs: &Path, pace: &mut Pace<'_>) -> Result<Found, CopyError> {
    let explain = |fault| open::explain(file.parent().unwrap_or(file), file, fault);
    let guard = EngineFile::new(file);
    let open = || -> Result<(Engine, Found), Fault> {
        let overlay = File::open(file).and_then(Overlay::new).map_err(Fault::at(file))?;
        let mut db = guard.open(overlay, open::CACHE)?;
        let mut found = Found::default();
        guard.run(|| found.tell(&db.begin_read()?))?;
        found.checked = guard.run(|| check::pages(&mut db))?;
        Ok((db, found))
    };
    let (db, found) = open().map_err(|fault| CopyError::Unfit(explain(fault)))?;
    // Brings an older schema up to date, in memory alone.
    open::bring_up(file, &db).map_err(CopyError::Unfit)?;
    let beside = Beside { blobs: &Blobs::new(blobs.to_owned()), artifacts: None };
    let mut checked = guard.run(|| check::rows((&db, found.checked), beside, pace))?;
    checked.counts.bytes = fs::metadata(file).map_err(Fault::at(file))?.len();
    Ok(Found { checked, ..found })
}

impl Found {
    fn tell(&mut self, txn: &ReadTransaction) -> Result<(), Fault> {
        let meta = match txn.open_table(META) {
            // What opens it says better what it is.
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(()),
            meta => meta?,
        };
        let row = |key| -> Result<u64, Fault> { Ok(meta.get(key)?.map_or(0, |row| row.value())) };
        (self.schema, self.epoch, self.lineage) = (row(SCHEMA_VERSION)?, row(EPOCH)?, row(LINEAGE)?);
        Ok(())
    }
}
