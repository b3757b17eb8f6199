//! Creates backups: a copy of the store's rows, of every file that they name, of all scripts and of the memory files,
//! with a manifest.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread::sleep,
};

use futures::{FutureExt, future::BoxFuture};
use hermod_actors::port::Clock;
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::{
    error::{BackupError, StopFn},
    files::{self, PartialBackup},
    manifest::{FORMAT, FileEntry, Manifest, STORE_FILE},
    referenced_files::{self, RecordedFile},
};
use crate::{
    clock::{SystemClock, rfc3339},
    control::{self, RequestError, RequestErrorKind},
    store::redb::{CheckReport, Damage, RedbJournal, Snapshot, StoppedError, StoreContents, inspect},
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
    let created_at = rfc3339(SystemClock::default().at());
    let manifest = fill(&snapshot, (state, part.path()), created_at, stop)?;
    drop(snapshot);
    manifest.write(part.path())?;
    files::sync_folders(part.path())?;
    part.publish(dir)?;
    Ok(manifest)
}

/// Refuses a folder inside the state directory.
fn check_target(dir: &Path, state: &Path) -> Result<(), BackupError> {
    let unfit = |reason: String| BackupError::BadTarget { path: dir.to_owned(), reason };
    let above =
        dir.parent().ok_or_else(|| unfit("it has no parent; give a folder that does not exist".into()))?;
    let above = above.canonicalize().map_err(BackupError::at(above))?;
    let state = state.canonicalize().map_err(BackupError::at(state))?;
    if above.starts_with(&state) {
        let state = state.display();
        return Err(unfit(format!(
            "it lies in the state directory {state}, and would be lost with it; give another folder"
        )));
    }
    Ok(())
}

fn fill(
    snapshot: &Snapshot,
    (state, part): (&Path, &Path),
    created_at: String,
    stop: &mut StopFn,
) -> Result<Manifest, BackupError> {
    let store = part.join(STORE_FILE);
    copy(snapshot, &store, stop)?;
    let StoreContents { schema, epoch, restore_generation: lineage, checked } =
        inspect(&store, &state.join("blobs"), stop)?;
    let CheckReport { counts, damages: mut damage, more_damages: more, blobs, artifacts } = checked;
    let mut files = BTreeMap::from([(STORE_FILE.to_owned(), files::hash_file(&store, stop)?)]);
    let blob = |(path, bytes)| (format!("blobs/{path}"), Some(RecordedFile { bytes, sha256: None }));
    let blobs = blobs.into_iter().map(blob);
    let kept = referenced_files::artifact_files(state, &artifacts)?
        .into_iter()
        .map(|(path, recorded)| (path, Some(recorded)));
    let notes = referenced_files::tombstone_files(state, &artifacts)?.into_iter().map(|path| (path, None));
    let memories = referenced_files::memory_files(state).map(|path| (path, None));
    let named: Vec<_> = blobs.chain(kept).chain(notes).chain(list_scripts(state)?).chain(memories).collect();
    files::check_disk_space(part, total_bytes(state, &named))?;
    for (path, recorded) in named {
        match copy_referenced(&path, state, part, stop)? {
            Ok(file) => {
                if let Some(why) = recorded.and_then(|recorded| recorded.difference(&file)) {
                    damage.push(Damage::file(&path, why));
                }
                files.insert(path, file);
            }
            Err(why) => damage.push(Damage::file(path, why)),
        }
    }
    damage.sort();
    Ok(Manifest {
        format: FORMAT,
        hermod: env!("CARGO_PKG_VERSION").to_owned(),
        schema,
        epoch,
        restore_generation: lineage,
        created_at,
        counts,
        sizes: Manifest::sizes(&files),
        damage,
        more_damage: more,
        files,
    })
}

/// Copies the store's rows, and stops before it uses the disk space that is reserved for records.
fn copy(snapshot: &Snapshot, store: &Path, stop: &mut StopFn) -> Result<(), BackupError> {
    let mut room = Ok(());
    let copied = snapshot.copy(store, &mut |bytes| {
        room = files::check_disk_space(store, bytes as u64);
        if room.is_ok() { stop(bytes) } else { Err(StoppedError) }
    });
    room?;
    Ok(copied?)
}

