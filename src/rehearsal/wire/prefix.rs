use std::hash::{DefaultHasher, Hasher};

/// The beginnings of a request that a cache may know.
#[derive(Debug, Clone)]
pub struct Prefix {
    caching: Caching,
    hasher: DefaultHasher,
    bytes: usize,
    stops: Vec<Stop>,
}

/// Who decides what is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// The client, with marks.
    Marks,
    /// The vendor: whatever was seen before.
    Itself,
}

/// Where a beginning ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// Of all that comes before.
    pub hash: u64,
    /// The tokens before.
    pub tokens: u64,
    /// Whether the client marked it.
    pub marked: bool,
}

impl Prefix {
    /// Nothing yet, of a request to `model`.
    pub fn new(caching: Caching, model: &str) -> Self {
        let mut prefix = Self { caching, hasher: DefaultHasher::new(), bytes: 0, stops: Vec::new() };
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
    pub(super) fn stop(&mut self) {
        let tokens = (self.bytes / 4) as u64;
        self.stops.push(Stop { hash: self.hasher.finish(), tokens, marked: false });
    }

    /// Ends a beginning that the client marked.
    pub(super) fn marked_stop(&mut self) {
        self.stop();
        self.mark_last();
    }

    /// Marks the last end, if there is one.
    pub(super) fn mark_last(&mut self) {
        self.stops.iter_mut().next_back().into_iter().for_each(|stop| stop.marked = true);
    }

    /// The bytes of all values: what the model reads.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Who decides what is cached.
    pub fn caching(&self) -> Caching {
        self.caching
    }

    /// The ends, in order; their tokens never fall.
    pub fn stops(&self) -> &[Stop] {
        &self.stops
    }
}
