//! The tool `list_files`: lists a folder of the workspace.

use std::{
    ffi::{CString, OsStr},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
};

use hermod_actors::model::{Access, CallEnd, EffectClass};
use rustix::{
    fs::{AtFlags, Dir, FileType},
    io::Errno,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Settings,
    blocking::run_blocking,
    page::BoundedLines,
    paths::{declared_path, one_line, open_folder},
    typed_tool::{ToolContext, TypedTool},
};

const DEFAULT_ENTRIES: usize = 500;
/// Limit of a listing in bytes, without the remark.
const MAX_LISTING_BYTES: usize = 49_000;
/// Entries read per folder at most, since sorting needs them in memory.
const MAX_READ_ENTRIES: usize = 100_000;

/// Lists a folder.
#[derive(Debug)]
pub(super) struct ListFiles;

/// What to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The folder, relative to the workspace or absolute inside it; the workspace itself if absent.
    path: Option<String>,
    /// How many levels to descend: 1, the default, is the folder's own entries.
    #[schemars(range(min = 1, max = 8))]
    depth: Option<usize>,
    /// How many entries to list at most; 500 if absent.
    #[schemars(range(min = 1, max = 5000))]
    limit: Option<usize>,
}

impl TypedTool for ListFiles {
    const NAME: &'static str = "list_files";
    const DESCRIPTION: &'static str = "Lists a folder of the workspace, sorted by name, one entry a line: `name/` is \
        a folder, `name` and its bytes a file, `name@ -> target` a symlink, `name|` something special.";
    const EFFECT: EffectClass = EffectClass::Pure;
    type Arguments = Arguments;

    fn access(arguments: &Arguments, workspace: &str, _: &Settings) -> Access {
        Access::reads(declared_path(workspace, arguments.path.as_deref().unwrap_or(".")))
    }

    async fn run(arguments: Arguments, context: ToolContext) -> CallEnd {
        run_blocking(&context, move |context| list(&arguments, context)).await
    }
}

fn list(arguments: &Arguments, context: &ToolContext) -> Result<String, CallEnd> {
    let path = context.resolve("path", arguments.path.as_deref().unwrap_or("."))?;
    context.check_stopped()?;
    let folder = path.open_folder()?;
    let limit = arguments.limit.unwrap_or(DEFAULT_ENTRIES);
    // Compared by device and inode: entries are opened without following the names on the way to it.
    let state_dir = context.settings.state.as_deref().and_then(|state_dir| rustix::fs::stat(state_dir).ok());
    let state_dir = state_dir.map(|stat| (stat.st_dev, stat.st_ino));
    let depth = arguments.depth.unwrap_or(1);
    let lines = BoundedLines::new(limit, MAX_LISTING_BYTES);
    let mut listing = Listing { context, depth, state_dir, lines };
    let names = names(&folder, MAX_READ_ENTRIES).map_err(|error| path.io_error(error))?;
    listing.folder(&folder, "", names, 1)?;
    let bound = listing.lines.bound();
    Ok(format_listing(listing.lines, bound))
}

/// Names of a folder in order, and whether more were left out: those that the file system names last.
struct Names {
    sorted: Vec<CString>,
    has_more: bool,
}

/// At most `max` names of a folder.
fn names(folder: &OwnedFd, max: usize) -> rustix::io::Result<Names> {
    let (mut sorted, mut has_more) = (Vec::new(), false);
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if matches!(entry.file_name().to_bytes(), b"." | b"..") {
            continue;
        }
        if sorted.len() == max {
            has_more = true;
            break;
        }
        sorted.push(entry.file_name().to_owned());
    }
    sorted.sort_unstable();
    Ok(Names { sorted, has_more })
}

/// The text of a listing.
fn format_listing(BoundedLines { mut text, count, is_truncated, .. }: BoundedLines, bound: &str) -> String {
    if is_truncated {
        let remark = format!(
            "[truncated by {bound}: the first {count} entries; list a folder below, a smaller `depth` or a larger `limit`]"
        );
        text.push_str(&remark);
    }
    if text.is_empty() { "[empty folder]".into() } else { text }
}

struct Listing<'a> {
    context: &'a ToolContext,
    depth: usize,
    /// Device and inode of the state directory.
    state_dir: Option<(u64, u64)>,
    lines: BoundedLines,
}

impl Listing<'_> {
    fn folder(&mut self, folder: &OwnedFd, prefix: &str, names: Names, level: usize) -> Result<(), CallEnd> {
        let Names { sorted, has_more: more } = names;
        for name in &sorted {
            self.context.check_stopped()?;
            if self.lines.is_truncated {
                return Ok(());
            }
            self.entry(folder, prefix, OsStr::from_bytes(name.to_bytes()), level)?;
        }
        if more {
            self.lines.push(&format!(
                "{prefix}[more than {MAX_READ_ENTRIES} entries, of which the first that were found are listed]"
            ));
        }
        Ok(())
    }

    fn entry(&mut self, folder: &OwnedFd, prefix: &str, name: &OsStr, level: usize) -> Result<(), CallEnd> {
        let path = format!("{prefix}{}", one_line(name.as_bytes()));
        let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) => {
                self.lines.push(&format!("{path} [{error}]"));
                return Ok(());
            }
        };
        if self.state_dir == Some((stat.st_dev, stat.st_ino)) {
            self.lines.push(&format!("{path}/ [Hermod's state directory; no file tool goes there]"));
            return Ok(());
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => return self.subfolder(folder, &path, name, level),
            FileType::RegularFile => self.lines.push(&format!("{path} {}", stat.st_size)),
            FileType::Symlink => {
                self.lines.push(&format!("{path}@ -> {}", link_target(folder.as_fd(), name)));
            }
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => self.lines.push(&format!("{path}|")),
        }
        Ok(())
    }

    fn subfolder(&mut self, folder: &OwnedFd, path: &str, name: &OsStr, level: usize) -> Result<(), CallEnd> {
        if level == self.depth {
            self.lines.push(&format!("{path}/"));
            return Ok(());
        }
        if name == ".git" {
            self.lines.push(&format!("{path}/ [not descended; name it as `path` to list it]"));
            return Ok(());
        }
        let opened =
            open_folder(folder, name).and_then(|child| Ok((names(&child, MAX_READ_ENTRIES)?, child)));
        match opened {
            Ok((names, child)) => {
                self.lines.push(&format!("{path}/"));
                self.folder(&child, &format!("{path}/"), names, level + 1)
            }
            Err(error) => {
                self.lines.push(&format!("{path}/ [{error}]"));
                Ok(())
            }
        }
    }
}

fn link_target(folder: BorrowedFd<'_>, name: &OsStr) -> String {
    match rustix::fs::readlinkat(folder, name, Vec::new()) {
        Ok(target) => one_line(target.to_bytes()),
        Err(Errno::NOENT) => "[gone meanwhile]".into(),
        Err(error) => format!("[{error}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_also_if_some_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        (0..60).for_each(|n| std::fs::write(dir.path().join(format!("{n:02}")), "").unwrap());
        for (max, has_more) in [(60, false), (59, true), (40, true), (1, true)] {
            let folder = std::fs::File::open(dir.path()).unwrap().into();
            let names = names(&folder, max).unwrap();
            assert_eq!((names.sorted.len(), names.has_more), (max, has_more));
            assert!(names.sorted.is_sorted(), "{:?}", names.sorted);
        }
    }
}
