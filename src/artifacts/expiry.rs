//! Lists and removes artifacts, for gc. An expired artifact gets a tombstone, a line in `artifacts/<session>/removed`;
//! artifacts without a run or session are removed without one. `maintenance/files.rs` decides what is removed. Also
//! tells when a missing artifact was removed, and names the files of tombstones for backups.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use hermod_actors::{
    model::{SessionId, Timestamp},
    port::{ArtifactError, ArtifactName},
};

use super::files::{FileArtifacts, UNFINISHED, unavailable};
use crate::files::{
    IoResult as _, entries, off_thread, open_regular, read_regular_text, remove, sync_folder, write,
};

/// The file of tombstones; no artifact handle has this name.
const TOMBSTONES: &str = "removed";
/// Leading bytes of a file that tell whether it is an image.
pub(crate) const IMAGE_HEAD_BYTES: usize = 16;
/// Maximum bytes of a session's tombstone file.
const MAX_LIST_BYTES: u64 = 1 << 30;

/// An artifact's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactFile {
    /// Session, call and attempt.
    pub name: ArtifactName,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the last write.
    pub modified: Timestamp,
}

impl FileArtifacts {
    /// The sessions that have a folder of artifacts.
    pub fn sessions(&self) -> io::Result<Vec<SessionId>> {
        let names = names(&self.root)?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// The artifacts of a session.
    pub fn of_session(&self, session: SessionId) -> io::Result<Vec<ArtifactFile>> {
        let folder = self.folder(session);
        let mut files = Vec::new();
        for name in names(&folder)? {
            let Some(name) = ArtifactName::from_handle(session, &name) else { continue };
            let (bytes, modified) = size_and_modified(&self.path(name))?;
            files.push(ArtifactFile { name, bytes, modified });
        }
        Ok(files)
    }

    /// When an entry was last added to the session's folder or removed from it.
    pub fn folder_modified(&self, session: SessionId) -> io::Result<Timestamp> {
        size_and_modified(&self.folder(session)).map(|(_, modified)| modified)
    }

    /// Unfinished files, of crashed processes or of writes under way: path, bytes, and time of the last write.
    pub fn unfinished(&self) -> io::Result<Vec<(PathBuf, u64, Timestamp)>> {
        // A writer may have renamed a file to its final name since the listing.
        existing_files(entries(&self.root.join(UNFINISHED))?)
    }

    /// Whether the artifact is an image. Images do not expire, because later requests of the session show them.
    pub fn is_picture(&self, name: ArtifactName) -> io::Result<bool> {
        use std::io::Read as _;
        let mut head = Vec::with_capacity(IMAGE_HEAD_BYTES);
        open_regular(&self.path(name))?.take(IMAGE_HEAD_BYTES as u64).read_to_end(&mut head)?;
        Ok(hermod_actors::model::ImageFormat::of_bytes(&head).is_some())
    }

    /// Removes artifacts of a session and writes their tombstones. After a crash in between, each removed artifact has
    /// a tombstone.
    pub fn expire(&self, session: SessionId, names: &[ArtifactName], at: Timestamp) -> io::Result<()> {
        let folder = self.folder(session);
        let (list, new) = (folder.join(TOMBSTONES), folder.join("removed.part"));
        let mut text = read_regular_text(&list, MAX_LIST_BYTES).if_exists()?.unwrap_or_default();
        text.extend(names.iter().map(|name| format!("{} {}\n", name.handle(), at.0)));
        remove(&new)?;
        write(&new, text.as_bytes())?;
        fs::rename(&new, &list)?;
        sync_folder(&folder)?;
        self.discard(names)
    }

    /// Removes artifacts of a removed session, and its folder after the last one.
    pub fn remove(&self, session: SessionId, names: &[ArtifactName]) -> io::Result<()> {
        self.discard(names)?;
        let folder = self.folder(session);
        if !self.of_session(session)?.is_empty() {
            return Ok(());
        }
        for list in [TOMBSTONES, "removed.part"] {
            remove(&folder.join(list))?;
        }
        match fs::remove_dir(&folder) {
            // Files that are no artifacts stay, and so does the folder.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            removed => removed,
        }
    }

    /// Removes artifacts without tombstones.
    pub fn discard(&self, names: &[ArtifactName]) -> io::Result<()> {
        names.iter().try_for_each(|name| fs::remove_file(self.path(*name)))
    }

    /// The error of a failed read; that of an artifact without a file tells whether it was removed.
    pub(super) async fn read_error(self, name: ArtifactName, error: io::Error) -> ArtifactError {
        if error.kind() != io::ErrorKind::NotFound {
            return unavailable(error);
        }
        let handle = name.handle();
        match off_thread(move || self.removed_at(name)).await {
            Ok(Some(at)) => ArtifactError::Removed { handle, at },
            Ok(None) => ArtifactError::NotFound(handle),
            Err(error) => unavailable(error),
        }
    }

    /// When a missing artifact was removed; `None` without a tombstone.
    pub(super) fn removed_at(&self, name: ArtifactName) -> io::Result<Option<Timestamp>> {
        let (list, handle) = (self.folder(name.session).join(TOMBSTONES), name.handle());
        let text = read_regular_text(&list, MAX_LIST_BYTES).if_exists()?.unwrap_or_default();
        Ok(text.lines().rev().find_map(|line| tombstone_time(line, &handle)))
    }

    /// The path of a session's tombstones, relative to the folder of artifacts; `None` if there are none.
    pub fn tombstones_path(&self, session: SessionId) -> io::Result<Option<String>> {
        let tombstones = format!("{session}/{TOMBSTONES}");
        Ok(self.root.join(&tombstones).try_exists()?.then_some(tombstones))
    }

    fn folder(&self, session: SessionId) -> PathBuf {
        self.root.join(session.to_string())
    }
}

/// The time of removal, if the line is the tombstone of `handle`.
fn tombstone_time(line: &str, handle: &str) -> Option<Timestamp> {
    line.strip_prefix(handle)?.strip_prefix(' ')?.parse().ok().map(Timestamp)
}

/// The names in a folder; none if it is missing. Skips names that are not UTF-8: no artifact has such a name.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let paths = entries(folder)?;
    Ok(paths.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
}

/// The bytes of a file, and the time of its last write.
pub(crate) fn size_and_modified(path: &Path) -> io::Result<(u64, Timestamp)> {
    let metadata = fs::metadata(path)?;
    let since_epoch = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok((metadata.len(), Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))))
}

