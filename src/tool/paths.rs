//! Paths of tools: resolved to real paths inside the workspace, then opened step by step, never through a symlink. Also
//! the errors about paths, and the exclusion of the state directory.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

use hermod_actors::{SanitizedText, port::BadArguments};
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use super::ToolContext;
use crate::excerpt::quoted_first_chars;

const FOLDER_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Linux's `PATH_MAX`: bytes of a path including the NUL. A longer one could be created step by step, but then not be
/// named.
const MAX_PATH_BYTES: usize = 4_096;

/// Characters of a path in an error.
const MAX_EXCERPT_CHARS: usize = 500;

const LIST_HINT: &str = "see what there is with `list_files`";

/// Common errors of the system with their wording and remedy.
const KNOWN_ERRORS: &[(io::ErrorKind, &str, &str)] = &[
    (io::ErrorKind::NotFound, "does not exist", LIST_HINT),
    (io::ErrorKind::NotADirectory, "is or leads through something that is not a folder", LIST_HINT),
    (
        io::ErrorKind::PermissionDenied,
        "is not permitted to this user",
        "leave it, or ask the operator for access",
    ),
];

/// A real path inside a workspace, free of symlinks and `..`.
///
/// It is opened step by step from the workspace, never through a symlink, so a component swapped in later is refused.
#[derive(Debug)]
pub struct WorkspacePath {
    field: &'static str,
    argument: String,
    root: PathBuf,
    relative: PathBuf,
}

/// Resolves `path`, the argument `field`, in `workspace`: relative to it, or absolute and inside it. The path need not
/// exist. Errors name the field, the path and the remedy.
pub fn resolve(workspace: &str, field: &'static str, path: &str) -> Result<WorkspacePath, BadArguments> {
    let root = Path::new(workspace).canonicalize().map_err(|error| BadArguments {
        field: None,
        error: format!("the workspace {workspace:?} cannot be used: {error}"),
        hint: "the operator has to create it or name another".into(),
    })?;
    let mut resolved = WorkspacePath { field, argument: path.into(), root, relative: PathBuf::new() };
    if path.is_empty() {
        return Err(resolved.refuse("is empty", "use `.` for the workspace itself"));
    }
    if path.contains('\0') {
        return Err(resolved.refuse("contains a NUL byte", "leave it out"));
    }
    if path == "~" || path.starts_with("~/") {
        return Err(resolved.refuse("starts with `~`, which is not expanded", &resolved.inside_hint()));
    }
    let joined = resolved.root.join(path);
    resolved.expect_short(&joined)?;
    let real = resolved.real(&joined)?;
    resolved.expect_short(&real)?;
    match real.strip_prefix(&resolved.root) {
        Ok(relative) => relative.clone_into(&mut resolved.relative),
        Err(_) => return Err(resolved.refuse("leads out of the workspace", &resolved.inside_hint())),
    }
    Ok(resolved)
}

impl ToolContext {
    /// Resolves a path like [`resolve`], but refuses the state directory, which may be inside the workspace.
    pub(super) fn resolve(&self, field: &'static str, path: &str) -> Result<WorkspacePath, BadArguments> {
        resolve_outside_state(self.settings.state.as_deref(), &self.workspace, field, path)
    }
}

/// Resolves a path like [`resolve`], but refuses the state directory, which may be inside the workspace.
pub(super) fn resolve_outside_state(
    state: Option<&Path>,
    workspace: &str,
    field: &'static str,
    path: &str,
) -> Result<WorkspacePath, BadArguments> {
    let resolved = resolve(workspace, field, path)?;
    if state.is_some_and(|state| resolved.absolute().starts_with(state)) {
        let hint = "leave that folder alone; the operator sees what is in it with `hermod` itself";
        return Err(resolved.refuse("lies in Hermod's state directory", hint));
    }
    Ok(resolved)
}

/// The path that a call declares to touch. It is the real path, so that two names of one file are equal; if it cannot
/// be resolved, the joined name.
pub(super) fn declared_path(workspace: &str, path: &str) -> String {
    let named = || Path::new(workspace).join(path).components().collect::<PathBuf>();
    let resolved = resolve(workspace, "path", path).map_or_else(|_| named(), |resolved| resolved.absolute());
    resolved.to_string_lossy().into_owned()
}

impl WorkspacePath {
    /// The absolute real path.
    pub fn absolute(&self) -> PathBuf {
        self.root.join(&self.relative)
    }

    /// The path relative to the workspace; `.` for the workspace itself.
    pub fn display(&self) -> String {
        if self.relative.as_os_str().is_empty() { ".".into() } else { self.relative.display().to_string() }
    }

    /// The workspace as a path.
    #[must_use]
    pub fn root(&self) -> Self {
        self.at(Path::new(""))
    }

    /// The path `relative`, which must be a real path in the workspace.
    #[must_use]
    pub fn at(&self, relative: &Path) -> Self {
        let (argument, root) = (relative.display().to_string(), self.root.clone());
        Self { field: self.field, argument, root, relative: relative.to_owned() }
    }

