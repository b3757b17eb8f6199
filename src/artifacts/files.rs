//! The port of artifacts, implemented with files. An artifact is written to `artifacts/unfinished`, then renamed to its
//! final name. It is read in parts, and verified by hash.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use futures::{
    FutureExt,
    future::{BoxFuture, ready},
};
use hermod_actors::{
    model::{Artifact, ContentHash, SessionId},
    port::{ArtifactError, ArtifactName, ArtifactSink, Artifacts, Excerpt, Presence},
};

use super::hash::{self, VerifiedHashes};
use crate::{
    disk_space::check_reserve,
    files::{self, IoResult as _, off_thread, open_regular},
};

const FOLDER: &str = "artifacts";
/// The folder of files until they are complete.
pub(super) const UNFINISHED: &str = "unfinished";
/// Bytes after which a writer syncs, so that the last sync is short.
const SYNC_INTERVAL_BYTES: usize = 16 << 20;

/// The artifacts of one state directory. Only the process that owns the store may write.
#[derive(Debug, Clone)]
pub struct FileArtifacts {
    pub(super) root: Arc<Path>,
    verified: VerifiedHashes,
}

impl FileArtifacts {
    /// Opens the artifacts of a state directory, and removes unfinished files of crashed processes.
    pub fn open(state: &Path) -> io::Result<Self> {
        let root = state.join(FOLDER);
        files::entries(&root.join(UNFINISHED))?.into_iter().try_for_each(fs::remove_file)?;
        Ok(Self { root: root.into(), verified: VerifiedHashes::default() })
    }

    /// The artifacts of a state directory, for callers that create none: removes nothing.
    pub fn at(state: &Path) -> Self {
        Self { root: state.join(FOLDER).into(), verified: VerifiedHashes::default() }
    }

    /// Whether an artifact of a session exists, with its size in bytes, or was removed.
    pub fn presence(&self, session: SessionId, handle: &str) -> io::Result<Presence> {
        let Some(name) = ArtifactName::from_handle(session, handle) else { return Ok(Presence::Missing) };
        match fs::metadata(self.path(name)).if_exists()? {
            Some(metadata) => Ok(Presence::Present(metadata.len())),
            None => Ok(self.removed_at(name)?.map_or(Presence::Missing, Presence::Removed)),
        }
    }

    /// The presence of an artifact that a record names; the caller compares its size. If the size is as recorded and a hash
    /// is recorded, the whole file is read and compared.
    pub fn check(&self, session: SessionId, artifact: &Artifact) -> io::Result<Presence> {
        let presence = self.presence(session, &artifact.handle)?;
        let name = ArtifactName::from_handle(session, &artifact.handle);
        match (presence, &artifact.sha256, name) {
            (Presence::Present(bytes), Some(sha256), Some(name)) if bytes == artifact.bytes => {
                let is_same = hash::of_file(&self.path(name))? == **sha256;
                Ok(if is_same { presence } else { Presence::Altered })
            }
            _ => Ok(presence),
        }
    }

    pub(super) fn path(&self, name: ArtifactName) -> PathBuf {
        self.root.join(name.session.to_string()).join(name.handle())
    }
}

