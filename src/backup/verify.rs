use std::{collections::BTreeMap, io, path::Path};

use super::{
    error::{BackupError, StopFn},
    files,
    manifest::{FileEntry, Manifest, STORE_FILE},
    referenced_files::{self, RecordedFile},
};
use crate::store::redb::{CheckReport, CopyError, Damage, StoreContents, inspect};

/// A backup that was looked through.
#[derive(Debug)]
pub struct VerifyReport {
    /// What it says it is.
    pub manifest: Manifest,
    /// What is damaged that was whole when it was made, sorted; nothing if it may be restored.
    pub damage: Vec<Damage>,
}

/// Looks through all of a backup, and writes nothing. Blocks.
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
            Err(BackupError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                "it is missing".to_owned()
            }
            Err(error) => return Err(error),
        };
        damage.push(Damage::file(path, why));
    }
    match inspect(&dir.join(STORE_FILE), &dir.join("blobs"), stop) {
        Ok(found) => damage.extend(compare((dir, &manifest), found)?),
        Err(CopyError::Open(error)) => damage.push(Damage::file(STORE_FILE, error.to_string())),
        Err(error) => return Err(error.into()),
    }
    damage.sort();
    Ok(VerifyReport { manifest, damage })
}

/// Whether what is in the store's file is what the manifest says, and every file is there that it refers to.
fn compare((dir, manifest): (&Path, &Manifest), found: StoreContents) -> Result<Vec<Damage>, BackupError> {
    let StoreContents { schema: _, epoch, restore_generation: lineage, checked } = found;
    let CheckReport { counts, damages: mut damage, more_damages: more, blobs, artifacts } = checked;
    let blob = |(path, bytes)| (format!("blobs/{path}"), RecordedFile { bytes, sha256: None });
    let named = blobs.into_iter().map(blob).chain(referenced_files::artifact_files(dir, &artifacts)?);
    damage.extend(named.filter_map(|(path, recorded)| unlisted_damage(&manifest.files, path, &recorded)));
    // What was so in the store is so in every copy of it. That says nothing of the files of this one.
    damage.retain(|found| manifest.damage.iter().all(|known| !known.is_same_position(found)));
    if more > manifest.more_damage {
        let why = format!("{} places more are damaged", more - manifest.more_damage);
        damage.push(Damage::file(STORE_FILE, why));
    }
    if (epoch, lineage, counts) != (manifest.epoch, manifest.restore_generation, manifest.counts) {
        let why = format!(
            "it has {counts:?} in epoch {epoch}, and had {:?} in epoch {}",
            manifest.counts, manifest.epoch
        );
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
