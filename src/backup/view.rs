//! Views of backups, as clients read them. They are here and not in `crate::view`, because they contain the manifest.

use std::path::Path;

use serde::Serialize;

use super::{Manifest, VerifyReport, manifest::BackupInfo};
use crate::store::redb::Damage;

/// A backup: its manifest, with the number of files in place of their list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackupView {
    /// The folder of the backup.
    pub dir: String,
    /// What the backup is.
    #[serde(flatten)]
    pub info: BackupInfo,
    /// Number of files.
    pub files: usize,
    /// Damaged places of the store itself, which the backup therefore has too.
    pub store_damage: Vec<Damage>,
    /// Number of further damaged places of the store.
    pub more_store_damage: u64,
}

/// A verified backup: `{…of the backup, ok, damage}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifiedBackupView {
    /// The backup.
    #[serde(flatten)]
    pub backup: BackupView,
    /// True if the backup has no damage of its own.
    pub ok: bool,
    /// Damage since the backup was made.
    pub damage: Vec<Damage>,
}

/// A restored backup: `{…of the backup, state, ended, replaced}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestoredBackupView {
    /// The backup, with the epoch and the restore generation of the restored store.
    #[serde(flatten)]
    pub backup: BackupView,
    /// The state directory.
    pub state: String,
    /// Number of running commands of the replaced store that were ended.
    pub ended: usize,
    /// The folder of the replaced store; `None` if there was no store.
    pub replaced: Option<String>,
}

impl BackupView {
    /// The backup in the folder `dir`.
    pub fn new(dir: &Path, Manifest { info, damage, more_damage, files }: Manifest) -> Self {
        Self {
            dir: dir.display().to_string(),
            info,
            files: files.len(),
            store_damage: damage,
            more_store_damage: more_damage,
        }
    }
}

impl VerifiedBackupView {
    /// The backup in the folder `dir`, and what its verification has found.
    pub fn new(dir: &Path, VerifyReport { manifest, damage }: VerifyReport) -> Self {
        Self { backup: BackupView::new(dir, manifest), ok: damage.is_empty(), damage }
    }
}
