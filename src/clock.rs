//! The system clock, random numbers, new ids, and ids of the machine's boot. No other module reads the wall clock, the
//! monotonic clock of `std`, or the random source.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hermod_actors::{
    model::{BootId, Timestamp},
    port::Clock,
};

pub use hermod_actors::model::rfc3339;

/// The operating system's wall clock and monotonic clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    #[allow(clippy::disallowed_methods)] // the one file that may read clocks
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)] // the one file that may read clocks
    fn at(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }

    fn monotonic_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn random(&self) -> u128 {
        random()
    }
}

/// The wall clock's time.
pub fn now() -> Timestamp {
    SystemClock::default().at()
}

/// Microseconds of the system's monotonic clock, which other processes read too.
pub fn monotonic_us() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000)
}

fn random() -> u128 {
    let mut bytes = [0; 16];
    bytes[..10].copy_from_slice(&random_bytes::<10>());
    u128::from_le_bytes(bytes)
}

/// Cryptographically random bytes. Panics if the operating system provides none.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Without random bytes no id is unique and no token is secret, so the process cannot continue.
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// A new ULID as text, for ids that the process assigns instead of the runtime.
pub fn ulid(clock: &dyn Clock) -> String {
    let ms = u128::from(clock.at().ms_since(Timestamp::default()));
    hermod_actors::model::RunId::from_bits(ms << 80 | clock.random()).to_string()
}

/// The kernel's id of this machine's boot. Without one, each process gets a random boot id, so that nothing counts as
/// having survived from an earlier process.
pub fn boot() -> BootId {
    match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Ok(id) => id.trim().to_owned(),
        Err(_) => format!("{:020x}", random()),
    }
}

/// The boot id of a store with this restore generation. Work begun before a restore belongs to another store, so it
/// must count as begun in another boot.
pub fn boot_of(restore_generation: u64) -> BootId {
    match restore_generation {
        0 => boot(),
        restore_generation => format!("{}.{restore_generation}", boot()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ulids_of_now_and_differ() {
        let clock = SystemClock::default();
        let (one, two) = (ulid(&clock), ulid(&clock));
        assert_eq!((one.len(), one == two), (26, false));
        assert!(clock.random() < 1 << 80);
    }
}
