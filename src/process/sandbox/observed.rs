//! What the rules of a sandbox depend on in the file system, to see later whether they would be the same again.

use std::path::{Path, PathBuf};

use rustix::{
    fs::{AtFlags, CWD, FileType, StatxFlags, lstat, statx},
    io::Errno,
};

use crate::clock;

/// Age from which the time of a folder's last change is trusted: a clock of a file system may stand still for 10 ms, and a
/// change in that time would not be seen.
const MIN_AGE_MS: i64 = 1_000;

/// Paths, and what was at them.
#[derive(Debug, Default)]
pub(super) struct ObservedPaths {
    files: Vec<ObservedPath>,
    missing: Vec<MissingPaths>,
}

#[derive(Debug)]
struct ObservedPath {
    path: PathBuf,
    /// `None` if the path was missing or out of reach.
    file: Option<FileState>,
    /// Whether a change of the file itself counts: the entries of a folder.
    has_content: bool,
}

/// Paths that are missing as long as no entry is added to one folder. Most paths of a sandbox are: the places of tools that
/// a user does not have. One look at the folder is enough for all of them.
#[derive(Debug)]
struct MissingPaths {
    folder: PathBuf,
    /// The folder when all paths were missing; `None` if it does not tell whether they still are.
    state: Option<FileState>,
    paths: Vec<PathBuf>,
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
        let Some(folder) = folder_of_missing(path) else { return self.record(path, false) };
        match self.missing.iter_mut().find(|missing| missing.folder == folder) {
            Some(missing) => missing.paths.push(path.to_owned()),
            // The first check takes the state of the folder.
            None => self.missing.push(MissingPaths {
                folder: folder.to_owned(),
                state: None,
                paths: vec![path.to_owned()],
            }),
        }
    }

    /// Records the entries of a folder.
    pub(super) fn record_entries(&mut self, folder: &Path) {
        self.record(folder, true);
    }

    /// True if everything is as it was recorded.
    pub(super) fn is_unchanged(&mut self) -> bool {
        self.files.iter().all(|observed| FileState::at(&observed.path, observed.has_content) == observed.file)
            && self.missing.iter_mut().all(MissingPaths::are_missing)
    }

    fn record(&mut self, path: &Path, has_content: bool) {
        let file = FileState::at(path, has_content);
        self.files.push(ObservedPath { path: path.to_owned(), file, has_content });
    }
}

impl MissingPaths {
    fn are_missing(&mut self) -> bool {
        // Read before the paths: what is added between them and the next check changes it.
        let state = FileState::at(&self.folder, true);
        if state.is_some() && state == self.state {
            return true;
        }
        self.state = state.filter(FileState::has_settled);
        self.paths.iter().all(|path| folder_of_missing(path) == Some(&self.folder))
    }
}

/// The folder to which an entry has to be added before there is something at this path. `None` if the path is not missing,
/// or if that is not all that it depends on: a dangling symlink leads elsewhere.
fn folder_of_missing(path: &Path) -> Option<&Path> {
    let mut missing = path;
    loop {
        if lstat(missing).err()? != Errno::NOENT {
            return None;
        }
        let folder = missing.parent()?;
        match statx(CWD, folder, AtFlags::empty(), StatxFlags::TYPE) {
            Ok(stat) if FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory => {
                return Some(folder);
            }
            Err(Errno::NOENT) => missing = folder,
            Ok(_) | Err(_) => return None,
        }
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

    /// True if every later change of a folder is seen by its time.
    fn has_settled(&self) -> bool {
        let changed_ms = |(seconds, nanos): (i64, u32)| {
            seconds.saturating_mul(1_000).saturating_add(i64::from(nanos) / 1_000_000)
        };
        self.changed.is_some_and(|changed| changed_ms(changed).saturating_add(MIN_AGE_MS) < clock::now().0)
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

    /// Records paths of a folder that are missing. Checks them until the time of the folder is trusted.
    fn settled(dir: &Path, names: &[&str]) -> ObservedPaths {
        let mut observed = ObservedPaths::default();
        names.iter().for_each(|name| observed.record_file(&dir.join(name)));
        while observed.missing.iter().any(|missing| missing.state.is_none()) {
            assert!(observed.is_unchanged());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(observed.is_unchanged());
        observed
    }

    type Change = fn(&Path);

    #[test]
    fn one_look_at_their_folder_is_enough_for_missing_paths() {
        let names = ["a", "b/c", "b/d/e", "link", "link/f"];
        let changes: [(Change, bool); 5] = [
            (|dir| fs::write(dir.join("other"), "").unwrap(), false),
            (|dir| fs::write(dir.join("a"), "").unwrap(), true),
            (|dir| fs::create_dir(dir.join("b")).unwrap(), true),
            // The target of a dangling symlink is in another folder.
            (|dir| fs::create_dir(dir.join("elsewhere/target")).unwrap(), true),
            (|dir| fs::rename(dir, dir.with_extension("moved")).unwrap(), true),
        ];
        for (n, (change, is_seen)) in changes.into_iter().enumerate() {
            let root = tempfile::tempdir().unwrap();
            let dir = root.path().join("dir");
            fs::create_dir_all(dir.join("elsewhere")).unwrap();
            symlink("elsewhere/target", dir.join("link")).unwrap();
            let mut observed = settled(&dir, &names);
            assert_eq!(
                (observed.missing.len(), observed.missing[0].paths.len(), observed.files.len()),
                (1, 3, 2)
            );
            change(&dir);
            assert_eq!(observed.is_unchanged(), !is_seen, "{n}");
        }
    }
}
