//! Classifies paths by the damage that a command on them can do.

use std::fmt;

/// The meaning of a path for the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathKind {
    /// The root of the file system, or everything in it.
    Root,
    /// A folder that the system needs to run, or everything in it.
    System,
    /// A user's home, all homes, or other users' data as a whole.
    Home,
    /// Any other path.
    Other,
}

/// The home, also in a form whose quotes keep the shell from resolving it.
const HOME: &[&str] = &["${HOME}", "$HOME"];

const DISKS: &[&str] =
    &["sd", "hd", "vd", "xvd", "nvme", "mmcblk", "md", "dm-", "nbd", "pmem", "disk", "rdisk"];
const DEVICES: &[&str] = &["mapper", "disk", "mem", "kmem", "port"];

/// An absolute path: `${HOME}` or nothing, then names without `.`, `..` and empty ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PathTarget {
    from_home: bool,
    names: Vec<String>,
}

impl PathTarget {
    /// Resolves `path` from `folder`; `None` if its target is unknown.
    pub(super) fn of(path: &str, folder: Option<&PathTarget>) -> Option<Self> {
        let (mut target, rest) = if let Some(rest) = path.strip_prefix('/') {
            (Self::default(), rest)
        } else if let Some(rest) = path.strip_prefix('~') {
            let (user, rest) = rest.split_once('/').unwrap_or((rest, ""));
            match user {
                "" => (Self::home(), rest),
                "root" => (Self { from_home: false, names: vec!["root".into()] }, rest),
                user => (Self { from_home: false, names: vec!["home".into(), user.into()] }, rest),
            }
        } else if let Some(rest) = HOME.iter().find_map(|home| path.strip_prefix(home)) {
            (Self::home(), rest)
        } else {
            (folder?.clone(), path)
        };
        rest.split('/').for_each(|name| target.enter(name));
        Some(target)
    }

    pub(super) fn home() -> Self {
        Self { from_home: true, names: Vec::new() }
    }

    /// Number of names in the path.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// The meaning of the path. A wildcard for everything in a folder counts as the folder.
    pub(super) fn kind(&self) -> PathKind {
        let wild = self.names.iter().rev().take_while(|name| is_wild(name)).count();
        let names: Vec<&str> = self.names[..self.names.len() - wild].iter().map(String::as_str).collect();
        match names[..] {
            [] if self.from_home => PathKind::Home,
            [] => PathKind::Root,
            _ if self.from_home => PathKind::Other,
            [
                "bin" | "boot" | "dev" | "etc" | "lib" | "lib32" | "lib64" | "libx32" | "proc" | "run"
                | "sbin" | "sys" | "usr" | "var" | "System" | "Library" | "Applications" | "private",
            ]
            | ["usr", "bin" | "include" | "lib" | "lib32" | "lib64" | "libexec" | "sbin" | "share"]
            | ["var", "lib"] => PathKind::System,
            ["home" | "root" | "opt" | "srv" | "Users"] | ["home" | "Users", _] => PathKind::Home,
            _ => PathKind::Other,
        }
    }

    /// True for a disk, a partition, or the machine's memory.
    pub(super) fn is_disk(&self) -> bool {
        let [dev, device, ..] = &self.names[..] else { return false };
        let is_numbered = |prefix: &str| device.len() > prefix.len() && device.starts_with(prefix);
        !self.from_home
            && dev == "dev"
            && (DEVICES.contains(&device.as_str())
                || DISKS.iter().any(|prefix| is_numbered(prefix))
                || device.starts_with("${"))
    }

    /// True if a write makes the kernel act at once.
    pub(super) fn is_trigger(&self) -> bool {
        self.names == ["proc", "sysrq-trigger"]
    }

    fn enter(&mut self, name: &str) {
        match name {
            "" | "." => {}
            ".." => {
                if self.names.pop().is_none() && self.from_home {
                    *self = Self { from_home: false, names: vec!["home".into()] };
                }
            }
            name => self.names.push(name.into()),
        }
    }
}

impl fmt::Display for PathTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.from_home { "~" } else { "" })?;
        self.names.iter().try_for_each(|name| write!(f, "/{name}"))?;
        let is_root = !self.from_home && self.names.is_empty();
        f.write_str(if is_root { "/" } else { "" })
    }
}

/// True for a name that matches everything: `*`, `.*`, `.[!.]*`.
fn is_wild(name: &str) -> bool {
    name.contains(['*', '?']) && name.chars().all(|c| "*?.[]!^".contains(c))
}
