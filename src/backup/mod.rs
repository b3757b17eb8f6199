//! Backups: a folder with a consistent copy of the store, and of the files that it refers to.
//!
//! ```text
//! DIR/manifest.json     versions, SHA-256 of every file    DIR/hermod.redb      all rows
//! DIR/manifest.sha256   SHA-256 of the manifest            DIR/blobs/ab/<hash>  spilled values
//! DIR/scripts/          scripts of rehearsals              DIR/artifacts/       long outputs, images, tombstones
//! DIR/memories/         what agents remember
//! ```
//!
//! A backup is made as `DIR.part` and renamed when all of it is on disk.
//! It has no configuration, no credentials (nor stored OAuth tokens), no control token, no access tokens, and no output so
//! far of running commands.

mod create;
mod error;
mod files;
mod manifest;
mod referenced_files;
mod restore;
mod verify;
mod view;

pub use create::{BackupMaker, create};
pub use error::{BackupError, StopFn};
pub use manifest::{BackupInfo, ClassSize, FORMAT, FileClass, Manifest};
pub use restore::{ExistingStore, restore};
pub use verify::{VerifyReport, verify};
pub use view::{BackupView, RestoredBackupView, VerifiedBackupView};
