//! The instants of the kills, drawn from a seed. `test.rs` gives the span of time.

use std::time::Duration;

/// On average, one process in this many is killed within `EARLY_SPAN` of its start.
const EARLY_SHARE: u64 = 4;
/// The store is opened and runs are revived in this time.
const EARLY_SPAN: Duration = Duration::from_millis(50);

/// The instants of the kills, one for each process.
#[derive(Debug)]
pub(super) struct KillTimes(u64);

impl KillTimes {
    /// The instants of this seed.
    pub(super) const fn new(seed: u32) -> Self {
        Self(seed as u64)
    }

    /// The time from the next process's start to its kill, less than `span`.
    pub(super) fn next(&mut self, span: Duration) -> Duration {
        let early = self.next_random().is_multiple_of(EARLY_SHARE);
        let span = if early { EARLY_SPAN.min(span) } else { span };
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1);
        Duration::from_micros(self.next_random() % micros)
    }

    /// The next number of SplitMix64.
    const fn next_random(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instants(seed: u32, span: Duration) -> Vec<Duration> {
        let mut kill_times = KillTimes::new(seed);
        (0..1_000).map(|_| kill_times.next(span)).collect()
    }

    #[test]
    fn a_seed_means_the_same_instants() {
        let second = Duration::from_secs(1);
        assert_eq!(instants(7, second), instants(7, second));
        assert_ne!(instants(7, second), instants(8, second));
    }

    #[test]
    fn instants_lie_all_over_the_span_and_thick_at_its_beginning() {
        let check = |span: u64, tenths: [std::ops::RangeInclusive<usize>; 2]| {
            let instants = instants(3, Duration::from_millis(span));
            let within = |from: u64, to: u64| {
                let range = Duration::from_millis(from)..Duration::from_millis(to);
                instants.iter().filter(|at| range.contains(at)).count()
            };
            assert_eq!(within(0, span), 1_000);
            assert!(tenths[0].contains(&within(0, span / 10)), "{}", within(0, span / 10));
            for tenth in 1..10 {
                let count = within(span * tenth / 10, span * (tenth + 1) / 10);
                assert!(tenths[1].contains(&count), "{tenth}: {count}");
            }
        };
        check(1_000, [250..=400, 45..=105]);
        check(20, [70..=130, 70..=130]);
    }
}
