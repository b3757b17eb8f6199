//! The manifest of a backup: its versions, counts and damage, and the SHA-256 of every file. Writes it with its
//! checksum, and reads and checks it.

use std::{
    collections::BTreeMap,
    io,
    path::{Component, Path},
};

use hermod_actors::model::ContentHash;
use serde::{Deserialize, Serialize};

use super::error::BackupError;
use crate::{
    files::{self, IoResult as _, PathError, read_regular, read_regular_text},
    store::redb::{Damage, StoreCounts},
};

/// The version of the backup format that this program writes; it reads this version and older ones.
pub const FORMAT: u32 = 2;
/// The first version that contains memories; older backups have none, whatever the store had.
pub(super) const FIRST_FORMAT_WITH_MEMORIES: u32 = 2;
pub(super) const MANIFEST_FILE: &str = "manifest.json";
/// Maximum bytes of the manifest, which lists every file: enough for two million.
const MAX_MANIFEST_BYTES: u64 = 256 << 20;
const MAX_CHECKSUM_BYTES: u64 = 1_024;
/// The manifest's checksum, as a line of `sha256sum`.
pub(super) const CHECKSUM_FILE: &str = "manifest.sha256";
/// No store reaches this epoch. (Inbox rows are numbered by epochs below 2^32, and every opening starts the next
/// epoch.)
const EPOCH_LIMIT: u64 = 1 << 31;
/// The store's file.
pub(super) const STORE_FILE: &str = "hermod.redb";

/// What a backup is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupInfo {
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
}

/// The manifest of a backup: what it is and contains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// What the backup is.
    #[serde(flatten)]
    pub info: BackupInfo,
    /// Damaged places of the store itself, which the backup therefore has too.
    #[serde(default)]
    pub damage: Vec<Damage>,
    /// Number of further damaged places, which are not listed.
    #[serde(default)]
    pub more_damage: u64,
    /// Every file by its path in the backup, except the manifest and its checksum.
    pub files: BTreeMap<String, FileEntry>,
}

/// The classes of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // the names say it
pub enum FileClass {
    Store,
    Blobs,
    Artifacts,
    Scripts,
    Memories,
}

/// The size of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClassSize {
    /// Number of files.
    pub files: u64,
    /// Total bytes.
    pub bytes: u64,
}

/// A file of the backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of its content, in hexadecimal digits.
    pub sha256: String,
}

impl FileClass {
    /// The class of the file at this path of a backup; `None` if no backup has such a path.
    pub fn of(path: &str) -> Option<Self> {
        let mut parts = Path::new(path).components().map(|part| match part {
            Component::Normal(part) => part.to_str(),
            Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
        });
        let class = match parts.next()?? {
            STORE_FILE => return parts.next().is_none().then_some(Self::Store),
            "blobs" => Self::Blobs,
            "artifacts" => Self::Artifacts,
            "scripts" => Self::Scripts,
            "memories" => Self::Memories,
            _ => return None,
        };
        let mut rest = parts.peekable();
        (rest.peek().is_some() && rest.all(|part| part.is_some())).then_some(class)
    }
}

/// Only the version, to recognize newer manifests.
#[derive(Deserialize)]
struct FormatVersion {
    format: u32,
}

impl Manifest {
    /// Adds up the sizes of these files.
    pub(super) fn sizes(files: &BTreeMap<String, FileEntry>) -> BTreeMap<FileClass, ClassSize> {
        let mut sizes: BTreeMap<FileClass, ClassSize> = BTreeMap::new();
        for (class, file) in files.iter().filter_map(|(path, file)| Some((FileClass::of(path)?, file))) {
            let size = sizes.entry(class).or_default();
            size.files += 1;
            size.bytes += file.bytes;
        }
        sizes
    }

    /// Writes and syncs the manifest and its checksum; the folder's entries are not synced.
    pub(super) fn write(&self, dir: &Path) -> Result<(), PathError> {
        let (path, checksum) = (dir.join(MANIFEST_FILE), dir.join(CHECKSUM_FILE));
        let mut json = serde_json::to_vec_pretty(self).map_err(io::Error::from).at(&path)?;
        json.push(b'\n');
        files::write(&path, &json).at(&path)?;
        let line = format!("{}  {MANIFEST_FILE}\n", ContentHash::of(&json));
        files::write(&checksum, line.as_bytes()).at(&checksum)
    }

