//! What something costs this process.

use std::{ops::Sub, time::Duration};

use rustix::time::{ClockId, clock_gettime};

/// Time of the processor (all threads, user and system) and time on the wall: at a moment, or between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) cpu: Duration,
    pub(crate) wall: Duration,
}

impl Cost {
    pub(crate) fn now() -> Self {
        Self { cpu: clock(ClockId::ProcessCPUTime), wall: clock(ClockId::Monotonic) }
    }

    /// What was spent since `self`.
    pub(crate) fn spent(self) -> Self {
        Self::now() - self
    }

    /// Microseconds of processor and wall for each of `n`.
    pub(crate) fn each(self, n: usize) -> Each {
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / n as f64;
        Each { cpu: micros(self.cpu), wall: micros(self.wall) }
    }
}

impl Sub for Cost {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self { cpu: self.cpu - earlier.cpu, wall: self.wall - earlier.wall }
    }
}

/// Microseconds for one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Each {
    pub(crate) cpu: f64,
    pub(crate) wall: f64,
}

impl Each {
    /// The medians of the processor's time and of the wall's.
    pub(crate) fn median(samples: &[Self]) -> Self {
        let cpu = quantile(samples.iter().map(|each| each.cpu), 0.5);
        Self { cpu, wall: quantile(samples.iter().map(|each| each.wall), 0.5) }
    }
}

/// The smallest value that a share `q` of all does not exceed; 0 of none.
pub(crate) fn quantile(values: impl Iterator<Item = f64>, q: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * q).ceil() as usize;
    values.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// Resident memory of this process, in KiB.
pub(crate) fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells of its processes");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line of memory");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number of KiB")
}

fn clock(id: ClockId) -> Duration {
    clock_gettime(id).try_into().expect("clocks do not stand before their beginning")
}
