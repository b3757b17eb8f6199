//! What a killed runner leaves behind.

use std::{fs, io, os::fd::OwnedFd, time::Duration};

use rustix::process::{Pid, Signal, pidfd_send_signal};
use tokio::{task::spawn_blocking, time::timeout};

use super::files::{Name, VARIABLE};
use crate::process::pidfd;

/// A member may start another one while it is looked for; a command that outruns so many looks is not to be caught so.
const LOOKS: u32 = 20;
/// What a killed process may take until it is gone.
const DYING: Duration = Duration::from_millis(500);

/// Kills the processes that belong to this attempt: members of the runner's session that carry the attempt's name. A
/// process that was given the pid of a dead one has not both.
pub(super) async fn end(session: Pid, name: Name) -> io::Result<()> {
    for _ in 0..LOOKS {
        let killed = spawn_blocking(move || kill(session, name)).await??;
        if killed.is_empty() {
            return Ok(());
        }
        for process in killed {
            let gone = async { pidfd::watch(process)?.readable().await.map(drop) };
            timeout(DYING, gone).await.unwrap_or(Ok(()))?;
        }
    }
    tracing::warn!(%name, "a command that lost its runner starts processes faster than they can be ended");
    Ok(())
}

fn kill(session: Pid, name: Name) -> io::Result<Vec<OwnedFd>> {
    let mut killed = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_str().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|pid| session_of(*pid) == Some(session)) else { continue };
        // From here on the pid cannot become another's unnoticed.
        let Ok(process) = pidfd::open(pid) else { continue };
        if belongs(pid, session, name) && pidfd_send_signal(&process, Signal::KILL).is_ok() {
            killed.push(process);
        }
    }
    Ok(killed)
}

/// Whether a process is a member of the session and carries the attempt's name.
pub(super) fn belongs(pid: Pid, session: Pid, name: Name) -> bool {
    let carries = || {
        let named = format!("{VARIABLE}={name}");
        let variables = fs::read(format!("/proc/{}/environ", pid.as_raw_pid()));
        variables.is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == named.as_bytes()))
    };
    session_of(pid) == Some(session) && carries()
}

fn session_of(pid: Pid) -> Option<Pid> {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The program's name, in parentheses, may have any byte in it.
    let after = &stat[memchr::memrchr(b')', &stat)? + 1..];
    let session = after.split(|byte| *byte == b' ').nth(4)?;
    Pid::from_raw(std::str::from_utf8(session).ok()?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::{CallId, RunId};
    use rustix::process::{getpid, getsid};

    use super::*;

    #[test]
    fn a_session_is_read_as_the_kernel_says() {
        assert_eq!(session_of(getpid()), getsid(None).ok());
        assert_eq!(session_of(Pid::from_raw(i32::MAX).unwrap()), None);
    }

    #[test]
    fn a_stranger_in_the_session_does_not_belong() {
        let call = CallId { run: RunId::from_bits(7), iteration: 1, n: 1 };
        let session = getsid(None).unwrap();
        assert!(!belongs(getpid(), session, Name { call, attempt: 1 }));
    }
}
