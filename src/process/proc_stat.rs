//! What the kernel tells of a process in `/proc/PID/stat` (proc_pid_stat(5)).

use std::fs;

use rustix::process::Pid;

/// A part of that file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProcessStat {
    /// The name of the main thread, at most 15 bytes.
    pub(super) name: Vec<u8>,
    /// The parent; `None` for a process whose parent is outside of this pid namespace.
    pub(super) parent: Option<Pid>,
    /// The POSIX session; `None` if its leader is outside of this pid namespace.
    pub(super) session: Option<Pid>,
    /// The start of the process, in clock ticks after the boot.
    pub(super) started: u64,
    is_zombie: bool,
}

impl ProcessStat {
    /// `None` if there is no such process, or it cannot be read.
    pub(super) fn of(process: Pid) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{}/stat", process.as_raw_pid())).ok()?)
    }

    /// As [`Self::of`]; `None` also for a process that has exited and was not reaped.
    pub(super) fn of_living(process: Pid) -> Option<Self> {
        Self::of(process).filter(|stat| !stat.is_zombie)
    }

    fn parse(stat: &[u8]) -> Option<Self> {
        // The program's name, in parentheses, may contain any byte.
        let end = memchr::memrchr(b')', stat)?;
        let name = stat.get(memchr::memchr(b'(', stat)? + 1..end)?.to_owned();
        let after = stat.get(end + 2..)?;
        let mut words = std::str::from_utf8(after).ok()?.split_ascii_whitespace();
        let is_zombie = words.next()? == "Z";
        // The session of a process that is about to vanish is -1.
        let mut pid = |skipped| Some(Pid::from_raw(words.nth(skipped)?.parse::<i32>().ok()?.max(0)));
        let (parent, session) = (pid(0)?, pid(1)?);
        Some(Self { name, parent, session, started: words.nth(15)?.parse().ok()?, is_zombie })
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;

    #[test]
    fn a_process_is_read_as_the_kernel_tells_it() {
        let check = |text: &[u8], expected: Option<(bool, i32, i32, u64)>| {
            let number = |pid: Option<Pid>| pid.map_or(0, Pid::as_raw_pid);
            let read = ProcessStat::parse(text)
                .map(|stat| (stat.is_zombie, number(stat.parent), number(stat.session), stat.started));
            assert_eq!(read, expected, "{}", String::from_utf8_lossy(text));
        };
        let rest = "34816 12 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4711 0 0";
        check(format!("12 (sh) S 7 12 13 {rest}").as_bytes(), Some((false, 7, 13, 4711)));
        check(&[b"12 (a) R 1 7 (\xff) Z 3 12 9 ", rest.as_bytes()].concat(), Some((true, 3, 9, 4711)));
        check(format!("12 (sh) S 0 12 0 {rest}").as_bytes(), Some((false, 0, 0, 4711)));
        check(format!("12 (sh) X 0 -1 -1 {rest}").as_bytes(), Some((false, 0, 0, 4711)));
        let name = ProcessStat::parse(format!("12 (a) (b) S 0 12 0 {rest}").as_bytes()).unwrap().name;
        assert_eq!(name, b"a) (b");
        check(b"12 (sh) S 0 12", None);
        check(b"12 (sh", None);
        let own = ProcessStat::of_living(getpid()).unwrap();
        assert!(own.parent.is_some() && own.started > 0);
        assert_eq!(ProcessStat::of(Pid::from_raw(i32::MAX).unwrap()), None);
    }
}
