//! A clock for tests: tokio's time and random numbers from a seed. Also the mixing function of SplitMix64 that the
//! simulation shares.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use crate::{model::Timestamp, port::Clock};

/// Wall clock at the start of a test, in ms since the Unix epoch: 2026-01-01T00:00:00Z.
pub const START_MS: i64 = 1_767_225_600_000;

/// The increment of SplitMix64's state.
pub const SPLITMIX_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's output for a state, from <https://prng.di.unimi.it/splitmix64.c>.
pub const fn mix(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A clock that follows tokio's time, virtual or not. Its random numbers come from a seed.
#[derive(Debug)]
pub struct VirtualClock {
    since: Instant,
    state: AtomicU64,
}

impl VirtualClock {
    /// A clock whose random numbers are determined by `seed`. Must be called within a tokio runtime.
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
