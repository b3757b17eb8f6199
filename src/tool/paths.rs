use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use hermod_actors::{SanitizedText, port::BadArguments};
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat},
    io::Errno,
};

const FOLDER_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Bytes of a path with its end mark that the system takes: `PATH_MAX` of Linux. Longer ones could be made step by step, and
/// then nothing could name them.
const MAX_PATH_BYTES: usize = 4_096;

/// Characters of a path in a refusal.
const MAX_EXCERPT_CHARS: usize = 500;

/// What the system often has against a path, and what to do then.
const KNOWN_ERRORS: &[(io::ErrorKind, &str, &str)] = &[
    (io::ErrorKind::NotFound, "does not exist", "see what there is with `list_files`"),
    (
        io::ErrorKind::NotADirectory,
        "is or leads through something that is not a folder",
        "see what there is with `list_files`",
    ),
    (
        io::ErrorKind::PermissionDenied,
        "is not permitted to this user",
        "leave it, or ask the operator for access",
    ),
];

/// A place inside a workspace, by its real path: free of symlinks and `..`.
///
/// It is opened step by step below the workspace and never through a symlink: what was swapped in since is refused.
#[derive(Debug)]
pub struct WorkspacePath {
    field: &'static str,
    argument: String,
    root: PathBuf,
    relative: PathBuf,
}

/// Finds the place that `path`, the argument `field`, names in `workspace`: relative to it, or absolute and inside it.
/// Nothing needs to exist there. Errors name the field, the path and the remedy.
pub fn resolve(workspace: &str, field: &'static str, path: &str) -> Result<WorkspacePath, BadArguments> {
    let root = Path::new(workspace).canonicalize().map_err(|error| BadArguments {
        field: None,
        error: format!("the workspace {workspace:?} cannot be used: {error}"),
        hint: "the operator has to create it or name another".into(),
    })?;
    let mut place = WorkspacePath { field, argument: path.into(), root, relative: PathBuf::new() };
    if path.is_empty() {
        return Err(place.refuse("is empty", "use `.` for the workspace itself"));
    }
    if path.contains('\0') {
        return Err(place.refuse("contains a NUL byte", "leave it out"));
    }
    if path == "~" || path.starts_with("~/") {
        return Err(place.refuse("starts with `~`, which is not expanded", &place.inside_hint()));
    }
    let joined = place.root.join(path);
    place.expect_short(&joined)?;
    let real = place.real(&joined)?;
    place.expect_short(&real)?;
    match real.strip_prefix(&place.root) {
        Ok(relative) => relative.clone_into(&mut place.relative),
        Err(_) => return Err(place.refuse("leads out of the workspace", &place.inside_hint())),
    }
    Ok(place)
}

/// The workspace of a call, and what of it is no tool's business.
#[derive(Debug, Clone)]
pub(super) struct ToolWorkspace {
    /// The workspace.
    pub(super) workspace: Arc<str>,
    /// The real path of the state directory, which may lie in the workspace.
    pub(super) state_dir: Option<PathBuf>,
}

impl ToolWorkspace {
    /// As [`resolve`]; a place in the state directory is refused.
    pub(super) fn resolve(&self, field: &'static str, path: &str) -> Result<WorkspacePath, BadArguments> {
        let place = resolve(&self.workspace, field, path)?;
        if self.state_dir.as_ref().is_some_and(|closed| place.absolute().starts_with(closed)) {
            let hint = "leave that folder alone; the operator sees what is in it with `hermod` itself";
            return Err(place.refuse("lies in Hermod's state directory", hint));
        }
        Ok(place)
    }

    /// Whether this is the state directory.
    pub(super) fn is_state_dir(&self, real: &Path) -> bool {
        self.state_dir.as_deref() == Some(real)
    }
}

/// The place that a call declares to touch: the real path, so that two names of one file are one. Where `path` leads
/// nowhere yet, its name; the call itself will say what is wrong with it.
pub(super) fn declared_path(workspace: &str, path: &str) -> String {
    let named = || Path::new(workspace).join(path).components().collect::<PathBuf>();
    let place = resolve(workspace, "path", path).map_or_else(|_| named(), |place| place.absolute());
    place.to_string_lossy().into_owned()
}

impl WorkspacePath {
    /// Its real path, absolute.
    pub fn absolute(&self) -> PathBuf {
        self.root.join(&self.relative)
    }

    /// Its path from the workspace, `.` for the workspace itself.
    pub fn display(&self) -> String {
        if self.relative.as_os_str().is_empty() { ".".into() } else { self.relative.display().to_string() }
    }

    /// The workspace that it is in.
    #[must_use]
    pub fn root(&self) -> Self {
        self.at(Path::new(""))
    }

    /// What is at `relative` in the workspace, a real path in it.
    #[must_use]
    pub fn at(&self, relative: &Path) -> Self {
        let (asked, root) = (relative.display().to_string(), self.root.clone());
        Self { field: self.field, argument: asked, root, relative: relative.to_owned() }
    }

    /// Says what is wrong with it.
    pub fn refuse(&self, what: &str, hint: &str) -> BadArguments {
        let excerpt = match self.argument.char_indices().nth(MAX_EXCERPT_CHARS) {
            Some((end, _)) => format!("{:?}…", &self.argument[..end]),
            None => format!("{:?}", self.argument),
        };
        let error = format!("`{}` {excerpt} {what}", self.field);
        BadArguments { field: Some(self.field.into()), error, hint: hint.into() }
    }

    /// Says what the system had against it.
    pub fn io_error(&self, error: impl Into<io::Error>) -> BadArguments {
        let error = error.into();
        let known = KNOWN_ERRORS.iter().find(|(kind, ..)| *kind == error.kind());
        known.map_or_else(
            || self.refuse(&format!("failed: {error}"), "mend the cause or use another path"),
            |(_, what, hint)| self.refuse(what, hint),
        )
    }

    /// Opens it as a folder.
    pub fn open_folder(&self) -> Result<OwnedFd, BadArguments> {
        self.walk(&self.relative, open_folder).map_err(|error| self.io_error(error))
    }

    /// Opens it as a regular file for reading.
    pub fn open_file(&self) -> Result<(File, Stat), BadArguments> {
        let (parent, name) = self.parent(open_folder)?;
        let told =
            rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| self.io_error(e))?;
        self.expect_file(&told)?;
        let file =
            rustix::fs::openat(&parent, name, FILE_FLAGS, Mode::empty()).map_err(|e| self.io_error(e))?;
        let opened = rustix::fs::fstat(&file).map_err(|e| self.io_error(e))?;
        self.expect_file(&opened)?;
        Ok((file.into(), opened))
    }

    /// Opens the folder that holds it, creating what is missing above it, and gives its name there.
    pub fn create_parent(&self) -> Result<(OwnedFd, &OsStr), BadArguments> {
        self.parent(|folder, name| match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
            Ok(()) => rustix::fs::fsync(&folder).and_then(|()| open_folder(folder, name)),
            Err(Errno::EXIST) => open_folder(folder, name),
            Err(error) => Err(error),
        })
    }

    /// Refuses what is not a regular file.
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

    /// The real path of `joined`, whose end need not exist.
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

/// A name in which nothing hides, on one line.
pub(crate) fn one_line(name: &[u8]) -> String {
    SanitizedText::name(name)
}

/// Opens the folder `name` of `folder`; a symlink is refused.
pub(super) fn open_folder(folder: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(folder, name, FOLDER_FLAGS, Mode::empty())
}
