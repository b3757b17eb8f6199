//! Measures the disk usage of the state directory by class. Also the size of any folder, for gc.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{MaintenanceError, StateDirMaintenance};
use crate::{
    control::{ClassUsage, Footprint},
    files::{self, IoResult as _},
};

/// Folders that are a class of their own.
const CLASS_FOLDERS: [&str; 5] = ["blobs", "artifacts", "spool", "scripts", "memories"];
/// The store's file.
const STORE_FILE: &str = "hermod.redb";
/// Prefix of folders with a replaced store.
const REPLACED_PREFIX: &str = "replaced-";

/// Measures the whole state directory. Blocks.
pub(super) fn measure(maintenance: &StateDirMaintenance) -> Result<Footprint, MaintenanceError> {
    let store = maintenance.store.footprint()?;
    let names = ["store", "blobs", "artifacts", "spool", "scripts", "memories", "replaced", "other"];
    let usage = |class: &str| ClassUsage { class: class.to_owned(), bytes: 0, files: 0 };
    let mut classes: Vec<ClassUsage> = names.map(usage).into();
    let state = &maintenance.state;
    for entry in fs::read_dir(state).at(state)? {
        let entry = entry.at(state)?;
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let (bytes, files) = size_of(&path).at(path)?;
        if let Some(usage) = classes.iter_mut().find(|usage| usage.class == class(&name)) {
            usage.bytes += bytes;
            usage.files += files;
        }
    }
    Ok(Footprint { state: state.display().to_string(), classes, store })
}

fn class(name: &str) -> &str {
    match name {
        STORE_FILE => "store",
        name if CLASS_FOLDERS.contains(&name) => name,
        name if name.starts_with(REPLACED_PREFIX) => "replaced",
        _ => "other",
    }
}

/// Bytes and number of files at a path and below it. Skips files that are removed meanwhile, and paths that are too
/// long.
pub(super) fn size_of(path: &Path) -> io::Result<(u64, u64)> {
    let (mut bytes, mut files) = (0, 0);
    let mut paths = vec![path.to_owned()];
    while let Some(path) = paths.pop() {
        match file_bytes(&path, &mut paths) {
            Ok(Some(length)) => (bytes, files) = (bytes + length, files + 1),
            Ok(None) => {}
            // It was removed, or its path is longer than the system allows.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((bytes, files))
}

/// The bytes of a file; `None` for a folder, whose entries are added to `paths`.
fn file_bytes(path: &Path, paths: &mut Vec<PathBuf>) -> io::Result<Option<u64>> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return Ok(Some(metadata.len()));
    }
    paths.extend(files::entries(path)?);
    Ok(None)
}
