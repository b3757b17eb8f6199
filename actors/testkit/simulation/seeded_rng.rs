//! SplitMix64 random numbers for generating plans: a pure function of the seed.

use hermod_actors::doubles::{SPLITMIX_GAMMA, mix};

/// A deterministic random number generator.
#[derive(Debug, Clone)]
pub(crate) struct SeededRng(u64);

impl SeededRng {
    pub(crate) const fn new(seed: u64) -> Self {
        // Mixed, so that adjacent seeds give unrelated sequences.
        Self(mix(seed.wrapping_add(SPLITMIX_GAMMA)))
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(SPLITMIX_GAMMA);
        mix(self.0)
    }

    /// A number below `end`, which must not be 0.
    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A number from `from` to `to`, both included.
    pub(crate) const fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// An index into a list of length `len`, which must not be 0.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        usize::try_from(self.below(len)).unwrap_or(0)
    }

    /// True with a probability of `percent` in 100.
    pub(crate) const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One element of `from`, which must not be empty.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
}
