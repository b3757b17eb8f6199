//! The file system as the commands of a sandbox see it, in a mount namespace: nothing but the writable paths can be
//! changed, and hidden paths inside of the workspace are covered.
//!
//! Landlock has no rights for modes, owners and times of files, so only a mount that is read-only protects them. Without
//! covers, a workspace with hidden paths is granted by its entries, and nothing new can be made beside them.
//!
//! An administrator's thread can enter a namespace of mounts. Other users need a user namespace first, which only a
//! process with a single thread can enter: a runner at its start.

use std::{
    ffi::OsString,
    fs, io,
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

/// A line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
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
        let exposed = self.exposed.iter().map(ExposedPath::open).collect::<io::Result<Vec<_>>>()?;
        let covered = self.cover_hidden()?;
        for path in exposed.iter().filter(|path| covered.iter().any(|covered| path.path.starts_with(covered)))
        {
            path.mount()?;
        }
        for folder in covered {
            mount_remount(folder, EMPTY | MountFlags::RDONLY, "")?;
        }
        self.protect_others()
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

    /// Makes all mounts read-only that are not below a writable path.
    fn protect_others(&self) -> io::Result<()> {
        for MountEntry { path, flags, is_automount } in parse_mounts(&fs::read("/proc/self/mountinfo")?) {
            let is_writable = self.writable.iter().any(|writable| path.starts_with(writable));
            // A look at an automount may wait for another machine.
            if is_writable || is_automount || flags.contains(MountFlags::RDONLY) {
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
            fs::write(self.path, "")?;
        }
        Ok(mount_bind_recursive(format!("/proc/thread-self/fd/{}", self.file.as_raw_fd()), self.path)?)
    }
}

fn parse_mounts(text: &[u8]) -> Vec<MountEntry> {
    text.split(|byte| *byte == b'\n').filter_map(MountEntry::parse).collect()
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
        assert!(
            parse_mounts(&fs::read("/proc/self/mountinfo").unwrap())
                .iter()
                .any(|entry| entry.path == Path::new("/"))
        );
        assert_eq!(unescaped(br"\9\04").as_os_str().as_bytes(), br"\9\04");
    }
}
