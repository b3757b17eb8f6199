//! Ends what a command has left of itself in a runner, whatever group, session or parent it has given itself. The kernel
//! hands orphans to the runner, which is their subreaper.

use std::{fs, io, time::Duration};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, set_child_subreaper, waitid},
};
use tokio::time::sleep;

use crate::files::off_thread;

/// Most scans for children. A child that is killed leaves its own children, for the next scan. A command that never
/// stops to start processes escapes, where no sandbox ends all of them at once.
const MAX_SCANS: u32 = 20;
/// Time that killed processes get to exit before the next scan.
const RESCAN_DELAY: Duration = Duration::from_millis(2);

/// Makes this process the parent of all orphans among its descendants.
pub(super) fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Kills and reaps all children of this process, and theirs. No other part of this process may wait for a child.
pub(super) async fn end() -> io::Result<()> {
    for _ in 0..MAX_SCANS {
        if !reap()? {
            return Ok(());
        }
        off_thread(kill_children).await?;
        sleep(RESCAN_DELAY).await;
    }
    Ok(())
}

/// Reaps what has exited. False if no child is left.
fn reap() -> io::Result<bool> {
    loop {
        match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return Ok(true),
            Err(Errno::CHILD) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

fn kill_children() -> io::Result<()> {
    let own = getpid();
    for entry in fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_str().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
        // The pid of a child is not reused before this process has reaped it.
        if let Some(pid) = pid.filter(|pid| parent(*pid) == Some(own)) {
            let (Ok(()) | Err(_)) = kill_process(pid, Signal::KILL);
        }
    }
    Ok(())
}

fn parent(pid: Pid) -> Option<Pid> {
    parse_parent(&fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?)
}

/// The parent in `/proc/PID/stat` (proc_pid_stat(5)).
fn parse_parent(stat: &[u8]) -> Option<Pid> {
    // The program's name, in parentheses, may contain any byte.
    let after = stat.get(memchr::memrchr(b')', stat)? + 2..)?;
    let parent = after.split(|byte| *byte == b' ').nth(1)?;
    Pid::from_raw(std::str::from_utf8(parent).ok()?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_read_as_the_kernel_tells_it() {
        let read = |text: &[u8]| parse_parent(text).map(Pid::as_raw_pid);
        assert_eq!(read(b"12 (sh) S 7 12 12 34816"), Some(7));
        assert_eq!(read(b"12 (a) R 1 7 (\xff) Z 3 12 9 0 -1"), Some(3));
        assert_eq!(read(b"12 (sh) S 0 12"), None);
        assert_eq!(read(b"12 (sh"), None);
        assert!(parent(getpid()).is_some());
    }
}
