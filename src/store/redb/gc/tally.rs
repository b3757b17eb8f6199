use std::collections::BTreeMap;

/// Whether something is removed, or only looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GcMode {
    /// It is removed.
    Remove,
    /// It is said what would be.
    DryRun,
}

/// What was seen of one class of things, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// How many there were.
    pub seen: u64,
    /// How many were removed, or would be.
    pub removed: u64,
    /// The bytes of those.
    pub bytes: u64,
    /// How many stay, by the reason.
    pub retained: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// One that goes.
    pub fn remove(&mut self, bytes: u64) {
        self.seen += 1;
        self.removed += 1;
        self.bytes += bytes;
    }

    /// So many that stay.
    pub fn retain(&mut self, why: &'static str, count: u64) {
        self.seen += count;
        if count > 0 {
            *self.retained.entry(why).or_default() += count;
        }
    }
}

/// Why something stays.
pub mod why {
    /// No time is set after which it goes.
    pub const FOREVER: &str = "forever";
    /// Its time is not over.
    pub const YOUNG: &str = "not old enough";
    /// A run of it has not ended.
    pub const UNFINISHED: &str = "unfinished";
    /// Somebody has said something to it that it has not read.
    pub const MESSAGE: &str = "a message waits";
    /// This process has it open.
    pub const OPEN: &str = "open";
    /// Something was written into it meanwhile.
    pub const CHANGED: &str = "changed meanwhile";
    /// A run that stays was started by one of it.
    pub const PARENT: &str = "started a run that stays";
    /// The run that it stands for stays.
    pub const RUN: &str = "its run stays";
    /// A command runs there.
    pub const ALIVE: &str = "a command runs";
    /// This program cannot read it.
    pub const UNREADABLE: &str = "unreadable";
    /// Something that stays refers to it.
    pub const REFERRED: &str = "referred to";
    /// It cannot be known what refers to it: a part of the store cannot be read.
    pub const UNKNOWN: &str = "the store has a damaged row; see `hermod store check`";
    /// The file system does not let it go.
    pub const REFUSED: &str = "cannot be removed; see the log";
}
