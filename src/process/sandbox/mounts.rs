//! The file system as the commands of a sandbox see it, in a mount namespace: nothing but the writable paths can be
//! changed, and hidden paths inside of the workspace are covered.
//!
//! Landlock has no rights for modes, owners and times of files, so only a mount that is read-only protects them. Without
//! covers, a workspace with hidden paths is granted by its entries, and nothing new can be made beside them.
//!
//! An administrator's thread can enter a namespace of mounts. Other users need a user namespace first, which only a
//! process with a single thread can enter: a runner at its start.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::ffi::OsStringExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, fstat, openat},
    io::Errno,
    mount::{
        MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change,
        mount_remount,
    },
};

/// The flags of an empty folder that covers another one.
const EMPTY: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// Options of a mount and their flags. A user namespace may not take any of them away.
const MOUNT_OPTIONS: &[(&[u8], MountFlags)] = &[
    (b"nosuid", MountFlags::NOSUID),
    (b"nodev", MountFlags::NODEV),
    (b"noexec", MountFlags::NOEXEC),
    (b"noatime", MountFlags::NOATIME),
    (b"nodiratime", MountFlags::NODIRATIME),
    (b"relatime", MountFlags::RELATIME),
    (b"nosymfollow", MountFlags::NOSYMFOLLOW),
];

/// What differs from the file system outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountPlan {
    /// Real paths that stay writable, with all below them.
    pub(super) writable: Vec<PathBuf>,
    /// Real paths that are covered; a folder comes before what is in it.
    pub(super) hidden: Vec<PathBuf>,
    /// Real paths that stay in sight below hidden ones.
    pub(super) exposed: Vec<PathBuf>,
}

/// A line of `/proc/thread-self/mountinfo` (proc_pid_mountinfo(5)).
#[derive(Debug, PartialEq)]
struct MountEntry {
    path: PathBuf,
    flags: MountFlags,
    is_automount: bool,
}

impl MountPlan {
    /// Changes the mount namespace of the calling thread, which must be its own.
    pub(super) fn apply(&self) -> io::Result<()> {
        // What is mounted outside later is seen, and nothing of this is seen outside.
        mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)?;
        // A bind of the root would not be seen.
        for path in self.writable.iter().filter(|path| path.parent().is_some()) {
            mount_bind_recursive(path, path)?;
        }
        // A command that renames a folder on the way takes what is in it out of its cover. A mount point stays.
        for folder in self.folders_above_hidden() {
            mount_bind_recursive(&folder, &folder)?;
        }
        let exposed = self.exposed.iter().map(ExposedPath::open).collect::<io::Result<Vec<_>>>()?;
        let covered = self.cover_hidden()?;
        let is_below = |path: &Path, folder: &Path| path != folder && path.starts_with(folder);
        for path in exposed.iter().filter(|path| covered.iter().any(|covered| is_below(path.path, covered))) {
            path.mount()?;
        }
        for folder in covered {
            mount_remount(folder, MountFlags::BIND | MountFlags::RDONLY | EMPTY, "")?;
        }
        self.protect_others()
    }

    /// The folders strictly between a writable path and a hidden one below it, those above first.
    fn folders_above_hidden(&self) -> BTreeSet<PathBuf> {
        let above = |hidden: &PathBuf| {
            let writable = self.writable.iter().find(|writable| hidden.starts_with(writable))?;
            let ancestors = hidden.ancestors().skip(1).map(Path::to_owned);
            Some(ancestors.take_while(|folder| folder != writable).collect::<Vec<_>>())
        };
        self.hidden.iter().filter_map(above).flatten().collect()
    }

    /// Covers folders by empty ones, and files by the null device. Returns the folders.
    fn cover_hidden(&self) -> io::Result<Vec<&Path>> {
        let mut folders: Vec<&Path> = Vec::new();
        for path in &self.hidden {
            if folders.iter().any(|folder| path.starts_with(folder)) {
                continue;
            }
            if path.is_dir() {
                mount("hermod", path, "tmpfs", EMPTY, c"mode=0755,size=64k")?;
                folders.push(path);
            } else {
                mount_bind("/dev/null", path)?;
            }
        }
        Ok(folders)
    }

    /// Makes all mounts read-only that are not below a writable path, and those of exposed paths that are not writable
    /// themselves.
    fn protect_others(&self) -> io::Result<()> {
        for (path, MountEntry { flags, is_automount, .. }) in
            parse_mounts(&fs::read("/proc/thread-self/mountinfo")?)
        {
            // A look at an automount may wait for another machine.
            if self.is_writable(&path) || is_automount || flags.contains(MountFlags::RDONLY) {
                continue;
            }
            match mount_remount(&path, MountFlags::BIND | MountFlags::RDONLY | flags, "") {
                // It is below another mount, where no path leads.
                Err(Errno::NOENT | Errno::INVAL | Errno::ACCESS | Errno::NOTDIR) => {}
                remounted => remounted?,
            }
        }
        Ok(())
    }

    /// The innermost of the writable and the exposed paths above a path decides.
    fn is_writable(&self, path: &Path) -> bool {
        let writable = self.writable.iter().map(|above| (above, true));
        let exposed = self.exposed.iter().map(|above| (above, false));
        let above = exposed.chain(writable).filter(|(above, _)| path.starts_with(above));
        above.max_by_key(|(above, _)| above.components().count()).is_some_and(|(_, is_writable)| is_writable)
    }
}

