//! How a process leaves the store and how the next one finds it: schema, epoch, and kind of shutdown. After another
//! boot of the machine, the file is checked.

use std::path::Path;

use hermod_actors::port::Clock;
use redb::{Database, ReadableDatabase, TableHandle};

use super::{
    error::Result,
    open::{OpenError, SCHEMA},
    tables::{META, open_existing},
};
use crate::clock::SystemClock;

pub(super) const SCHEMA_VERSION: &str = "schema_version";
/// Incremented by every opening, except those for inspection and repair.
pub(super) const EPOCH: &str = "epoch";
/// The boot of the machine in which the epoch started.
pub(super) const BOOT: &str = "boot";
/// The last epoch with a clean shutdown.
const LAST_CLEAN_EPOCH: &str = "closed";
/// Larger files are not read as a whole when they are opened; up to this size it takes less than a second.
const MAX_CHECKED_BYTES: u64 = 128 << 20;

/// How the previous epoch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShutdownKind {
    /// The store was closed, or is new.
    Clean,
    /// The process was killed.
    Unclean,
    /// The machine booted since: the power may have been lost.
    OtherBoot,
}

/// The state of a store before this opening.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PreviousEpoch {
    pub(super) schema: u64,
    /// The epoch of this opening.
    pub(super) next: u64,
    pub(super) shutdown: ShutdownKind,
}

/// Reads the state of the store at `path`; `boot` identifies the current boot of the machine. Fails if this program
/// cannot open the store.
pub(super) fn read(db: &Database, path: &Path, boot: u64) -> Result<PreviousEpoch> {
    let txn = db.begin_read()?;
    let new = PreviousEpoch { schema: SCHEMA, next: 1, shutdown: ShutdownKind::Clean };
    let Some(meta) = open_existing(&txn, META)? else {
        let tables: Vec<_> = txn.list_tables()?.map(|table| table.name().to_owned()).collect();
        if tables.is_empty() {
            return Ok(new);
        }
        let reason = format!("it belongs to another program (tables: {})", tables.join(", "));
        return Err(OpenError::Corrupt { path: path.to_owned(), reason }.into());
    };
    let meta_value = |key| -> Result<_> { Ok(meta.get(key)?.map(|row| row.value())) };
    let Some(epoch) = meta_value(EPOCH)? else { return Ok(new) };
    let shutdown = match (meta_value(LAST_CLEAN_EPOCH)?, meta_value(BOOT)?) {
        (Some(closed), _) if closed == epoch => ShutdownKind::Clean,
        (_, Some(last_boot)) if last_boot == boot => ShutdownKind::Unclean,
        (_, Some(_) | None) => ShutdownKind::OtherBoot,
    };
    let schema = meta_value(SCHEMA_VERSION)?.unwrap_or(SCHEMA);
    if schema > SCHEMA {
        return Err(OpenError::Newer { path: path.to_owned(), found: schema, known: SCHEMA }.into());
    }
    Ok(PreviousEpoch { schema, next: epoch.saturating_add(1), shutdown })
}

/// Records a clean shutdown of this epoch.
pub(super) fn record_shutdown(db: &Database, epoch: u64) -> Result<()> {
    let mut txn = db.begin_write()?;
    txn.set_quick_repair(true);
    txn.open_table(META)?.insert(LAST_CLEAN_EPOCH, epoch)?;
    Ok(txn.commit()?)
}

/// Checks the whole file of a store that may have seen a power loss, unless the file is large.
pub(super) fn check_file(db: &mut Database, bytes: u64) -> Result<()> {
    if bytes > MAX_CHECKED_BYTES {
        tracing::warn!(
            bytes,
            "the machine was started again while the store was open, and the store is too large to be checked at each start; \
             `hermod store check` does it"
        );
        return Ok(());
    }
    let clock = SystemClock::default();
    let sound = db.check_integrity()?;
    tracing::info!(bytes, sound, ms = clock.monotonic_ms(), "the store was checked after another boot");
    Ok(())
}
