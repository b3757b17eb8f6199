//! Entries for the memory files of an agent that a flush finds in a conversation, and the record of their write.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::CallId;

/// The memory file of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryTarget {
    /// What was learned about the work.
    Memory,
    /// What is known of the user.
    User,
}

impl MemoryTarget {
    /// Both files.
    pub const ALL: [Self; 2] = [Self::Memory, Self::User];

    /// The name, as in the arguments of the tool `memory`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::User => "user",
        }
    }
}

/// An entry for a memory file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEntry {
    /// The file.
    pub target: MemoryTarget,
    /// One line.
    pub text: Arc<str>,
}

/// What became of the entries of a flush.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemorySave {
    /// Number of entries that were added.
    pub added: u32,
    /// Number of entries that were there before, such as those that an attempt before a crash has added.
    pub present: u32,
    /// The entries that are in no file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<MemoryRefusal>,
}

/// An entry that is in no file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRefusal {
    /// Its number in the answer, from 1.
    pub n: u32,
    /// Why it is in none.
    pub reason: String,
}

/// Fields of [`Body::MemorySaved`](super::Body::MemorySaved).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySaved {
    /// The flush whose answer has the entries.
    pub call: CallId,
    /// What became of them.
    #[serde(flatten)]
    pub save: MemorySave,
}

impl MemorySave {
    /// A save in which each of so many entries is refused for this reason.
    pub fn all_refused(entries: usize, reason: &str) -> Self {
        let refused = (1..).take(entries).map(|n| MemoryRefusal { n, reason: reason.to_owned() }).collect();
        Self { added: 0, present: 0, refused }
    }
}
