use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use crate::{model::Timestamp, port::Clock};

/// Where the wall clock of a test stands when it begins: 2026-01-01T00:00:00Z.
pub(super) const START_MS: i64 = 1_767_225_600_000;

/// By how much the state of SplitMix64 moves on.
pub(super) const SPLITMIX_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// What SplitMix64 makes of its state, from <https://prng.di.unimi.it/splitmix64.c>.
pub(super) const fn mix(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A clock that goes with tokio's time, virtual or not, and chance out of a seed.
#[derive(Debug)]
pub struct VirtualClock {
    since: Instant,
    state: AtomicU64,
}

impl VirtualClock {
    /// A clock whose chance is determined by `seed`. Must be called within a tokio runtime.
    pub fn new(seed: u64) -> Self {
        Self { since: Instant::now(), state: AtomicU64::new(seed) }
    }

    fn next(&self) -> u64 {
        mix(self.state.fetch_add(SPLITMIX_GAMMA, Ordering::Relaxed).wrapping_add(SPLITMIX_GAMMA))
    }
}

impl Clock for VirtualClock {
    fn at(&self) -> Timestamp {
        Timestamp(START_MS).plus_ms(self.monotonic_ms())
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn random(&self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }
}
