//! Verification of a backup: every file by hash, then the content of the store, then the files that its rows name.

use std::{collections::BTreeMap, io, path::Path};

use super::{
    error::{BackupError, StopFn},
    files,
    manifest::{FileEntry, Manifest, STORE_FILE},
    referenced_files::{self, RecordedFile},
};
use crate::{
    files::PathError,
    store::redb::{CheckReport, Damage, StoreContents, StoreError, inspect},
};

/// The result of verifying a backup.
#[derive(Debug)]
pub struct VerifyReport {
    /// The backup's manifest.
    pub manifest: Manifest,
    /// Damage since the backup was made, sorted; empty if it may be restored.
    pub damage: Vec<Damage>,
}

/// Checks every file and row of a backup, and writes nothing. Blocks.
pub fn verify(dir: &Path, stop: &mut StopFn) -> Result<VerifyReport, BackupError> {
    let manifest = Manifest::read(dir)?;
    let mut damage = Vec::new();
    for (path, listed) in &manifest.files {
        let reason = match files::hash_file(&dir.join(path), stop) {
            Ok(entry) if entry == *listed => continue,
            Ok(entry) if entry.bytes != listed.bytes => {
                format!("it has {} bytes, and had {}", entry.bytes, listed.bytes)
            }
            Ok(_) => "its content was changed".to_owned(),
            Err(BackupError::Io(error)) if error.source.kind() == io::ErrorKind::NotFound => {
                "it is missing".to_owned()
            }
            Err(error) => return Err(error),
        };
        damage.push(Damage::file(path, reason));
    }
    match inspect(&dir.join(STORE_FILE), &dir.join("blobs"), stop) {
        Ok(contents) => damage.extend(compare(dir, &manifest, contents)?),
        Err(StoreError::Unusable(error)) => damage.push(Damage::file(STORE_FILE, error.to_string())),
        Err(error) => return Err(error.into()),
    }
    damage.sort();
    Ok(VerifyReport { manifest, damage })
}

/// Compares the store's file with the manifest, and looks for every file that its rows name.
fn compare(dir: &Path, manifest: &Manifest, contents: StoreContents) -> Result<Vec<Damage>, PathError> {
    let StoreContents { schema: _, epoch, restore_generation, checked } = contents;
    let recorded = referenced_files::recorded_files(dir, &checked)?;
    let CheckReport { counts, damages: mut damage, more_damages, .. } = checked;
    damage.extend(
        recorded.into_iter().filter_map(|(path, recorded)| unlisted_damage(&manifest.files, path, &recorded)),
    );
    // Damage that the store already had is in every copy, and says nothing about the files of this copy.
    damage.retain(|damage| manifest.damage.iter().all(|known| !known.is_same_position(damage)));
    if more_damages > manifest.more_damage {
        let reason = format!("{} places more are damaged", more_damages - manifest.more_damage);
        damage.push(Damage::file(STORE_FILE, reason));
    }
    let info = &manifest.info;
    if (epoch, restore_generation, counts) != (info.epoch, info.restore_generation, info.counts) {
        let reason =
            format!("it has {counts:?} in epoch {epoch}, and had {:?} in epoch {}", info.counts, info.epoch);
        damage.push(Damage::file(STORE_FILE, reason));
    }
    Ok(damage)
}

fn unlisted_damage(
    files: &BTreeMap<String, FileEntry>,
    path: String,
    recorded: &RecordedFile,
) -> Option<Damage> {
    let reason = match files.get(&path) {
        Some(listed) => recorded.difference(listed)?,
        None => "a record names it, and it is not in the backup".to_owned(),
    };
    Some(Damage::file(path, reason))
}
