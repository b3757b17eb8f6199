//! Pseudo-random numbers for the fuzz test.

/// Pseudo-random numbers from a seed: SplitMix64, from <https://prng.di.unimi.it/splitmix64.c>.
#[derive(Debug, Clone)]
pub(in crate::turn::tests) struct Chance(u64);

impl Chance {
    pub(in crate::turn::tests) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(in crate::turn::tests) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub(in crate::turn::tests) const fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(in crate::turn::tests) const fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A random index in a list of this length; `None` if it is empty.
    pub(in crate::turn::tests) fn place(&mut self, length: usize) -> Option<usize> {
        let length = u64::try_from(length).ok().filter(|length| *length > 0)?;
        usize::try_from(self.below(length)).ok()
    }

    pub(in crate::turn::tests) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.place(of.len()).expect("there is something to pick from")].clone()
    }

    /// `some`, or `None` in one of `n` cases.
    pub(in crate::turn::tests) fn unless<T>(&mut self, n: u64, some: T) -> Option<T> {
        (!self.one_in(n)).then_some(some)
    }
}
