//! Ends what a command has left of itself in a runner, whatever group, session or parent it has given itself. The kernel
//! hands orphans to the runner, which is their subreaper.

use std::{fs, io, time::Duration};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, set_child_subreaper, waitid},
};
use tokio::time::sleep;

use super::proc_stat::ProcessStat;

/// Most scans for children. A child that is killed leaves its own children, for the next scan. A command that never
/// stops to start processes escapes, where no sandbox ends all of them at once.
const MAX_SCANS: u32 = 20;
/// Time that killed processes get to exit before the next scan.
const RESCAN_DELAY: Duration = Duration::from_millis(2);

/// Makes this process the parent of all orphans among its descendants.
pub(super) fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Kills and reaps all children of this process, and theirs. False if some are left. No other part of this process may
/// wait for a child.
pub(super) async fn end() -> io::Result<bool> {
    for _ in 0..MAX_SCANS {
        if !reap()? {
            return Ok(true);
        }
        // In place: a command may have used up the threads of its user, and nothing else runs here.
        kill_children()?;
        sleep(RESCAN_DELAY).await;
    }
    Ok(false)
}

/// Reaps all children that have exited. False if no child is left.
pub(super) fn reap() -> io::Result<bool> {
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
        if let Some(pid) =
            pid.filter(|pid| ProcessStat::of(*pid).is_some_and(|stat| stat.parent == Some(own)))
        {
            let (Ok(()) | Err(_)) = kill_process(pid, Signal::KILL);
        }
    }
    Ok(())
}
