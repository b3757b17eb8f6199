//! Counts of a gc pass, its mode, and the reasons for which things are retained.

use std::collections::BTreeMap;

/// Whether a pass removes or only reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GcMode {
    /// Removes.
    Remove,
    /// Only reports what would be removed.
    DryRun,
}

/// Counts of one class of things.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// Number of things that were examined.
    pub seen: u64,
    /// Number that was removed, or would be.
    pub removed: u64,
    /// Bytes of the removed ones.
    pub bytes: u64,
    /// Number of retained ones, by reason.
    pub retained: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Counts a removed one.
    pub fn remove(&mut self, bytes: u64) {
        self.seen += 1;
        self.removed += 1;
        self.bytes += bytes;
    }

    /// Counts `count` retained ones.
    pub fn retain(&mut self, why: &'static str, count: u64) {
        self.seen += count;
        if count > 0 {
            *self.retained.entry(why).or_default() += count;
        }
    }
}

/// The reasons for which things are retained.
pub mod why {
    /// No retention time is configured.
    pub const FOREVER: &str = "forever";
    /// Its retention time is not over.
    pub const YOUNG: &str = "not old enough";
    /// A run of it has not ended.
    pub const UNFINISHED: &str = "unfinished";
    /// The session has an unread inbox message.
    pub const MESSAGE: &str = "a message waits";
    /// The session is open in this process.
    pub const OPEN: &str = "open";
    /// The session changed since the snapshot.
    pub const CHANGED: &str = "changed meanwhile";
    /// One of its runs started a run that is retained.
    pub const PARENT: &str = "started a run that stays";
    /// The run that the key refers to is retained.
    pub const RUN: &str = "its run stays";
    /// Its command is running.
    pub const ALIVE: &str = "a command runs";
    /// This program cannot read it.
    pub const UNREADABLE: &str = "unreadable";
    /// Something retained refers to it.
    pub const REFERRED: &str = "referred to";
    /// References are unknown: a part of the store cannot be read.
    pub const UNKNOWN: &str = "the store has a damaged row; see `hermod store check`";
    /// The file system refused the removal.
    pub const REFUSED: &str = "cannot be removed; see the log";
}
