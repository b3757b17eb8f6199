//! Which files a sandbox grants, as open descriptors. Landlock knows no exceptions: a folder with a hidden path in it is
//! granted by its other entries, one by one.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io,
    os::fd::OwnedFd,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, accessat, fstat, openat},
    io::Errno,
};

use super::{
    places,
    spec::{SandboxMode, SandboxSpec},
};

/// Most entries of a folder that are granted one by one. A larger folder is granted up to here.
const MAX_ENTRIES: usize = 10_000;

/// What a rule allows below its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileAccess {
    /// To list folders, for a folder that is granted by its entries.
    List,
    /// To read, list and execute.
    Read,
    /// To use a device.
    Device,
    /// Everything.
    Write,
}

/// One rule of the sandbox.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) file: OwnedFd,
    pub(super) is_folder: bool,
    pub(super) access: FileAccess,
}

/// The rules of a sandbox for a process with this home folder and these folders of programs.
///
/// Errors: the workspace or the folder for temporary files cannot be opened. Other paths may be missing.
pub(super) fn grants(
    spec: &SandboxSpec,
    home: Option<&Path>,
    programs: &[PathBuf],
) -> Result<Vec<Grant>, PathBuf> {
    let hidden = HiddenPaths::new(spec.rules.hide.iter().cloned().chain(places::secrets(home)));
    let mut grants = Vec::new();
    let mut add = |path: &Path, access| hidden.grant(path, access, &mut grants);
    let workspace = match spec.rules.mode {
        SandboxMode::Workspace | SandboxMode::Required => FileAccess::Write,
        SandboxMode::ReadOnly => FileAccess::Read,
    };
    add(&spec.workspace, workspace).map_err(|_| spec.workspace.clone())?;
    let system = places::SYSTEM.iter().map(PathBuf::from);
    let tools = home.into_iter().flat_map(places::tools);
    let is_specific = |path: &&PathBuf| home.is_none_or(|home| !home.starts_with(path));
    let programs = programs.iter().filter(is_specific).cloned();
    let read = system.chain(tools).chain(programs).chain(spec.rules.read.iter().cloned());
    let devices = places::DEVICES.iter().map(PathBuf::from);
    let others = read
        .map(|path| (path, FileAccess::Read))
        .chain(spec.rules.write.iter().cloned().map(|path| (path, FileAccess::Write)))
        .chain(devices.map(|path| (path, FileAccess::Device)));
    for (path, access) in others {
        // A path that is missing or out of reach is out of the sandbox too.
        let (Ok(()) | Err(_)) = add(&path, access);
    }
    if let Some(temp) = &spec.temp {
        let folder = open_at(CWD, temp.as_os_str(), OFlags::DIRECTORY).map_err(|_| temp.clone())?;
        grants.push(Grant {
            file: folder,
            is_folder: true,
            access: FileAccess::Write,
        });
    }
    Ok(grants)
}

/// Real paths that no rule may cover.
struct HiddenPaths(BTreeSet<PathBuf>);

impl HiddenPaths {
    /// Only what exists and is readable for this user has to be hidden.
    fn new(paths: impl Iterator<Item = PathBuf>) -> Self {
        let is_readable = |path: &PathBuf| accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS).is_ok();
        Self(paths.filter(is_readable).filter_map(|path| path.canonicalize().ok()).collect())
    }

    fn covers(&self, path: &Path) -> bool {
        path.ancestors().any(|ancestor| self.0.contains(ancestor))
    }

    fn is_above_one(&self, path: &Path) -> bool {
        // A path sorts directly before all paths below it, or before their neighbours.
        self.0.range(path.to_owned()..).next().is_some_and(|hidden| hidden.starts_with(path))
    }

    /// Adds the rules of a path and its symlink targets.
    fn grant(&self, path: &Path, access: FileAccess, grants: &mut Vec<Grant>) -> io::Result<()> {
        let path = path.canonicalize()?;
        let file = open_at(CWD, path.as_os_str(), OFlags::empty())?;
        self.grant_file(path, file, access, grants)
    }

    /// The recursion ends at a hidden path, so it is as deep as the longest of them.
    fn grant_file(
        &self,
        path: PathBuf,
        file: OwnedFd,
        access: FileAccess,
        grants: &mut Vec<Grant>,
    ) -> io::Result<()> {
        let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
        // Nothing is granted through a symlink: its target counts by its own path.
        if self.covers(&path) || kind == FileType::Symlink {
            return Ok(());
        }
        let is_folder = kind == FileType::Directory;
        if !is_folder || !self.is_above_one(&path) {
            grants.push(Grant { file, is_folder, access });
            return Ok(());
        }
        for name in names(&file)? {
            let name = OsStr::from_bytes(&name);
            // An entry may vanish at any time.
            if let Ok(entry) = open_at(&file, name, OFlags::empty()) {
                self.grant_file(path.join(name), entry, access, grants)?;
            }
        }
        grants.push(Grant { file, is_folder, access: FileAccess::List });
        Ok(())
    }
}

fn open_at(folder: impl std::os::fd::AsFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC | flags, Mode::empty())
}

fn names(folder: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let folder = openat(folder, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)?.take(MAX_ENTRIES + 2) {
        let name = entry?.file_name().to_bytes().to_owned();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}
