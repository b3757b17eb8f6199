use crate::testkit::clock::{SPLITMIX_GAMMA, mix};

/// Chance out of a seed.
#[derive(Debug, Clone)]
pub(super) struct SeededRng(u64);

impl SeededRng {
    pub(super) const fn new(seed: u64) -> Self {
        // Seeds that lie side by side must have nothing in common.
        Self(mix(seed.wrapping_add(SPLITMIX_GAMMA)))
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(SPLITMIX_GAMMA);
        mix(self.0)
    }

    /// A number below `end`, which is not 0.
    pub(super) const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A number from `from` to `to`, both included.
    pub(super) const fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// An index into a list of `len`.
    pub(super) fn index(&mut self, len: usize) -> usize {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        usize::try_from(self.below(len)).unwrap_or(0)
    }

    /// Whether something happens that happens so often in a hundred times.
    pub(super) const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
}
