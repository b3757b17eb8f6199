//! Checks a store's file without changing it, and reads its schema, epoch and restore generation.

use std::{
    fs::{self, File},
    path::Path,
};

use redb::{ReadTransaction, ReadableDatabase};

use super::{overlay::CopyOnWriteFile, replace_store::RESTORE_GENERATION};
use crate::{
    files::IoResult as _,
    store::redb::{
        blobs::Blobs,
        check::{self, CheckReport, ReferencedFiles},
        engine::{Engine, EngineFile},
        error::{Result, ThrottleFn},
        open,
        previous_epoch::{EPOCH, SCHEMA_VERSION},
        tables::{META, open_existing},
    },
};

/// The content of a store's file, and what it refers to.
#[derive(Debug, Default)]
pub struct StoreContents {
    /// The version of its schema.
    pub schema: u64,
    /// Its last epoch.
    pub epoch: u64,
    /// How often the store was restored.
    pub restore_generation: u64,
    /// The report of the check, which does not look for the artifacts' files.
    pub checked: CheckReport,
}

/// Checks all of a store's file; its spilled values are in the folder `blobs`. Writes nothing. Blocks.
/// `throttle` gets the bytes that were checked. Fails if the file is no store, or one that this program does not know.
pub fn inspect(file: &Path, blobs: &Path, throttle: &mut ThrottleFn<'_>) -> Result<StoreContents> {
    let engine_file = EngineFile::new(file);
    let open = || -> Result<(Engine, StoreContents)> {
        let overlay = File::open(file).and_then(CopyOnWriteFile::new).at(file)?;
        let mut db = engine_file.open(overlay, open::CACHE_BYTES)?;
        let mut contents = StoreContents::default();
        engine_file.run(|| contents.read_meta(&db.begin_read()?))?;
        contents.checked = engine_file.run(|| check::pages(&mut db))?;
        Ok((db, contents))
    };
    let (db, mut contents) = open().map_err(|error| open::explain(file, error))?;
    // Upgrades an older schema in memory only.
    open::upgrade_schema(file, &db)?;
    let references = ReferencedFiles { blobs: &Blobs::new(blobs.to_owned()), artifacts: None };
    contents.checked = engine_file.run(|| check::rows(&db, contents.checked, references, throttle))?;
    contents.checked.counts.bytes = fs::metadata(file).at(file)?.len();
    Ok(contents)
}

impl StoreContents {
    fn read_meta(&mut self, txn: &ReadTransaction) -> Result<()> {
        // A store without `META` is reported by `upgrade_schema`, which explains it better.
        let Some(meta) = open_existing(txn, META)? else { return Ok(()) };
        let row = |key| -> Result<u64> { Ok(meta.get(key)?.map_or(0, |row| row.value())) };
        (self.schema, self.epoch, self.restore_generation) =
            (row(SCHEMA_VERSION)?, row(EPOCH)?, row(RESTORE_GENERATION)?);
        Ok(())
    }
}