    /// Reads and checks the manifest of a backup.
    pub(super) fn read(dir: &Path) -> Result<Self, BackupError> {
        let path = dir.join(MANIFEST_FILE);
        let not_a_backup = |reason: String| BackupError::NotABackup { path: path.clone(), reason };
        let json = read_regular(&path, MAX_MANIFEST_BYTES)
            .map_err(|error| not_a_backup(format!("{error}; is {} a backup?", dir.display())))?;
        let version = serde_json::from_slice::<FormatVersion>(&json);
        if let Ok(FormatVersion { format }) = version
            && format > FORMAT
        {
            let reason = format!(
                "its format is {format}, and this program knows {FORMAT}: use the newer hermod that made it"
            );
            return Err(not_a_backup(reason));
        }
        let checksum = dir.join(CHECKSUM_FILE);
        let checksum =
            read_regular_text(&checksum, MAX_CHECKSUM_BYTES).map_err(|error| BackupError::NotABackup {
                reason: format!("{error}; {} is no whole backup: use another one", dir.display()),
                path: checksum,
            })?;
        if checksum.split(' ').next() != Some(&ContentHash::of(&json).to_string()) {
            return Err(not_a_backup(format!(
                "it is not what {CHECKSUM_FILE} says: one of them is damaged; use another backup"
            )));
        }
        let manifest: Self =
            serde_json::from_slice(&json).map_err(|error| not_a_backup(error.to_string()))?;
        match manifest.files.keys().find(|path| FileClass::of(path).is_none()) {
            Some(path) => Err(not_a_backup(format!("it lists `{path}`, which is no file of a backup"))),
            None if manifest.info.epoch >= EPOCH_LIMIT => Err(not_a_backup(format!(
                "its epoch is {}, and none is above {}: use another backup",
                manifest.info.epoch,
                EPOCH_LIMIT - 1
            ))),
            None => Ok(manifest),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn manifest(epoch: u64) -> Manifest {
        let info = BackupInfo {
            format: FORMAT,
            hermod: "1".into(),
            schema: 2,
            epoch,
            restore_generation: u64::MAX,
            created_at: String::new(),
            counts: StoreCounts::default(),
            sizes: BTreeMap::new(),
        };
        Manifest { info, damage: Vec::new(), more_damage: 0, files: BTreeMap::new() }
    }

    #[test]
    fn an_epoch_that_no_store_can_go_on_from_is_refused() {
        for (epoch, fits) in [(0, true), (EPOCH_LIMIT - 1, true), (EPOCH_LIMIT, false), (u64::MAX, false)] {
            let dir = tempfile::tempdir().unwrap();
            manifest(epoch).write(dir.path()).unwrap();
            match Manifest::read(dir.path()) {
                Ok(read) => assert!(fits && read == manifest(epoch)),
                Err(error) => {
                    assert!(!fits && matches!(error, BackupError::NotABackup { .. }), "{error}");
                    assert!(error.to_string().contains(&epoch.to_string()), "{error}");
                }
            }
        }
    }

    #[test]
    fn without_its_sum_it_is_no_whole_backup() {
        let dir = tempfile::tempdir().unwrap();
        manifest(1).write(dir.path()).unwrap();
        fs::remove_file(dir.path().join(CHECKSUM_FILE)).unwrap();
        let error = Manifest::read(dir.path()).unwrap_err();
        assert!(
            matches!(&error, BackupError::NotABackup { path, .. } if path.ends_with(CHECKSUM_FILE)),
            "{error}"
        );
        assert!(error.to_string().contains("no whole backup"), "{error}");
    }

    #[test]
    fn only_files_of_a_backup_have_a_class() {
        let check = |path: &str, expect: Option<FileClass>| assert_eq!(FileClass::of(path), expect, "{path}");
        check("hermod.redb", Some(FileClass::Store));
        check("blobs/ab/abcd", Some(FileClass::Blobs));
        check("scripts/x.json", Some(FileClass::Scripts));
        check("memories/USER.md", Some(FileClass::Memories));
        for path in
            ["", "hermod.redb/x", "blobs", "/blobs/x", "../blobs/x", "blobs/../../x", "credentials/acme.json"]
        {
            check(path, None);
        }
    }
}
