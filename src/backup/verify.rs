use std::{collections::BTreeMap, io, path::Path};

use super::{
    error::{BackupError, Stop},
    files,
    manifest::{Listed, Manifest, STORE},
    shelf::{self, Recorded},
};
use crate::store::redb::{Checked, CopyError, Damage, Found, inspect};

/// A backup that was looked through.
#[derive(Debug)]
pub struct Verified {
    /// What it says it is.
    pub manifest: Manifest,
    /// What is damaged that was whole when it was made, sorted; nothing if it may be restored.
    pub damage: Vec<Damage>,
}

/// Looks through all of a backup, and writes nothing. Blocks.
pub fn verify(dir: &Path, stop: &mut Stop) -> Result<Verified, BackupError> {
    let manifest = Manifest::read(dir)?;
    let mut damage = Vec::new();
    for (path, listed) in &manifest.files {
        let why = match files::hashed(&dir.join(path), stop) {
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
    match inspect(&dir.join(STORE), &dir.join("blobs"), stop) {
        Ok(found) => damage.extend(compare((dir, &manifest), found)?),
        Err(CopyError::Unfit(error)) => damage.push(Damage::file(STORE, error.to_string())),
        Err(error) => return Err(error.into()),
    }
    damage.sort();
    Ok(Verified { manifest, damage })
}

/// Whether what is in the store's file is what the manifest says, and every file is there that it refers to.
fn compare((dir, manifest): (&Path, &Manifest), found: Found) -> Result<Vec<Damage>, BackupError> {
    let Found { schema: _, epoch, lineage, checked } = found;
    let Checked { counts, damages: mut damage, more, blobs, artifacts } = checked;
    let blob = |(path, bytes)| (format!("blobs/{path}"), Recorded { bytes, sha256: None });
    let named = blobs.into_iter().map(blob).chain(shelf::kept(dir, &artifacts)?);
    damage.extend(named.filter_map(|(path, recorded)| unlisted(&manifest.files, path, &recorded)));
    // What was so in the store is so in every copy of it. That says nothing of the files of this one.
    damage.retain(|found| manifest.damage.iter().all(|known| !known.is_where(found)));
    if more > manifest.more_damage {
        let why = format!("{} places more are damaged", more - manifest.more_damage);
        damage.push(Damage::file(STORE, why));
    }
    if (epoch, lineage, counts) != (manifest.epoch, manifest.lineage, manifest.counts) {
        let why = format!(
            "it has {counts:?} in epoch {epoch}, and had {:?} in epoch {}",
            manifest.counts, manifest.epoch
        );
        damage.push(Damage::file(STORE, why));
    }
    Ok(damage)
}

fn unlisted(files: &BTreeMap<String, Listed>, what: String, recorded: &Recorded) -> Option<Damage> {
    let why = match files.get(&what) {
        Some(listed) => recorded.difference(listed)?,
        None => "a record names it, and it is not in the backup".to_owned(),
    };
    Some(Damage::file(what, why))
}
