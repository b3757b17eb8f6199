//! Figures of this process that the kernel has.

use std::fs;

/// Ticks of the processor's time in a second, as the kernel reports it to programs.
const TICKS_PER_SECOND: u64 = 100;

/// Resident memory, in bytes; `None` if the kernel does not say.
pub(super) fn resident_bytes() -> Option<u64> {
    resident(&fs::read_to_string("/proc/self/status").ok()?)
}

/// Seconds of processor time of all threads, with a resolution of 10 ms.
#[expect(clippy::cast_precision_loss, reason = "it would take a million years")]
pub(super) fn cpu_seconds() -> Option<f64> {
    let ticks = cpu_ticks(&fs::read_to_string("/proc/self/stat").ok()?)?;
    Some(ticks as f64 / TICKS_PER_SECOND as f64)
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// User and system time. The name of the program, in parentheses, may have spaces.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut times = fields.split(' ').skip(11);
    let mut next = || times.next()?.parse::<u64>().ok();
    next()?.checked_add(next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read() {
        assert_eq!(resident("Name:\thermod\nVmRSS:\t   12 kB\nThreads:\t3\n"), Some(12 * 1024));
        assert_eq!(resident("Name:\thermod\n"), None);
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 31 11 0 0 20 0 3";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(cpu_ticks("7 (a"), None);
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
        assert!(cpu_seconds().is_some());
    }
}
