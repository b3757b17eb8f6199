//! What a killed runner leaves behind.

use std::{fs, io, os::fd::OwnedFd, time::Duration};

use rustix::process::{Pid, Signal, pidfd_send_signal};
use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::files::{Name, VARIABLE};
use crate::process::pidfd;

/// A member may start another one while it is looked for; a command that outruns so many looks is not to be caught so.
const LOOKS: u32 = 20;
/// What a killed process may take until it is gone.
const DYING: Duration = Duration::from_millis(500);

/// What a process may take to become another program.
const CLEAR: Duration = Duration::from_millis(5);

/// Kills the processes that belong to this attempt: the members of the runner's session, as long as one of them carries the
/// attempt's name. Then the number of the session was never free; a process that was given the pid of a dead one has not both.
pub(super) async fn end(session: Pid, name: Name) -> io::Result<()> {
    for _ in 0..LOOKS {
        let Seen { killed, unclear, strangers } = spawn_blocking(move || kill(session, name)).await??;
        if killed.is_empty() && unclear == 0 {
            if strangers > 0 {
                tracing::warn!(%name, strangers, "processes of a session that lost its runner are left: none of them says that it is its command's");
            }
            return Ok(());
        }
        for process in killed {
            let gone = async { pidfd::watch(process)?.readable().await.map(drop) };
            timeout(DYING, gone).await.unwrap_or(Ok(()))?;
        }
        if unclear > 0 {
            sleep(CLEAR).await;
        }
    }
    tracing::warn!(%name, "processes of a session that lost its runner are left: they do not say that they are its command's");
    Ok(())
}

/// What one look comes to.
#[derive(Debug, Default)]
struct Seen {
    killed: Vec<OwnedFd>,
    /// Members of the session that show no variables: about to become another program, or without any.
    unclear: usize,
    /// Members that show others.
    strangers: usize,
}

/// Whose a member of the session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Attempt,
    Stranger,
    Unclear,
}

impl Seen {
    fn of(members: Vec<(OwnedFd, Whose)>) -> Self {
        let count = |whose| members.iter().filter(|(_, of)| *of == whose).count();
        if count(Whose::Attempt) == 0 {
            return Self {
                unclear: count(Whose::Unclear),
                strangers: count(Whose::Stranger),
                ..Self::default()
            };
        }
        let killed = members.into_iter().map(|(process, _)| process);
        let killed = killed.filter(|process| pidfd_send_signal(process, Signal::KILL).is_ok()).collect();
        Self { killed, ..Self::default() }
    }
}

fn kill(session: Pid, name: Name) -> io::Result<Seen> {
    let mut members = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_str().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|pid| session_of(*pid) == Some(session)) else { continue };
        // From here on the pid cannot become another's unnoticed.
        let Ok(process) = pidfd::open(pid) else { continue };
        members.extend(whose(pid, session, name).map(|whose| (process, whose)));
    }
    Ok(Seen::of(members))
}

/// Whether a process is a member of the session and carries the attempt's name.
pub(super) fn belongs(pid: Pid, session: Pid, name: Name) -> bool {
    whose(pid, session, name) == Some(Whose::Attempt)
}

/// `None` if it is no member.
fn whose(pid: Pid, session: Pid, name: Name) -> Option<Whose> {
    let named = format!("{VARIABLE}={name}");
    let variables = fs::read(format!("/proc/{}/environ", pid.as_raw_pid()));
    // Looked at last: of a process that is gone by now nothing is true.
    stat(pid).filter(|stat| stat.session == session && stat.state != b'Z')?;
    Some(match variables {
        Ok(variables) if variables.is_empty() => Whose::Unclear,
        Ok(variables) if variables.split(|byte| *byte == 0).any(|one| one == named.as_bytes()) => {
            Whose::Attempt
        }
        // Nobody may look at it, or it says something else.
        Ok(_) | Err(_) => Whose::Stranger,
    })
}

struct Stat {
    state: u8,
    session: Pid,
}

fn stat(pid: Pid) -> Option<Stat> {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The program's name, in parentheses, may have any byte in it.
    let after = stat.get(memchr::memrchr(b')', &stat)? + 2..)?;
    let mut words = after.split(|byte| *byte == b' ');
    let state = *words.next()?.first()?;
    let session = std::str::from_utf8(words.nth(2)?).ok()?.parse().ok()?;
    Some(Stat { state, session: Pid::from_raw(session)? })
}

fn session_of(pid: Pid) -> Option<Pid> {
    stat(pid).map(|stat| stat.session)
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
