use std::{ffi::OsStr, fs::File, io::Write as _, os::fd::OwnedFd};

use hermod_actors::model::{Access, CallEnd, EffectClass};
use rustix::{
    fs::{AtFlags, Mode, OFlags, Stat},
    io::Errno,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    blocking::{Asker, Failed, blocking},
    paths::{Place, declared, resolve},
    typed::{Site, Typed},
};

/// Permission bits, without the kind of the file.
const PERMISSIONS: u32 = 0o7777;

/// Writes a whole file, atomically: a reader sees the old content or the new, also after a crash.
#[derive(Debug)]
pub(super) struct WriteFile;

/// What to write.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The file, relative to the workspace or absolute inside it; folders that are missing above it are created.
    path: String,
    /// The whole new content.
    content: String,
}

impl Typed for WriteFile {
    const NAME: &'static str = "write_file";
    const DESCRIPTION: &'static str = "Writes a whole text file of the workspace, replacing what it held; says how many bytes were written.";
    const EFFECT: EffectClass = EffectClass::Idempotent;
    type Arguments = Arguments;

    fn access(arguments: &Arguments, workspace: &str) -> Access {
        Access::writes(declared(workspace, &arguments.path))
    }

    async fn run(arguments: Arguments, site: Site) -> CallEnd {
        let Site { name, workspace, cancel } = site;
        let temporary = format!(".hermod-{name}.tmp");
        blocking(&cancel, move |asker| write(&workspace, &arguments, (&temporary, asker))).await
    }
}

fn write(workspace: &str, arguments: &Arguments, (name, asker): (&str, &Asker)) -> Result<String, Failed> {
    let Arguments { path, content } = arguments;
    let place = resolve(workspace, "path", path)?;
    if path.ends_with('/') {
        return Err(place.refuse("ends with `/`, so it names a folder", "name a file").into());
    }
    asker.still_waits()?;
    let (folder, target) = place.create_parent()?;
    let earlier = earlier(&place, &folder, target)?;
    let mut temporary =
        Temporary::create(&folder, name, earlier.as_ref()).map_err(|error| place.failed(error))?;
    temporary.fill(content, earlier.as_ref()).map_err(|error| place.failed(error))?;
    asker.still_waits()?;
    temporary.become_file(target).map_err(|error| place.failed(error))?;
    Ok(format!("wrote {} bytes to {}", content.len(), place.shown()))
}

/// What is in the target's place already; refused unless it is a regular file.
fn earlier(place: &Place, folder: &OwnedFd, target: &OsStr) -> Result<Option<Stat>, Failed> {
    match rustix::fs::statat(folder, target, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => {
            place.expect_file(&stat)?;
            Ok(Some(stat))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(place.failed(error).into()),
    }
}

/// A file that is removed again unless it becomes the target.
struct Temporary<'a> {
    folder: &'a OwnedFd,
    name: &'a str,
    file: File,
    is_left: bool,
}

impl<'a> Temporary<'a> {
    /// Nobody may read it who may not read the target.
    fn create(folder: &'a OwnedFd, name: &'a str, earlier: Option<&Stat>) -> rustix::io::Result<Self> {
        let mode = Mode::from_raw_mode(if earlier.is_some() { 0o600 } else { 0o666 });
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = || rustix::fs::openat(folder, name, flags, mode);
        let file = match create() {
            // The same attempt of the same call left it when its process died.
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
                create()
            }
            created => created,
        }?;
        Ok(Self { folder, name, file: file.into(), is_left: true })
    }

    fn fill(&mut self, content: &str, earlier: Option<&Stat>) -> std::io::Result<()> {
        self.file.write_all(content.as_bytes())?;
        if let Some(earlier) = earlier {
            rustix::fs::fchmod(&self.file, Mode::from_raw_mode(earlier.st_mode & PERMISSIONS))?;
        }
        self.file.sync_all()
    }

    fn become_file(mut self, target: &OsStr) -> rustix::io::Result<()> {
        rustix::fs::renameat(self.folder, self.name, self.folder, target)?;
        self.is_left = false;
        rustix::fs::fsync(self.folder)
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if self.is_left {
            // Whoever failed before this reports why; a leftover is removed by the next attempt of its name.
            let (Ok(()) | Err(_)) = rustix::fs::unlinkat(self.folder, self.name, AtFlags::empty());
        }
    }
}
