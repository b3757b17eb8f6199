//! Which files a sandbox grants, as open descriptors. Landlock knows no exceptions: a folder with a hidden path in it is
//! granted by its other entries, one by one.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsStr,
    io,
    os::fd::OwnedFd,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, accessat, fstat, openat, stat},
    io::Errno,
    process::geteuid,
};

use super::{observed::ObservedPaths, places, spec::SandboxSpec};

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
pub(super) struct PathGrant {
    pub(super) file: OwnedFd,
    pub(super) is_folder: bool,
    pub(super) access: FileAccess,
}

/// Why the files of a sandbox cannot be granted.
#[derive(Debug)]
pub(super) enum GrantError<E> {
    /// The workspace or the folder for temporary files cannot be opened.
    Path(PathBuf),
    /// The rule was refused.
    Rule(E),
}

/// The home folder of this process, if it is a useful one.
fn home() -> Option<PathBuf> {
    let home = env::var_os("HOME").map(PathBuf::from);
    home.filter(|home| home.is_absolute() && home.parent().is_some())
}

/// Makes the rules of a sandbox, one after the other: they may be more than the files that a process may have open.
/// Paths that are missing are left out. Returns what the rules depend on, `hidden` included.
pub(super) fn grant_files<E>(
    spec: &SandboxSpec,
    hidden: HiddenPaths,
    add_rule: impl FnMut(PathGrant) -> Result<(), E>,
) -> Result<ObservedPaths, GrantError<E>> {
    let (home, path) = (home(), env::var_os("PATH").unwrap_or_default());
    let home = home.as_deref();
    let is_writable = spec.rules.mode.is_workspace_writable();
    let workspace = if is_writable { FileAccess::Write } else { FileAccess::Read };
    // A variable may name any folder: one above the home folder would grant all of that.
    let is_specific = |path: &PathBuf| {
        path.is_absolute() && path.parent().is_some() && home.is_none_or(|home| !home.starts_with(path))
    };
    let system = places::SYSTEM.iter().map(PathBuf::from);
    let tools = home.into_iter().flat_map(places::tools);
    let programs = env::split_paths(&path).filter(is_specific);
    let read = system.chain(tools).chain(programs);
    let devices = places::DEVICES.iter().map(PathBuf::from);

    let HiddenPaths { real: hidden, observed } = hidden;
    let mut granter = Granter { hidden, observed, add_rule };
    if !granter.grant(&spec.workspace, workspace)? {
        return Err(GrantError::Path(spec.workspace.clone()));
    }
    for (path, access) in
        read.map(|path| (path, FileAccess::Read)).chain(devices.map(|path| (path, FileAccess::Device)))
    {
        granter.grant(&path, access)?;
    }
    for (paths, access) in [(&spec.rules.read, FileAccess::Read), (&spec.rules.write, FileAccess::Write)] {
        for path in paths {
            granter.grant_inside_hidden(path, access)?;
        }
    }
    if let Some(temp) = &spec.temp {
        granter.observed.record_file(temp);
        let Ok(file) = open_at(CWD, temp.as_os_str(), OFlags::DIRECTORY) else {
            return Err(GrantError::Path(temp.clone()));
        };
        granter.add(PathGrant { file, is_folder: true, access: FileAccess::Write })?;
    }
    Ok(granter.observed)
}

/// Paths that no rule may cover.
#[derive(Debug)]
pub(super) struct HiddenPaths {
    /// By their real paths; a folder comes before what is in it.
    real: BTreeSet<PathBuf>,
    observed: ObservedPaths,
}

