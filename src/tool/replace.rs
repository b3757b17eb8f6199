//! Replaces a file atomically: a reader sees the old content or the new, also after a crash. Leftovers of earlier
//! attempts are removed.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Write as _},
    os::fd::OwnedFd,
};

use hermod_actors::{
    model::CallEnd,
    port::{ArtifactName, BadArguments},
};
use rustix::{
    fs::{AtFlags, Mode, OFlags, Stat},
    io::Errno,
};

use super::{paths::WorkspacePath, typed_tool::ToolContext};

/// Permission bits, without the file type.
const PERMISSION_BITS: u32 = 0o7777;

/// Replaces the content of the regular file at `path`, which need not exist. Durable when it returns; permissions are
/// kept.
pub(super) fn replace(path: &WorkspacePath, content: &[u8], context: &ToolContext) -> Result<(), CallEnd> {
    let attempt = context.artifacts.name();
    let (folder, target) = path.create_parent()?;
    let earlier = existing_file(path, &folder, target)?;
    let name = temporary_name(attempt);
    let temporary = remove_leftovers(&folder, attempt)
        .and_then(|()| TemporaryFile::create(&folder, &name, content, earlier.as_ref()));
    let temporary = temporary.map_err(|error| path.io_error(error))?;
    context.check_stopped()?;
    Ok(temporary.rename_to(target).map_err(|error| path.io_error(error))?)
}

fn temporary_name(attempt: ArtifactName) -> String {
    format!(".hermod-{}.tmp", attempt.handle())
}

/// Removes temporary files that this attempt and earlier ones of the same call left after a crash.
fn remove_leftovers(folder: &OwnedFd, latest: ArtifactName) -> io::Result<()> {
    (1..=latest.attempt).try_for_each(|attempt| {
        let name = temporary_name(ArtifactName { attempt, ..latest });
        match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    })
}

/// The metadata of an existing target; anything but a regular file is refused.
fn existing_file(
    path: &WorkspacePath,
    folder: &OwnedFd,
    target: &OsStr,
) -> Result<Option<Stat>, BadArguments> {
    match rustix::fs::statat(folder, target, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => {
            path.expect_file(&stat)?;
            Ok(Some(stat))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(path.io_error(error)),
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
    /// Creates the file and syncs its content. With an existing target it is private at first, so that its permissions
    /// are never wider than the target's.
    fn create(
        folder: &'a OwnedFd,
        name: &'a str,
        content: &[u8],
        earlier: Option<&Stat>,
    ) -> io::Result<Self> {
        let mode = Mode::from_raw_mode(if earlier.is_some() { 0o600 } else { 0o666 });
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(folder, name, flags, mode)?);
        let mut temporary = Self { folder, name, file, is_temporary: true };
        temporary.file.write_all(content)?;
        if let Some(earlier) = earlier {
            let mode = Mode::from_raw_mode(earlier.st_mode & PERMISSION_BITS);
            rustix::fs::fchmod(&temporary.file, mode)?;
        }
        temporary.file.sync_all()?;
        Ok(temporary)
    }

    fn rename_to(mut self, target: &OsStr) -> io::Result<()> {
        rustix::fs::renameat(self.folder, self.name, self.folder, target)?;
        self.is_temporary = false;
        Ok(rustix::fs::fsync(self.folder)?)
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