    /// An error about this path with its remedy.
    pub fn refuse(&self, what: &str, hint: &str) -> BadArguments {
        let excerpt = quoted_first_chars(&self.argument, MAX_EXCERPT_CHARS);
        let error = format!("`{}` {excerpt} {what}", self.field);
        BadArguments { field: Some(self.field.into()), error, hint: hint.into() }
    }

    /// An error about this path from a system error.
    pub fn io_error(&self, error: impl Into<io::Error>) -> BadArguments {
        let error = error.into();
        let known = KNOWN_ERRORS.iter().find(|(kind, ..)| *kind == error.kind());
        known.map_or_else(
            || self.refuse(&format!("failed: {error}"), "mend the cause or use another path"),
            |(_, what, hint)| self.refuse(what, hint),
        )
    }

    /// Opens the path as a folder.
    pub fn open_folder(&self) -> Result<OwnedFd, BadArguments> {
        self.walk(&self.relative, open_folder).map_err(|error| self.io_error(error))
    }

    /// Opens the path as a regular file for reading.
    pub fn open_file(&self) -> Result<(File, Stat), BadArguments> {
        let (parent, name) = self.parent(open_folder)?;
        let entry =
            rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| self.io_error(e))?;
        self.expect_file(&entry)?;
        let file =
            rustix::fs::openat(&parent, name, FILE_FLAGS, Mode::empty()).map_err(|e| self.io_error(e))?;
        let opened = rustix::fs::fstat(&file).map_err(|e| self.io_error(e))?;
        self.expect_file(&opened)?;
        Ok((file.into(), opened))
    }

    /// Opens the parent folder, creating missing folders, and returns it with the file's name.
    pub fn create_parent(&self) -> Result<(OwnedFd, &OsStr), BadArguments> {
        self.parent(|folder, name| match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
            Ok(()) => rustix::fs::fsync(&folder).and_then(|()| open_folder(folder, name)),
            Err(Errno::EXIST) => open_folder(folder, name),
            Err(error) => Err(error),
        })
    }

    /// Refuses anything but a regular file.
    pub fn expect_file(&self, stat: &Stat) -> Result<(), BadArguments> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(()),
            FileType::Directory => Err(self.refuse("is a folder", "name a file, or use `list_files`")),
            FileType::Symlink => Err(self.refuse("became a symlink meanwhile", "look again and call again")),
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Err(self.refuse("is a special file", "name a regular file")),
        }
    }

    fn inside_hint(&self) -> String {
        format!("give a path inside the workspace {}, such as `src/main.rs`", self.root.display())
    }

    fn expect_short(&self, path: &Path) -> Result<(), BadArguments> {
        match path.as_os_str().len() {
            bytes if bytes < MAX_PATH_BYTES => Ok(()),
            bytes => {
                let what = format!("comes to {bytes} bytes, and a path has less than {MAX_PATH_BYTES}");
                Err(self.refuse(&what, "give a shorter path"))
            }
        }
    }

    /// The real path of `joined`, whose last components need not exist.
    fn real(&self, joined: &Path) -> Result<PathBuf, BadArguments> {
        for existing in joined.ancestors() {
            match existing.canonicalize() {
                Ok(base) => {
                    let missing = joined.strip_prefix(existing).unwrap_or(Path::new(""));
                    if missing.components().any(|part| part == Component::ParentDir) {
                        return Err(
                            self.refuse("goes up from a folder that does not exist", "leave out the `..`")
                        );
                    }
                    return Ok(base.components().chain(missing.components()).collect());
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if existing.symlink_metadata().is_ok() {
                        return Err(
                            self.refuse("leads through a symlink to nothing", "name the target itself")
                        );
                    }
                }
                Err(error) => return Err(self.io_error(error)),
            }
        }
        Err(self.io_error(Errno::NOENT))
    }

    fn parent(
        &self,
        step: impl Fn(OwnedFd, &OsStr) -> rustix::io::Result<OwnedFd>,
    ) -> Result<(OwnedFd, &OsStr), BadArguments> {
        let (Some(parent), Some(name)) = (self.relative.parent(), self.relative.file_name()) else {
            return Err(self.refuse("is a folder", "name a file, or use `list_files`"));
        };
        let folder = self.walk(parent, step).map_err(|error| self.io_error(error))?;
        Ok((folder, name))
    }

    fn walk(
        &self,
        relative: &Path,
        step: impl Fn(OwnedFd, &OsStr) -> rustix::io::Result<OwnedFd>,
    ) -> rustix::io::Result<OwnedFd> {
        let root = rustix::fs::openat(CWD, &self.root, FOLDER_FLAGS, Mode::empty())?;
        relative.iter().try_fold(root, step)
    }
}

/// A name on one line, with hidden characters made visible.
pub(crate) fn one_line(name: &[u8]) -> String {
    SanitizedText::name(name)
}

/// Opens the subfolder `name` of `folder`; a symlink is refused.
pub(super) fn open_folder(folder: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(folder, name, FOLDER_FLAGS, Mode::empty())
}