impl HiddenPaths {
    /// Only what this user can read has to be hidden, or what is its own: it could change the mode of that.
    pub(super) fn of(spec: &SandboxSpec) -> Self {
        let (home, mut observed) = (home(), ObservedPaths::default());
        let paths = spec.rules.hide.iter().cloned().chain(places::secrets(home.as_deref()));
        let user = geteuid();
        let is_own = |path: &PathBuf| stat(path).is_ok_and(|stat| stat.st_uid == user.as_raw());
        let is_readable =
            |path: &PathBuf| accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS).is_ok() || is_own(path);
        let real = paths
            .inspect(|path| observed.record_file(path))
            .filter(is_readable)
            .filter_map(|path| path.canonicalize().ok())
            .collect();
        Self { real, observed }
    }

    /// Those inside of the workspace, in the same order.
    pub(super) fn inside(&self, workspace: &Path) -> Vec<PathBuf> {
        let Ok(workspace) = workspace.canonicalize() else { return Vec::new() };
        self.real.iter().filter(|path| path.starts_with(&workspace)).cloned().collect()
    }

    /// Without those inside of the workspace.
    pub(super) fn outside(mut self, workspace: &Path) -> Self {
        if let Ok(workspace) = workspace.canonicalize() {
            self.real.retain(|path| !path.starts_with(&workspace));
        }
        self
    }
}

struct Granter<F> {
    hidden: BTreeSet<PathBuf>,
    observed: ObservedPaths,
    add_rule: F,
}

impl<E, F: FnMut(PathGrant) -> Result<(), E>> Granter<F> {
    fn add(&mut self, grant: PathGrant) -> Result<(), GrantError<E>> {
        (self.add_rule)(grant).map_err(GrantError::Rule)
    }

    fn is_above_hidden(&self, path: &Path) -> bool {
        // Paths are ordered by their names, so those below a path come directly after it.
        self.hidden.range(path.to_owned()..).next().is_some_and(|hidden| hidden.starts_with(path))
    }

    /// Grants a path, or what it leads to. False if it is missing.
    fn grant(&mut self, path: &Path, access: FileAccess) -> Result<bool, GrantError<E>> {
        self.observed.record_file(path);
        let Ok(path) = path.canonicalize() else { return Ok(false) };
        if !path.ancestors().any(|ancestor| self.hidden.contains(ancestor)) {
            self.grant_real(&path, access)?;
        }
        Ok(true)
    }

    /// Grants a path that the operator names, also below a hidden one: what is more specific counts.
    fn grant_inside_hidden(&mut self, path: &Path, access: FileAccess) -> Result<(), GrantError<E>> {
        self.observed.record_file(path);
        path.canonicalize().map_or(Ok(()), |path| self.grant_real(&path, access))
    }

    fn grant_real(&mut self, path: &Path, access: FileAccess) -> Result<(), GrantError<E>> {
        match open_at(CWD, path.as_os_str(), OFlags::empty()) {
            Ok(file) => self.grant_file(path, file, access),
            // Missing or out of reach for this user, so for the sandbox as well.
            Err(_) => Ok(()),
        }
    }

    /// The recursion ends at a hidden path, so it is as deep as the longest of them.
    fn grant_file(&mut self, path: &Path, file: OwnedFd, access: FileAccess) -> Result<(), GrantError<E>> {
        // Nothing is granted through a symlink: its target counts by its own path.
        let kind = fstat(&file).map_or(FileType::Symlink, |stat| FileType::from_raw_mode(stat.st_mode));
        if kind == FileType::Symlink || self.hidden.contains(path) {
            return Ok(());
        }
        let is_folder = kind == FileType::Directory;
        if !is_folder || !self.is_above_hidden(path) {
            return self.add(PathGrant { file, is_folder, access });
        }
        self.observed.record_entries(path);
        // What cannot be listed cannot be granted.
        for name in names(&file).unwrap_or_default() {
            let name = OsStr::from_bytes(&name);
            // An entry may vanish at any time.
            if let Ok(entry) = open_at(&file, name, OFlags::empty()) {
                self.grant_file(&path.join(name), entry, access)?;
            }
        }
        self.add(PathGrant { file, is_folder, access: FileAccess::List })
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

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, fs, os::fd::AsRawFd, os::unix::fs::symlink};