impl Artifacts for FileArtifacts {
    fn create(&self, name: ArtifactName) -> BoxFuture<'static, Result<Box<dyn ArtifactSink>, ArtifactError>> {
        // An attempt has two writers if it is resumed before the first writer is gone; the number keeps their files
        // apart.
        static WRITERS: AtomicU64 = AtomicU64::new(0);
        let (folder, target) = (self.root.join(UNFINISHED), self.path(name));
        let writer = WRITERS.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{}.{}.{writer}", name.session, name.handle()));
        off_thread(move || {
            make_durable(&folder)?;
            let file = files::make(&path)?;
            let unfinished = UnfinishedFile { file, path: Some(path), since_sync: 0 };
            Ok(Box::new(ArtifactFileWriter { unfinished: Some(unfinished), target }) as Box<dyn ArtifactSink>)
        })
        .map(|sink| sink.map_err(unavailable))
        .boxed()
    }

    fn verify(
        &self,
        name: ArtifactName,
        sha256: ContentHash,
    ) -> BoxFuture<'static, Result<(), ArtifactError>> {
        let (artifacts, path) = (self.clone(), self.path(name));
        let verified = self.verified.clone();
        async move {
            match off_thread(move || verified.verify(name, &path, sha256)).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(ArtifactError::Altered(name.handle())),
                Err(error) => Err(artifacts.read_error(name, error).await),
            }
        }
        .boxed()
    }

    fn read(
        &self,
        name: ArtifactName,
        offset: u64,
        max: usize,
    ) -> BoxFuture<'static, Result<Excerpt, ArtifactError>> {
        let (artifacts, path) = (self.clone(), self.path(name));
        let read = off_thread(move || {
            let file = open_regular(&path)?;
            let total = file.metadata()?.len();
            let remaining = usize::try_from(total.saturating_sub(offset)).unwrap_or(usize::MAX);
            let mut bytes = vec![0; remaining.min(max)];
            file.read_exact_at(&mut bytes, offset)?;
            Ok(Excerpt { bytes: bytes.into(), total })
        });
        async move {
            match read.await {
                Ok(excerpt) => Ok(excerpt),
                Err(error) => Err(artifacts.read_error(name, error).await),
            }
        }
        .boxed()
    }
}

/// The writer of an artifact; `unfinished` is `None` during a write, and after one that failed.
#[derive(Debug)]
struct ArtifactFileWriter {
    unfinished: Option<UnfinishedFile>,
    target: PathBuf,
}

/// A file that is removed on drop, unless it was renamed.
#[derive(Debug)]
struct UnfinishedFile {
    file: File,
    /// `None` after the rename.
    path: Option<PathBuf>,
    since_sync: usize,
}

