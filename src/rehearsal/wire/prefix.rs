use std::hash::{DefaultHasher, Hasher};

/// The beginnings of a request that a cache may know.
#[derive(Debug, Clone)]
pub struct CachePrefix {
    policy: CachePolicy,
    hasher: DefaultHasher,
    bytes: usize,
    breakpoints: Vec<CacheBreakpoint>,
}

/// Who decides what is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachePolicy {
    /// The client, with marks.
    Explicit,
    /// The vendor: whatever was seen before.
    Automatic,
}

/// Where a beginning ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheBreakpoint {
    /// Of all that comes before.
    pub hash: u64,
    /// The tokens before.
    pub tokens: u64,
    /// Whether the client marked it.
    pub is_marked: bool,
}

impl CachePrefix {
    /// Nothing yet, of a request to `model`.
    pub fn new(caching: CachePolicy, model: &str) -> Self {
        let mut prefix =
            Self { policy: caching, hasher: DefaultHasher::new(), bytes: 0, breakpoints: Vec::new() };
        prefix.name(model);
        prefix
    }

    /// Adds a name, which counts for no tokens.
    pub(super) fn name(&mut self, name: &str) {
        self.hasher.write_usize(name.len());
        self.hasher.write(name.as_bytes());
    }

    /// Adds a value.
    pub(super) fn value(&mut self, value: &str) {
        self.name(value);
        self.bytes += value.len();
    }

    /// Ends a beginning.
    pub(super) fn add_breakpoint(&mut self) {
        let tokens = (self.bytes / 4) as u64;
        self.breakpoints.push(CacheBreakpoint { hash: self.hasher.finish(), tokens, is_marked: false });
    }

    /// Ends a beginning that the client marked.
    pub(super) fn add_marked_breakpoint(&mut self) {
        self.add_breakpoint();
        self.mark_last();
    }

    /// Marks the last end, if there is one.
    pub(super) fn mark_last(&mut self) {
        self.breakpoints.iter_mut().next_back().into_iter().for_each(|stop| stop.is_marked = true);
    }

    /// The bytes of all values: what the model reads.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Who decides what is cached.
    pub fn policy(&self) -> CachePolicy {
        self.policy
    }

    /// The ends, in order; their tokens never fall.
    pub fn breakpoints(&self) -> &[CacheBreakpoint] {
        &self.breakpoints
    }
}
