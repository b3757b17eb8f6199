use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use crate::{model::Timestamp, port::Clock};

/// Where the wall clock of a test stands when it begins: 2026-01-01T00:00:00Z.
const BEGINNING: i64 = 1_767_225_600_000;

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

    /// SplitMix64, from <https://prng.di.unimi.it/splitmix64.c>.
    fn next(&self) -> u64 {
        let state = self.state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Clock for VirtualClock {
    fn at(&self) -> Timestamp {
        Timestamp(BEGINNING).plus_ms(self.monotonic_ms())
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn random(&self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }
}
