//! Backups: a folder with a consistent copy of the store, and of the files that it refers to.
//!
//! ```text
//! DIR/manifest.json     what it is, and the SHA-256 of every file      DIR/hermod.redb      all rows
//! DIR/manifest.sha256   that of the manifest                           DIR/blobs/ab/<hash>  spilled values
//! DIR/scripts/          scripts of rehearsals                          DIR/artifacts/       long outputs and pictures, and
//! DIR/memories/         what agents remember                                             which of them were removed
//! ```
//!
//! It is made as `DIR.part` and gets its name when all of it is on disk. Not in it: configuration, credentials (kept OAuth
//! tokens too), the control token, and what commands that are under way have written so far.

mod create;
mod error;
mod files;
mod manifest;
mod referenced_files;
mod restore;
mod verify;

pub use create::{BackupMaker, create};
pub use error::{BackupError, StopFn};
pub use manifest::{ClassSize, FORMAT, FileClass, Manifest};
pub use restore::{ExistingStore, RestoreReport, restore};
pub use verify::{VerifyReport, verify};
