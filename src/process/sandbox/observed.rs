//! What the rules of a sandbox depend on in the file system, to see later whether they would be the same again.

use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// Paths, and what was at them.
#[derive(Debug, Default)]
pub(super) struct ObservedPaths(Vec<ObservedPath>);

#[derive(Debug)]
struct ObservedPath {
    path: PathBuf,
    /// `None` if the path was missing or out of reach.
    file: Option<FileState>,
    /// Whether a change of the file itself counts: the entries of a folder.
    has_content: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct FileState {
    device: (u32, u32),
    inode: u64,
    /// A new file may get the number of one that was removed. Zero where the file system keeps no times of birth.
    born: (i64, u32),
    mode: u16,
    owner: (u32, u32),
    changed: Option<(i64, u32)>,
}

impl ObservedPaths {
    /// Records which file is at a path, and what its user may do.
    pub(super) fn record_file(&mut self, path: &Path) {
        self.record(path, false);
    }

    /// Records the entries of a folder.
    pub(super) fn record_entries(&mut self, folder: &Path) {
        self.record(folder, true);
    }

    /// True if everything is as it was recorded.
    pub(super) fn is_unchanged(&self) -> bool {
        self.0.iter().all(|observed| FileState::at(&observed.path, observed.has_content) == observed.file)
    }

    fn record(&mut self, path: &Path, has_content: bool) {
        let file = FileState::at(path, has_content);
        self.0.push(ObservedPath { path: path.to_owned(), file, has_content });
    }
}

impl FileState {
    fn at(path: &Path, has_content: bool) -> Option<Self> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let stat = statx(CWD, path, AtFlags::empty(), wanted).ok()?;
        Some(Self {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            born: (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec),
            mode: stat.stx_mode,
            owner: (stat.stx_uid, stat.stx_gid),
            changed: has_content.then_some((stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use super::*;

    /// Whether a change of a folder with the file `file` and the symlink `link` is seen.
    fn check(record: fn(&mut ObservedPaths, &Path), change: fn(&Path), is_seen: bool) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        symlink("file", dir.path().join("link")).unwrap();
        let mut observed = ObservedPaths::default();
        record(&mut observed, dir.path());
        assert!(observed.is_unchanged());
        // The time of the change may have a coarse clock.
        let before = FileState::at(dir.path(), true);
        for n in 0.. {
            fs::write(dir.path().join(format!("other{n}")), "").unwrap();
            if FileState::at(dir.path(), true) != before {
                break;
            }
        }
        change(dir.path());
        assert_eq!(observed.is_unchanged(), !is_seen);
    }

    #[test]
    fn a_change_of_what_was_recorded_is_seen() {
        let file: fn(&mut ObservedPaths, &Path) = |paths, dir| paths.record_file(&dir.join("link"));
        check(file, |_| {}, false);
        check(file, |dir| fs::write(dir.join("file"), "text").unwrap(), false);
        check(file, |dir| fs::remove_file(dir.join("file")).unwrap(), true);
        check(
            file,
            |dir| fs::set_permissions(dir.join("file"), Permissions::from_mode(0o600)).unwrap(),
            true,
        );
        let replace: fn(&Path) = |dir| {
            fs::write(dir.join("new"), "").unwrap();
            fs::rename(dir.join("new"), dir.join("file")).unwrap();
        };
        check(file, replace, true);
        check(
            |paths, dir| paths.record_file(&dir.join("none")),
            |dir| fs::create_dir(dir.join("none")).unwrap(),
            true,
        );
        check(ObservedPaths::record_file, |_| {}, false);
        check(ObservedPaths::record_entries, |_| {}, true);
    }
}