/// Total bytes of these files; a missing file counts as 0.
fn total_bytes(state: &Path, files: &[(String, Option<RecordedFile>)]) -> u64 {
    let length = |(path, _): &(String, _)| fs::metadata(state.join(path)).map_or(0, |file| file.len());
    files.iter().map(length).sum()
}

/// Copies a file that the store names; the inner error says why it is lost.
fn copy_referenced(
    path: &str,
    state: &Path,
    part: &Path,
    stop: &mut StopFn,
) -> Result<Result<FileEntry, String>, BackupError> {
    let from = state.join(path);
    if !from.try_exists().map_err(BackupError::at(&from))? {
        return Ok(Err(format!("{}: it is missing", from.display())));
    }
    files::copy_and_hash(&from, &part.join(path), stop).map(Ok)
}

/// All scripts: a conversation may be continued with its script long after its last run.
fn list_scripts(state: &Path) -> Result<Vec<(String, Option<RecordedFile>)>, BackupError> {
    let folder = state.join("scripts");
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(BackupError::at(&folder)(error)),
    };
    let mut scripts = Vec::new();
    for entry in entries {
        let path = entry.map_err(BackupError::at(&folder))?.path();
        // A partial script has another extension.
        let whole = path.extension().is_some_and(|ending| ending == "json");
        let name = path.file_name().and_then(|name| name.to_str()).filter(|_| whole);
        scripts.extend(name.map(|name| (format!("scripts/{name}"), None)));
    }
    Ok(scripts)
}

/// Makes backups in the process that has the store open, while runs are active.
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

impl fmt::Debug for BackupMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackupMaker").field("state", &self.state).finish_non_exhaustive()
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
            let mut pace = BackupThrottle::new(stop, done);
            create(snapshot, &state, &dir, &mut |bytes| pace.throttle(bytes))
        };
        async move {
            let made = spawn_blocking(work)
                .await
                .map_err(|error| RequestError::new(RequestErrorKind::Internal, error.to_string()))?;
            serde_json::to_value(made?)
                .map_err(|error| RequestError::new(RequestErrorKind::Internal, error.to_string()))
        }
        .boxed()
    }
}

/// Sleeps as long as each batch took: the backup works at most half of the time, so that runs advance.
struct BackupThrottle {
    stop: CancellationToken,
    done: Arc<AtomicU64>,
    since: tokio::time::Instant,
}

impl BackupThrottle {
    fn new(stop: CancellationToken, done: Arc<AtomicU64>) -> Self {
        Self { stop, done, since: tokio::time::Instant::now() }
    }

    fn throttle(&mut self, bytes: usize) -> Result<(), StoppedError> {
        self.done.fetch_add(bytes as u64, Ordering::Relaxed);
        sleep(self.since.elapsed());
        self.since = tokio::time::Instant::now();
        if self.stop.is_cancelled() { Err(StoppedError) } else { Ok(()) }
    }
}

impl From<BackupError> for RequestError {
    fn from(error: BackupError) -> Self {
        let kind = match &error {
            BackupError::Exists(_) | BackupError::BadTarget { .. } | BackupError::HasStore(_) => {
                RequestErrorKind::Usage
            }
            BackupError::BeingMade(_)
            | BackupError::Busy(_)
            | BackupError::Stopped
            | BackupError::CommandsRunning { .. }
            | BackupError::Store(crate::store::redb::OpenError::Busy { .. }) => RequestErrorKind::Busy,
            BackupError::Io { .. }
            | BackupError::Copy(_)
            | BackupError::NotABackup { .. }
            | BackupError::Damaged { .. }
            | BackupError::RestoreIncomplete { .. }
            | BackupError::Store(_) => RequestErrorKind::Store,
        };
        Self::new(kind, error.to_string())
    }
}
