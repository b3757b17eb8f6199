//! Creates backups: a copy of the store's rows, of every file that they name, of all scripts and of the memory files,
//! with a manifest. Also the service that does so in the owner, slowed so that runs advance, and its errors as answers
//! to clients.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread::sleep,
};

use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::{
    error::{BackupError, StopFn},
    files::{self, PartialBackup},
    manifest::{BackupInfo, FORMAT, FileEntry, Manifest, STORE_FILE},
    referenced_files,
};
use crate::{
    clock::{self, rfc3339},
    control::{self, RequestError, RequestErrorKind},
    files::{IoResult as _, PathError, entries_with_extension},
    store::redb::{
        Damage, OpenError, RedbJournal, Snapshot, StoppedError, StoreContents, StoreError, inspect,
    },
};

/// Makes a backup of the store in `state`, as of the snapshot, in the new folder `dir`. Blocks.
/// Damage of the store is listed in the manifest, and does not prevent the backup.
pub fn create(
    snapshot: Snapshot,
    state: &Path,
    dir: &Path,
    stop: &mut StopFn,
) -> Result<Manifest, BackupError> {
    if dir.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(dir.to_owned()));
    }
    check_target(dir, state)?;
    let part = PartialBackup::of(dir)?;
    let created_at = rfc3339(clock::now());
    let manifest = fill(&snapshot, state, part.path(), created_at, stop)?;
    drop(snapshot);
    manifest.write(part.path())?;
    files::sync_folders(part.path())?;
    part.publish(dir)?;
    Ok(manifest)
}

/// Refuses a folder inside the state directory.
fn check_target(dir: &Path, state: &Path) -> Result<(), BackupError> {
    let bad_target = |reason: String| BackupError::BadTarget { path: dir.to_owned(), reason };
    let parent = dir
        .parent()
        .ok_or_else(|| bad_target("it has no parent; give a folder that does not exist".into()))?;
    let parent = parent.canonicalize().at(parent)?;
    let state = state.canonicalize().at(state)?;
    if parent.starts_with(&state) {
        let state = state.display();
        return Err(bad_target(format!(
            "it lies in the state directory {state}, and would be lost with it; give another folder"
        )));
    }
    Ok(())
}

fn fill(
    snapshot: &Snapshot,
    state: &Path,
    part: &Path,
    created_at: String,
    stop: &mut StopFn,
) -> Result<Manifest, BackupError> {
    let store = part.join(STORE_FILE);
    copy(snapshot, &store, stop)?;
    let StoreContents { schema, epoch, restore_generation, checked } =
        inspect(&store, &state.join("blobs"), stop)?;
    let mut files = BTreeMap::from([(STORE_FILE.to_owned(), files::hash_file(&store, stop)?)]);
    let recorded = referenced_files::recorded_files(state, &checked)?;
    let recorded = recorded.into_iter().map(|(path, recorded)| (path, Some(recorded)));
    let tombstones = referenced_files::tombstone_files(state, &checked.artifacts)?.into_iter();
    let unrecorded = tombstones.chain(list_scripts(state)?).chain(referenced_files::memory_files(state));
    let paths: Vec<_> = recorded.chain(unrecorded.map(|path| (path, None))).collect();
    // A missing file counts as 0 bytes.
    let length = |(path, _): &(String, _)| fs::metadata(state.join(path)).map_or(0, |file| file.len());
    files::check_disk_space(part, paths.iter().map(length).sum())?;
    let mut damage = checked.damages;
    for (path, recorded) in paths {
        match copy_referenced(&path, state, part, stop)? {
            Ok(file) => {
                if let Some(reason) = recorded.and_then(|recorded| recorded.difference(&file)) {
                    damage.push(Damage::file(&path, reason));
                }
                files.insert(path, file);
            }
            Err(reason) => damage.push(Damage::file(path, reason)),
        }
    }
    damage.sort();
    let info = BackupInfo {
        format: FORMAT,
        hermod: env!("CARGO_PKG_VERSION").to_owned(),
        schema,
        epoch,
        restore_generation,
        created_at,
        counts: checked.counts,
        sizes: Manifest::sizes(&files),
    };
    Ok(Manifest { info, damage, more_damage: checked.more_damages, files })
}