impl ArtifactSink for ArtifactFileWriter {
    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<(), ArtifactError>> {
        let Some(mut unfinished) = self.unfinished.take() else { return ready(Err(lost())).boxed() };
        let work = off_thread(move || {
            check_reserve(&unfinished.file, bytes.len())?;
            unfinished.file.write_all(&bytes)?;
            unfinished.since_sync += bytes.len();
            if unfinished.since_sync >= SYNC_INTERVAL_BYTES {
                unfinished.file.sync_data()?;
                unfinished.since_sync = 0;
            }
            Ok(unfinished)
        });
        async move {
            self.unfinished = Some(work.await.map_err(unavailable)?);
            Ok(())
        }
        .boxed()
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<(), ArtifactError>> {
        let ArtifactFileWriter { unfinished, target } = *self;
        let Some(unfinished) = unfinished else { return ready(Err(lost())).boxed() };
        off_thread(move || unfinished.finish(&target)).map(|result| result.map_err(unavailable)).boxed()
    }
}

impl UnfinishedFile {
    /// Syncs the file and renames it.
    fn finish(mut self, target: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        let (Some(from), Some(folder)) = (&self.path, target.parent()) else { return Ok(()) };
        make_durable(folder)?;
        fs::rename(from, target)?;
        self.path = None;
        files::sync_folder(folder)
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path
            && let Err(error) = fs::remove_file(path)
        {
            tracing::warn!(path = %path.display(), %error, "an unfinished artifact stays until the next start");
        }
    }
}

/// Makes a private folder. Afterwards its name and its parent's name are durable. An existing folder is synced too,
/// because its maker may have been killed before the sync.
fn make_durable(path: &Path) -> io::Result<()> {
    files::make_folder(path)?;
    // Both the folder and its parent may be new.
    path.ancestors().skip(1).take(2).try_for_each(files::sync_folder)
}

pub(super) fn unavailable(error: io::Error) -> ArtifactError {
    ArtifactError::Unavailable(error.to_string())
}

fn lost() -> ArtifactError {
    ArtifactError::Unavailable("an earlier write of it failed".into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use hermod_actors::{
        model::{CallId, RunId},
        port::{ArtifactHashes, AttemptArtifacts},
    };
    use hermod_testkit::artifacts_contract;

    use super::*;

    fn name() -> ArtifactName {
        let call = CallId { run: RunId::from_bits(7), iteration: 1, n: 1 };
        ArtifactName { session: SessionId::from_bits(1), call, attempt: 1 }
    }

    #[tokio::test]
    async fn files_keep_the_contract() {
        let state = tempfile::tempdir().unwrap();
        artifacts_contract(|| Arc::new(FileArtifacts::open(state.path()).unwrap())).await;
    }

    #[tokio::test]
    async fn nobody_else_may_read_them() {
        let state = tempfile::tempdir().unwrap();
        let artifacts = FileArtifacts::open(state.path()).unwrap();
        let keeper = artifacts.create(name()).await.unwrap();
        keeper.finish().await.unwrap();
        let path = artifacts.path(name());
        for (path, mode) in
            [(path.as_path(), 0o600), (path.parent().unwrap(), 0o700), (&artifacts.root, 0o700)]
        {
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode, "{}", path.display());
        }
    }

    #[tokio::test]
    async fn two_keepers_of_one_attempt_do_not_meet() {
        let state = tempfile::tempdir().unwrap();
        let artifacts = FileArtifacts::open(state.path()).unwrap();
        let mut old = artifacts.create(name()).await.unwrap();
        old.write(Bytes::from_static(b"what the old")).await.unwrap();
        let mut new = artifacts.create(name()).await.unwrap();
        new.write(Bytes::from_static(b"all")).await.unwrap();
        old.write(Bytes::from_static(b" one has seen")).await.unwrap();
        drop(old);
        new.finish().await.unwrap();
        assert_eq!(artifacts.read(name(), 0, 100).await.unwrap().bytes, Bytes::from_static(b"all"));
    }

    #[tokio::test]
    async fn an_artifact_that_was_altered_is_told_wherever_it_is_looked_at() {
        let state = tempfile::tempdir().unwrap();
        let artifacts = FileArtifacts::open(state.path()).unwrap();
        let attempt_artifacts = AttemptArtifacts::new(Arc::new(artifacts.clone()), name());
        let artifact = attempt_artifacts.write(Bytes::from_static(b"what was kept")).await.unwrap();
        let mut hashes = ArtifactHashes::default();
        hashes.add(&artifact);
        let reader = attempt_artifacts.clone().with_hashes(hashes);
        let read = async || reader.read(&artifact.handle, 5, 3).await.map(|excerpt| excerpt.bytes);
        let check = |artifact: &Artifact| artifacts.check(name().session, artifact).unwrap();
        let old = Artifact { sha256: None, ..artifact.clone() };
        assert_eq!(
            (read().await.unwrap(), check(&artifact)),
            (Bytes::from_static(b"was"), Presence::Present(13))
        );
        // The cache has the file as verified; then its content changes, with the same length.
        for altered in [b"what was kepT", b"WHAT was kept"] {
            fs::write(artifacts.path(name()), altered).unwrap();
            assert_eq!(read().await, Err(ArtifactError::Altered(artifact.handle.clone())));
            assert_eq!((check(&artifact), check(&old)), (Presence::Altered, Presence::Present(13)));
        }
        fs::write(artifacts.path(name()), b"what was kept").unwrap();
        assert_eq!(
            (read().await.unwrap(), check(&artifact)),
            (Bytes::from_static(b"was"), Presence::Present(13))
        );
        fs::remove_file(artifacts.path(name())).unwrap();
        assert_eq!(read().await, Err(ArtifactError::NotFound(artifact.handle.clone())));
        assert_eq!(check(&artifact), Presence::Missing);
    }

    #[tokio::test]
    async fn what_a_dead_process_left_is_removed() {
        let state = tempfile::tempdir().unwrap();
        let artifacts = FileArtifacts::open(state.path()).unwrap();
        let keeper = artifacts.create(name()).await.unwrap();
        let unfinished = || fs::read_dir(state.path().join(FOLDER).join(UNFINISHED)).unwrap().count();
        std::mem::forget(keeper);
        assert_eq!(unfinished(), 1);
        FileArtifacts::open(state.path()).unwrap();
        assert_eq!(unfinished(), 0);
    }

    #[tokio::test]
    async fn a_place_that_cannot_be_written_is_told() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join(FOLDER), "in the way").unwrap();
        let artifacts = FileArtifacts::at(state.path());
        let error = artifacts.create(name()).await.unwrap_err();
        assert!(matches!(error, ArtifactError::Unavailable(_)), "{error}");
    }
}
