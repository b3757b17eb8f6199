//! Views of backups, as clients read them. They are here and not in `crate::view`, because a manifest is made here.

use std::{collections::BTreeMap, path::Path};

use serde::Serialize;

use super::{ClassSize, FileClass, Manifest, RestoreReport, VerifyReport};
use crate::store::redb::{Damage, StoreCounts};

/// A backup: its manifest, with the number of files in place of their list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackupView {
    /// The folder of the backup.
    pub dir: String,
    /// The version of the backup format.
    pub format: u32,
    /// The version of Hermod that made the backup.
    pub hermod: String,
    /// The version of the store's schema.
    pub schema: u64,
    /// The store's epoch; after a restore, the last one before the restored store's own epochs.
    pub epoch: u64,
    /// How often the store was restored.
    #[serde(rename = "lineage")]
    pub restore_generation: u64,
    /// The time of the snapshot, RFC 3339.
    pub created_at: String,
    /// Number of rows of each kind.
    pub counts: StoreCounts,
    /// Files and bytes by class.
    pub sizes: BTreeMap<FileClass, ClassSize>,
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
    pub fn new(dir: &Path, manifest: Manifest) -> Self {
        Self {
            dir: dir.display().to_string(),
            format: manifest.format,
            hermod: manifest.hermod,
            schema: manifest.schema,
            epoch: manifest.epoch,
            restore_generation: manifest.restore_generation,
            created_at: manifest.created_at,
            counts: manifest.counts,
            sizes: manifest.sizes,
            files: manifest.files.len(),
            store_damage: manifest.damage,
            more_store_damage: manifest.more_damage,
        }
    }
}

impl VerifiedBackupView {
    /// The backup in the folder `dir`, and what its verification has found.
    pub fn new(dir: &Path, VerifyReport { manifest, damage }: VerifyReport) -> Self {
        Self { backup: BackupView::new(dir, manifest), ok: damage.is_empty(), damage }
    }
}

impl RestoredBackupView {
    /// The backup in the folder `dir` as the store of the state directory `state`.
    pub fn new(dir: &Path, state: &Path, restored: RestoreReport) -> Self {
        let RestoreReport { manifest, epoch, restore_generation, ended, replaced } = restored;
        Self {
            backup: BackupView { epoch, restore_generation, ..BackupView::new(dir, manifest) },
            state: state.display().to_string(),
            ended,
            replaced: replaced.map(|replaced| replaced.display().to_string()),
        }
    }
}
