//! Replaces a file atomically: a reader sees the old content or the new, also after a crash. Leftovers of earlier
//! attempts are removed.

use std::{ffi::OsStr, fs::File, io::Write as _, os::fd::OwnedFd};

use hermod_actors::port::ArtifactName;
use rustix::{
    fs::{AtFlags, Mode, OFlags, Stat},
    io::Errno,
};

use super::{
    blocking::{CancelCheck, FileWorkError},
    paths::WorkspacePath,
};

/// Permission bits, without the file type.
const PERMISSION_BITS: u32 = 0o7777;

/// Replaces the content of the regular file at `path`, which need not exist. Durable when it returns; permissions are
/// kept.
pub(super) fn replace(
    path: &WorkspacePath,
    content: &[u8],
    attempt: ArtifactName,
    cancel: &CancelCheck,
) -> Result<(), FileWorkError> {
    let (folder, target) = path.create_parent()?;
    let earlier = existing_file(path, &folder, target)?;
    let failed = |error: std::io::Error| path.io_error(error);
    remove_leftovers(&folder, attempt).map_err(|error| path.io_error(error))?;
    let name = temporary_name(attempt);
    let mut temporary =
        TemporaryFile::create(&folder, &name, earlier.as_ref()).map_err(|error| path.io_error(error))?;
    temporary.fill(content, earlier.as_ref()).map_err(failed)?;
    cancel.check()?;
    temporary.rename_to(target).map_err(|error| path.io_error(error))?;
    Ok(())
}

fn temporary_name(attempt: ArtifactName) -> String {
    format!(".hermod-{}.tmp", attempt.handle())
}

/// Removes temporary files that this attempt and earlier ones of the same call left after a crash.
fn remove_leftovers(folder: &OwnedFd, latest: ArtifactName) -> rustix::io::Result<()> {
    (1..=latest.attempt).try_for_each(|attempt| {
        let name = temporary_name(ArtifactName { attempt, ..latest });
        match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error),
        }
    })
}

/// The metadata of an existing target; anything but a regular file is refused.
fn existing_file(
    path: &WorkspacePath,
    folder: &OwnedFd,
    target: &OsStr,
) -> Result<Option<Stat>, FileWorkError> {
    match rustix::fs::statat(folder, target, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => {
            path.expect_file(&stat)?;
            Ok(Some(stat))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(path.io_error(error).into()),
    }
}

/// A temporary file; dropping it removes it unless it was renamed to the target.
struct TemporaryFile<'a> {
    folder: &'a OwnedFd,
    name: &'a str,
    file: File,
    is_temporary: bool,
}

impl<'a> TemporaryFile<'a> {
    /// Creates the file. With an existing target it is private at first, so that its permissions are never wider than
    /// the target's.
    fn create(folder: &'a OwnedFd, name: &'a str, earlier: Option<&Stat>) -> rustix::io::Result<Self> {
        let mode = Mode::from_raw_mode(if earlier.is_some() { 0o600 } else { 0o666 });
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(folder, name, flags, mode)?;
        Ok(Self { folder, name, file: file.into(), is_temporary: true })
    }

    fn fill(&mut self, content: &[u8], earlier: Option<&Stat>) -> std::io::Result<()> {
        self.file.write_all(content)?;
        if let Some(earlier) = earlier {
            rustix::fs::fchmod(&self.file, Mode::from_raw_mode(earlier.st_mode & PERMISSION_BITS))?;
        }
        self.file.sync_all()
    }

    fn rename_to(mut self, target: &OsStr) -> rustix::io::Result<()> {
        rustix::fs::renameat(self.folder, self.name, self.folder, target)?;
        self.is_temporary = false;
        rustix::fs::fsync(self.folder)
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if self.is_temporary {
            // The earlier error is reported; the next attempt removes a leftover.
            let (Ok(()) | Err(_)) = rustix::fs::unlinkat(self.folder, self.name, AtFlags::empty());
        }
    }
}
