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
    error::{BackupError, Stop},
    files::{self, Part},
    manifest::{FORMAT, Listed, Manifest, STORE},
    shelf::{self, Recorded},
};
use crate::{
    clock::{SystemClock, rfc3339},
    control::{self, Fault, FaultKind},
    store::redb::{Checked, Damage, Found, RedbJournal, Snapshot, Stopped, inspect},
};

/// Makes a backup of the store in `state`, as it was at this instant, in the folder `dir`. Blocks. What is damaged in the store
/// is in the manifest, and no reason to make none.
pub fn create(
    (snapshot, state): (Snapshot, &Path),
    dir: &Path,
    stop: &mut Stop,
) -> Result<Manifest, BackupError> {
    if dir.symlink_metadata().is_ok() {
        return Err(BackupError::Exists(dir.to_owned()));
    }
    fit(dir, state)?;
    let part = Part::of(dir)?;
    let created_at = rfc3339(SystemClock::default().at());
    let manifest = fill(&snapshot, (state, part.path()), created_at, stop)?;
    drop(snapshot);
    manifest.write(part.path())?;
    files::sync_folders(part.path())?;
    part.name(dir)?;
    Ok(manifest)
}

/// Whether a backup may lie there.
fn fit(dir: &Path, state: &Path) -> Result<(), BackupError> {
    let unfit = |reason: String| BackupError::Unfit { path: dir.to_owned(), reason };
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
    stop: &mut Stop,
) -> Result<Manifest, BackupError> {
    let store = part.join(STORE);
    copy(snapshot, &store, stop)?;
    let Found { schema, epoch, lineage, checked } = inspect(&store, &state.join("blobs"), stop)?;
    let Checked { counts, damages: mut damage, more, blobs, artifacts } = checked;
    let mut files = BTreeMap::from([(STORE.to_owned(), files::hashed(&store, stop)?)]);
    let blob = |(path, bytes)| (format!("blobs/{path}"), Some(Recorded { bytes, sha256: None }));
    let blobs = blobs.into_iter().map(blob);
    let kept = shelf::kept(state, &artifacts)?.into_iter().map(|(path, recorded)| (path, Some(recorded)));
    let notes = shelf::notes(state, &artifacts)?.into_iter().map(|path| (path, None));
    let memories = shelf::memories(state).map(|path| (path, None));
    let named: Vec<_> = blobs.chain(kept).chain(notes).chain(scripts(state)?).chain(memories).collect();
    files::check_room(part, lengths(state, &named))?;
    for (path, recorded) in named {
        match copied(&path, (state, part), stop)? {
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
        lineage,
        created_at,
        counts,
        sizes: Manifest::sizes(&files),
        damage,
        more_damage: more,
        files,
    })
}

/// Copies the rows of the store, and leaves on the disk what is left for records.
fn copy(snapshot: &Snapshot, store: &Path, stop: &mut Stop) -> Result<(), BackupError> {
    let mut room = Ok(());
    let copied = snapshot.copy(store, &mut |bytes| {
        room = files::check_room(store, bytes as u64);
        if room.is_ok() { stop(bytes) } else { Err(Stopped) }
    });
    room?;
    Ok(copied?)
}

/// How many bytes these files have. What is lost has none.
fn lengths(state: &Path, files: &[(String, Option<Recorded>)]) -> u64 {
    let length = |(path, _): &(String, _)| fs::metadata(state.join(path)).map_or(0, |file| file.len());
    files.iter().map(length).sum()
}

/// Copies a file of the store; why, if it is lost.
fn copied(
    path: &str,
    (state, part): (&Path, &Path),
    stop: &mut Stop,
) -> Result<Result<Listed, String>, BackupError> {
    let from = state.join(path);
    if !from.try_exists().map_err(BackupError::at(&from))? {
        return Ok(Err(format!("{}: it is missing", from.display())));
    }
    files::copied(&from, &part.join(path), stop).map(Ok)
}

/// All scripts: a conversation may go on with its own long after its last run.
fn scripts(state: &Path) -> Result<Vec<(String, Option<Recorded>)>, BackupError> {
    let folder = state.join("scripts");
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(BackupError::at(&folder)(error)),
    };
    let mut scripts = Vec::new();
    for entry in entries {
        let path = entry.map_err(BackupError::at(&folder))?.path();
        // What is in the making has another ending.
        let whole = path.extension().is_some_and(|ending| ending == "json");
        let name = path.file_name().and_then(|name| name.to_str()).filter(|_| whole);
        scripts.extend(name.map(|name| (format!("scripts/{name}"), None)));
    }
    Ok(scripts)
}

/// Makes backups in the process that has the store open, beside what runs there.
pub struct Copier {
    /// Nothing is held open for one who may ask.
    journal: Weak<RedbJournal>,
    state: PathBuf,
}

impl Copier {
    /// Of this store.
    pub fn new(journal: &Arc<RedbJournal>, state: &Path) -> Arc<Self> {
        Arc::new(Self { journal: Arc::downgrade(journal), state: state.to_owned() })
    }
}

impl fmt::Debug for Copier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copier").field("state", &self.state).finish_non_exhaustive()
    }
}

impl control::Copier for Copier {
    fn create(
        &self,
        dir: PathBuf,
        (stop, done): (CancellationToken, Arc<AtomicU64>),
    ) -> BoxFuture<'static, Result<Value, Fault>> {
        let (journal, state) = (self.journal.clone(), self.state.clone());
        let work = move || {
            // The store is not kept open by this: it may be closed meanwhile, and then there is no backup.
            let snapshot =
                journal.upgrade().map(|journal| journal.snapshot()).ok_or(BackupError::Stopped)??;
            let mut pace = Pace::new(stop, done);
            create((snapshot, &state), &dir, &mut |bytes| pace.after(bytes))
        };
        async move {
            let made = spawn_blocking(work)
                .await
                .map_err(|error| Fault::new(FaultKind::Internal, error.to_string()))?;
            serde_json::to_value(made?).map_err(|error| Fault::new(FaultKind::Internal, error.to_string()))
        }
        .boxed()
    }
}

/// Works for at most half of the time, so that runs get on.
struct Pace {
    stop: CancellationToken,
    done: Arc<AtomicU64>,
    since: tokio::time::Instant,
}

impl Pace {
    fn new(stop: CancellationToken, done: Arc<AtomicU64>) -> Self {
        Self { stop, done, since: tokio::time::Instant::now() }
    }

    fn after(&mut self, bytes: usize) -> Result<(), Stopped> {
        self.done.fetch_add(bytes as u64, Ordering::Relaxed);
        sleep(self.since.elapsed());
        self.since = tokio::time::Instant::now();
        if self.stop.is_cancelled() { Err(Stopped) } else { Ok(()) }
    }
}

impl From<BackupError> for Fault {
    fn from(error: BackupError) -> Self {
        let kind = match &error {
            BackupError::Exists(_) | BackupError::Unfit { .. } | BackupError::HasStore(_) => FaultKind::Usage,
            BackupError::BeingMade(_)
            | BackupError::Busy(_)
            | BackupError::Stopped
            | BackupError::UnderWay { .. }
            | BackupError::Store(crate::store::redb::OpenError::Busy { .. }) => FaultKind::Busy,
            BackupError::Io { .. }
            | BackupError::Copy(_)
            | BackupError::NoBackup { .. }
            | BackupError::Damaged { .. }
            | BackupError::Unfinished { .. }
            | BackupError::Store(_) => FaultKind::Store,
        };
        Self::new(kind, error.to_string())
    }
}