/// The files that still exist, each with its bytes and the time of its last write.
pub(crate) fn existing_files(paths: Vec<PathBuf>) -> io::Result<Vec<(PathBuf, u64, Timestamp)>> {
    let mut files = Vec::new();
    for path in paths {
        if let Some((bytes, modified)) = size_and_modified(&path).if_exists()? {
            files.push((path, bytes, modified));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use hermod_actors::{
        model::{CallId, RunId},
        port::{Artifacts, AttemptArtifacts, Presence},
    };

    use super::*;

    const SESSION: SessionId = SessionId::from_bits(1);

    #[tokio::test]
    async fn what_was_removed_says_when() {
        let state = tempfile::tempdir().unwrap();
        let artifacts = FileArtifacts::open(state.path()).unwrap();
        let call = CallId { run: RunId::from_bits(7), iteration: 1, n: 1 };
        let name = |attempt| ArtifactName { session: SESSION, call, attempt };
        let writer =
            |attempt| AttemptArtifacts::new(Arc::new(artifacts.clone()) as Arc<dyn Artifacts>, name(attempt));
        for attempt in [1, 11, 12] {
            writer(attempt).write(Bytes::from_static(b"all")).await.unwrap();
        }
        artifacts.expire(SESSION, &[name(1)], Timestamp(5_000)).unwrap();
        artifacts.expire(SESSION, &[name(11)], Timestamp(7_000)).unwrap();
        let why = |attempt| artifacts.read(name(attempt), 0, 9);
        for (attempt, at) in [(1, 5_000), (11, 7_000)] {
            let removed = ArtifactError::Removed { handle: name(attempt).handle(), at: Timestamp(at) };
            assert_eq!(why(attempt).await, Err(removed));
        }
        assert_eq!(why(12).await.unwrap().bytes, &b"all"[..]);
        assert_eq!(why(2).await, Err(ArtifactError::NotFound(name(2).handle())));
        let look = |attempt| artifacts.presence(SESSION, &name(attempt).handle()).unwrap();
        assert_eq!(look(1), Presence::Removed(Timestamp(5_000)));
        assert_eq!((look(12), look(2)), (Presence::Present(3), Presence::Missing));
        assert_eq!(artifacts.tombstones_path(SESSION).unwrap(), Some(format!("{SESSION}/removed")));
        assert_eq!(artifacts.tombstones_path(SessionId::from_bits(2)).unwrap(), None);
        assert_eq!(artifacts.of_session(SESSION).unwrap().len(), 1);
        artifacts.remove(SESSION, &[name(12)]).unwrap();
        assert_eq!(artifacts.sessions().unwrap(), []);
    }
}
