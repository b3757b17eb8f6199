//! The prefixes of a request, as hashes, for the simulated prompt cache (`cache.rs`).

use std::hash::{DefaultHasher, Hasher};

/// The hashed prefixes of a request.
#[derive(Debug, Clone)]
pub struct CachePrefix {
    /// How cached prefixes are selected.
    pub policy: CachePolicy,
    hasher: DefaultHasher,
    /// The size in bytes of all values: the model's input.
    pub bytes: usize,
    /// The breakpoints in order; their tokens never decrease.
    pub breakpoints: Vec<CacheBreakpoint>,
}

/// How cached prefixes are selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachePolicy {
    /// By the client's marks.
    Explicit,
    /// By the vendor: every prefix that was seen before.
    Automatic,
}

/// The end of a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheBreakpoint {
    /// The hash of everything before.
    pub hash: u64,
    /// The number of tokens before.
    pub tokens: u64,
    /// True if the client marked it.
    pub is_marked: bool,
}

impl CachePrefix {
    /// An empty prefix of a request to `model`.
    pub fn new(caching: CachePolicy, model: &str) -> Self {
        let mut prefix =
            Self { policy: caching, hasher: DefaultHasher::new(), bytes: 0, breakpoints: Vec::new() };
        prefix.name(model);
        prefix
    }

    /// Adds a name, which counts as no tokens.
    pub(super) fn name(&mut self, name: &str) {
        self.hasher.write_usize(name.len());
        self.hasher.write(name.as_bytes());
    }

    /// Adds a value, which counts as tokens.
    pub(super) fn value(&mut self, value: &str) {
        self.name(value);
        self.bytes += value.len();
    }

    /// Ends a prefix.
    pub(super) fn add_breakpoint(&mut self) {
        let tokens = (self.bytes / 4) as u64;
        self.breakpoints.push(CacheBreakpoint { hash: self.hasher.finish(), tokens, is_marked: false });
    }

    /// Ends a prefix with the client's mark.
    pub(super) fn add_marked_breakpoint(&mut self) {
        self.add_breakpoint();
        self.mark_last();
    }

    /// Marks the last breakpoint, if there is one.
    pub(super) fn mark_last(&mut self) {
        self.breakpoints.iter_mut().next_back().into_iter().for_each(|stop| stop.is_marked = true);
    }
}