/// A path that stays in sight, opened before it is covered.
struct ExposedPath<'a> {
    path: &'a Path,
    file: OwnedFd,
    is_folder: bool,
}

impl<'a> ExposedPath<'a> {
    fn open(path: &'a PathBuf) -> io::Result<Self> {
        let file = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let is_folder = FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::Directory;
        Ok(Self { path, file, is_folder })
    }

    /// Mounts it at its place in the folder that covers it.
    fn mount(&self) -> io::Result<()> {
        if self.is_folder {
            fs::create_dir_all(self.path)?;
        } else {
            self.path.parent().map_or(Ok(()), fs::create_dir_all)?;
            // It exists if a folder above was mounted before.
            match File::create_new(self.path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(mount_bind_recursive(format!("/proc/thread-self/fd/{}", self.file.as_raw_fd()), self.path)?)
    }
}

/// The mounts by their paths. Of several at one path only the last can be reached.
fn parse_mounts(text: &[u8]) -> BTreeMap<PathBuf, MountEntry> {
    let entries = text.split(|byte| *byte == b'\n').filter_map(MountEntry::parse);
    entries.map(|entry| (entry.path.clone(), entry)).collect()
}

impl MountEntry {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ');
        let (path, options) = (words.nth(4)?, words.next()?);
        let kind = words.skip_while(|word| *word != b"-").nth(1)?;
        let options: Vec<_> = options.split(|byte| *byte == b',').collect();
        let has = |name: &[u8]| options.contains(&name);
        let mut flags = MOUNT_OPTIONS
            .iter()
            .filter(|(name, _)| has(name))
            .fold(MountFlags::empty(), |flags, (_, flag)| flags | *flag);
        if !has(b"noatime") && !has(b"relatime") {
            flags |= MountFlags::STRICTATIME;
        }
        if has(b"ro") {
            flags |= MountFlags::RDONLY;
        }
        Some(Self { path: unescaped(path), flags, is_automount: kind == b"autofs" })
    }
}

/// A path of that file, where some bytes are written as `\` and three octal digits.
fn unescaped(path: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, others)) = rest.split_first() {
        let digits = others.get(..3).filter(|_| *first == b'\\');
        let octal = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &others[3..] } else { others };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn the_innermost_path_decides_what_is_writable() {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
        let plan = MountPlan {
            writable: paths(&["/home/me", "/home/me/.state/tmp/run"]),
            hidden: paths(&["/home/me/.config/gh", "/home/me/.config/x/y/z", "/home/me/.state"]),
            exposed: paths(&["/home/me/.state/skills", "/home/me/.state/tmp/run", "/usr"]),
        };
        let check = |path: &str, expected| assert_eq!(plan.is_writable(path.as_ref()), expected, "{path}");
        check("/home/me/work", true);
        check("/home/me/.state/tmp/run", true);
        check("/home/me/.state/skills", false);
        check("/home/me/.state/skills/a", false);
        check("/usr", false);
        check("/home", false);
        let above: Vec<_> = plan.folders_above_hidden().into_iter().collect();
        assert_eq!(
            above,
            paths(&["/home/me/.config", "/home/me/.config/x", "/home/me/.config/x/y"]) as Vec<_>
        );
    }

    #[test]
    fn a_mount_is_read_as_the_kernel_tells_it() {
        let check = |line: &str, expected: Option<(&str, MountFlags, bool)>| {
            let read = MountEntry::parse(line.as_bytes());
            let read =
                read.as_ref().map(|entry| (entry.path.to_str().unwrap(), entry.flags, entry.is_automount));
            assert_eq!(read, expected, "{line}");
        };
        let relatime = MountFlags::RELATIME;
        check("21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw", Some(("/", relatime, false)));
        let flags =
            relatime | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
        check(
            r"22 21 0:5 / /a\040b\134c ro,nosuid,nodev,noexec,relatime - tmpfs none rw",
            Some((r"/a b\c", flags, false)),
        );
        check("23 21 0:6 / /x rw - autofs systemd-1 rw", Some(("/x", MountFlags::STRICTATIME, true)));
        check("24 21 0:6", None);
        check("", None);
        assert!(parse_mounts(&fs::read("/proc/self/mountinfo").unwrap()).contains_key(Path::new("/")));
        assert_eq!(unescaped(br"\9\04").as_os_str().as_bytes(), br"\9\04");
    }
}
