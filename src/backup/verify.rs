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
        let why = match files::hash_file(&dir.join(path), stop) {
            Ok(found) if found == *listed => continue,
            Ok(found) if found.bytes != listed.bytes => {
                format!("it has {} bytes, and had {}", found.bytes, listed.bytes)
            }
            Ok(_) => "its content was changed".to_owned(),
            Err(BackupError::Io(error)) if error.source.kind() == io::ErrorKind::NotFound => {
                "it is missing".to_owned()
            }
            Err(error) => return Err(error),
        };
        damage.push(Damage::file(path, why));
    }
    match inspect(&dir.join(STORE_FILE), &dir.join("blobs"), stop) {
        Ok(found) => damage.extend(compare(dir, &manifest, found)?),
        Err(StoreError::Unusable(error)) => damage.push(Damage::file(STORE_FILE, error.to_string())),
        Err(error) => return Err(error.into()),
    }
    damage.sort();
    Ok(VerifyReport { manifest, damage })
}

/// Compares the store's file with the manifest, and looks for every file that its rows name.
fn compare(dir: &Path, manifest: &Manifest, found: StoreContents) -> Result<Vec<Damage>, PathError> {
    let StoreContents { schema: _, epoch, restore_generation, checked } = found;
    let recorded = referenced_files::recorded_files(dir, &checked)?;
    let CheckReport { counts, damages: mut damage, more_damages: more, .. } = checked;
    damage.extend(
        recorded.into_iter().filter_map(|(path, recorded)| unlisted_damage(&manifest.files, path, &recorded)),
    );
    // Damage that the store already had is in every copy, and says nothing about the files of this copy.
    damage.retain(|found| manifest.damage.iter().all(|known| !known.is_same_position(found)));
    if more > manifest.more_damage {
        let why = format!("{} places more are damaged", more - manifest.more_damage);
        damage.push(Damage::file(STORE_FILE, why));
    }
    let info = &manifest.info;
    if (epoch, restore_generation, counts) != (info.epoch, info.restore_generation, info.counts) {
        let why =
            format!("it has {counts:?} in epoch {epoch}, and had {:?} in epoch {}", info.counts, info.epoch);
        damage.push(Damage::file(STORE_FILE, why));
    }
    Ok(damage)
}

fn unlisted_damage(
    files: &BTreeMap<String, FileEntry>,
    what: String,
    recorded: &RecordedFile,
) -> Option<Damage> {
    let why = match files.get(&what) {
        Some(listed) => recorded.difference(listed)?,
        None => "a record names it, and it is not in the backup".to_owned(),
    };
    Some(Damage::file(what, why))
}
