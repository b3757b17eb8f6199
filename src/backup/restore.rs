use std::path::{Path, PathBuf};

use hermod_actors::port::Clock;
use serde::Serialize;

use super::{
    error::{BackupError, Stop},
    files,
    manifest::{Manifest, STORE},
    verify::{Verified, verify},
};
use crate::{
    clock::{SystemClock, rfc3339},
    process::runner::Runner,
    store::redb::{Damage, Place, renew},
};

/// What to do with a store that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Present {
    /// Restore nothing.
    Keep,
    /// Move it aside.
    Replace,
}

/// A store that was a backup.
#[derive(Debug, Serialize)]
pub struct Restored {
    /// What was restored.
    #[serde(skip)]
    pub manifest: Manifest,
    /// The epoch after which its own begin.
    pub epoch: u64,
    /// How often it was restored.
    pub lineage: u64,
    /// Where the store lies that was there.
    pub replaced: Option<PathBuf>,
}

/// Makes a backup the store of this state directory. Blocks.
pub fn restore(state: &Path, dir: &Path, present: Present, stop: &mut Stop) -> Result<Restored, BackupError> {
    let Verified { manifest, damage } = verify(dir, stop)?;
    if !damage.is_empty() {
        return Err(BackupError::Damaged { dir: dir.to_owned(), damage });
    }
    let at = BackupError::at(state);
    let place = Place::take(state)?;
    let has_store = place.has_store().map_err(&at)?;
    if has_store && present == Present::Keep {
        return Err(BackupError::HasStore(state.to_owned()));
    }
    let count = Runner::new("", state).under_way().map_err(&at)?;
    if count > 0 {
        return Err(BackupError::UnderWay { dir: state.to_owned(), count });
    }
    let (epoch, lineage) = place.past().map_err(&at)?;
    let (epoch, lineage) = (epoch.max(manifest.epoch), lineage.max(manifest.lineage) + 1);
    let part = place.part().map_err(&at)?;
    if let Err(error) = fill(&manifest, (dir, &part), (epoch, lineage), stop) {
        if let Err(error) = place.discard() {
            tracing::warn!(path = %part.display(), %error, "an unfinished restore stays until the next one");
        }
        return Err(error);
    }
    let name = format!("replaced-{}", rfc3339(SystemClock::default().at()).replace(':', ""));
    place.swap(&name).map_err(&at)?;
    let replaced = Some(state.join(name)).filter(|replaced| replaced.exists());
    Ok(Restored { manifest, epoch, lineage, replaced })
}

fn fill(
    manifest: &Manifest,
    (dir, part): (&Path, &Path),
    past: (u64, u64),
    stop: &mut Stop,
) -> Result<(), BackupError> {
    for (path, listed) in &manifest.files {
        if files::copied(&dir.join(path), &part.join(path), stop)? != *listed {
            let damage = vec![Damage::file(path, "its content was changed while it was copied")];
            return Err(BackupError::Damaged { dir: dir.to_owned(), damage });
        }
    }
    let store = part.join(STORE);
    renew(&store, past).map_err(BackupError::at(&store))?;
    files::sync_folders(part)
}