    use super::{
        super::{
            network::NetworkAccess,
            spec::{SandboxLimits, SandboxMode, SandboxRules},
        },
        *,
    };

    /// Checks the rules below a folder, by their paths in it.
    fn check(
        root: &Path,
        is_covered: bool,
        change: impl FnOnce(&mut SandboxSpec),
        expected: &[(&str, FileAccess)],
    ) {
        let mut spec = SandboxSpec {
            rules: SandboxRules {
                mode: SandboxMode::Workspace,
                read: Vec::new(),
                write: Vec::new(),
                hide: vec![root.join("work/state")],
                network: NetworkAccess::Off,
                unix_sockets: false,
                limits: SandboxLimits::default(),
            },
            workspace: root.join("work"),
            temp: None,
        };
        change(&mut spec);
        let mut rules = Vec::new();
        let add_rule = |grant: PathGrant| -> Result<(), Infallible> {
            let path = fs::read_link(format!("/proc/self/fd/{}", grant.file.as_raw_fd())).unwrap();
            if let Ok(path) = path.strip_prefix(root) {
                assert_eq!(grant.is_folder, root.join(path).is_dir());
                rules.push((path.to_str().unwrap().to_owned(), grant.access));
            }
            Ok(())
        };
        let hidden = HiddenPaths::of(&spec);
        let hidden = if is_covered { hidden.outside(&spec.workspace) } else { hidden };
        grant_files(&spec, hidden, add_rule).unwrap();
        rules.sort_by(|a, b| a.0.cmp(&b.0));
        let expected: Vec<_> = expected.iter().map(|(path, access)| ((*path).to_owned(), *access)).collect();
        assert_eq!(rules, expected);
    }

    #[test]
    fn a_folder_with_a_hidden_path_is_granted_by_its_entries() {
        use FileAccess::{List, Read, Write};
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for folder in ["work/a", "work/state/tmp", "other/b/secret", "other/c"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("work/file"), "").unwrap();
        symlink("/", root.join("work/link")).unwrap();
        let all = [("work", List), ("work/a", Write), ("work/file", Write)];
        check(&root, false, |_| {}, &all);
        check(&root, true, |_| {}, &[("work", Write)]);
        check(&root, false, |spec| spec.rules.hide.clear(), &[("work", Write)]);
        let with_temp = [&all[..], &[("work/state/tmp", Write)]].concat();
        check(&root, false, |spec| spec.temp = Some(root.join("work/state/tmp")), &with_temp);
        let read_only = [("work", List), ("work/a", Read), ("work/file", Read)];
        check(&root, false, |spec| spec.rules.mode = SandboxMode::ReadOnly, &read_only);
        let others = [("other", List), ("other/b", List), ("other/c", Read), ("work", Write)];
        let hide = |spec: &mut SandboxSpec| {
            spec.rules.read = vec![root.join("other"), root.join("missing")];
            spec.rules.hide = vec![root.join("other/b/secret")];
        };
        check(&root, false, hide, &others);
        let hidden = |spec: &mut SandboxSpec| spec.rules.write = vec![root.join("work/state")];
        check(&root, false, hidden, &all);
        let specific = |spec: &mut SandboxSpec| spec.rules.write = vec![root.join("work/state/tmp")];
        check(&root, false, specific, &with_temp);
    }

    #[test]
    fn a_workspace_that_is_missing_is_an_error() {
        let spec = SandboxSpec {
            rules: SandboxRules {
                mode: SandboxMode::Workspace,
                read: Vec::new(),
                write: Vec::new(),
                hide: Vec::new(),
                network: NetworkAccess::Off,
                unix_sockets: false,
                limits: SandboxLimits::default(),
            },
            workspace: "/nowhere/at/all".into(),
            temp: None,
        };
        let error = grant_files(&spec, HiddenPaths::of(&spec), |_| Ok::<_, Infallible>(())).unwrap_err();
        assert!(matches!(error, GrantError::Path(path) if path == spec.workspace));
    }
}