/// Copies the store's rows, and stops before it uses the disk space that is reserved for records.
fn copy(snapshot: &Snapshot, store: &Path, stop: &mut StopFn) -> Result<(), BackupError> {
    let mut free_space = Ok(());
    let copied = snapshot.copy(store, &mut |bytes| {
        free_space = files::check_disk_space(store, bytes as u64);
        if free_space.is_ok() { stop(bytes) } else { Err(StoppedError) }
    });
    free_space?;
    Ok(copied?)
}

/// Copies a file that the store names; the inner error says why it is lost.
fn copy_referenced(
    path: &str,
    state: &Path,
    part: &Path,
    stop: &mut StopFn,
) -> Result<Result<FileEntry, String>, BackupError> {
    let from = state.join(path);
    if !from.try_exists().at(&from)? {
        return Ok(Err(format!("{}: it is missing", from.display())));
    }
    files::copy_and_hash(&from, &part.join(path), stop).map(Ok)
}

/// All scripts: a conversation may be continued with its script long after its last run.
fn list_scripts(state: &Path) -> Result<Vec<String>, PathError> {
    let folder = state.join("scripts");
    // A partial script has another extension.
    let paths = entries_with_extension(&folder, "json").at(&folder)?;
    let names = paths.iter().filter_map(|path| path.file_name()?.to_str());
    Ok(names.map(|name| format!("scripts/{name}")).collect())
}

/// Makes backups in the process that has the store open, while runs are active.
#[derive(Debug)]
pub struct BackupMaker {
    /// Weak: this service does not keep the store open.
    journal: Weak<RedbJournal>,
    state: PathBuf,
}

impl BackupMaker {
    /// `journal` is the store of the state directory `state`.
    pub fn new(journal: &Arc<RedbJournal>, state: &Path) -> Arc<Self> {
        Arc::new(Self { journal: Arc::downgrade(journal), state: state.to_owned() })
    }
}

impl control::BackupService for BackupMaker {
    fn create(
        &self,
        dir: PathBuf,
        stop: CancellationToken,
        done: Arc<AtomicU64>,
    ) -> BoxFuture<'static, Result<Value, RequestError>> {
        let (journal, state) = (self.journal.clone(), self.state.clone());
        let work = move || {
            // The strong reference ends with this statement. If the store is closed, there is no backup.
            let snapshot =
                journal.upgrade().map(|journal| journal.snapshot()).ok_or(BackupError::Stopped)??;
            let mut since = tokio::time::Instant::now();
            // Sleeps as long as each batch took: the backup works at most half of the time, so that runs advance.
            create(snapshot, &state, &dir, &mut |bytes| {
                done.fetch_add(bytes as u64, Ordering::Relaxed);
                sleep(since.elapsed());
                since = tokio::time::Instant::now();
                if stop.is_cancelled() { Err(StoppedError) } else { Ok(()) }
            })
        };
        async move {
            let manifest =
                spawn_blocking(work).await.map_err(|error| RequestError::internal(error.to_string()))?;
            serde_json::to_value(manifest?).map_err(|error| RequestError::internal(error.to_string()))
        }
        .boxed()
    }
}

impl From<BackupError> for RequestError {
    fn from(error: BackupError) -> Self {
        let kind = match &error {
            BackupError::Exists(_) | BackupError::BadTarget { .. } | BackupError::HasStore(_) => {
                RequestErrorKind::Usage
            }
            BackupError::BeingMade(_)
            | BackupError::Stopped
            | BackupError::CommandsRunning { .. }
            | BackupError::Store(StoreError::Busy | StoreError::Unusable(OpenError::Busy { .. })) => {
                RequestErrorKind::Busy
            }
            BackupError::Io(_)
            | BackupError::NotABackup { .. }
            | BackupError::Damaged { .. }
            | BackupError::RestoreIncomplete { .. }
            | BackupError::Store(_) => RequestErrorKind::Store,
        };
        Self::new(kind, error.to_string())
    }
}
