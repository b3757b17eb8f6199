//! Finds and kills the processes that a killed runner leaves behind. Also decides, from `/proc`, whether a process belongs
//! to an attempt.

use std::{
    ffi::OsStr,
    fs, io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
    time::Duration,
};

use rustix::process::{Pid, Signal, pidfd_send_signal};
use tokio::time::{sleep, timeout};

use super::files::{SpoolName, VARIABLE};
use crate::{
    files::off_thread,
    process::{pidfd, proc_stat::ProcessStat},
};

/// Most scans. A process of the POSIX session may start another one during a scan, so one scan does not suffice. A
/// command that never stops doing so escapes.
const MAX_SCANS: u32 = 20;
/// Time that a killed process may take to exit.
const KILL_TIMEOUT: Duration = Duration::from_millis(500);

/// Pause before the next scan if a process was in the middle of `execve`: meanwhile its environment reads as empty.
const RESCAN_DELAY: Duration = Duration::from_millis(5);

/// Kills all members of the runner's POSIX session, if one of them has the attempt's name in its environment. That
/// member proves that the session's number was not reused: a number with a member is never given away. Outside of the
/// session it kills the processes with that name whose temporary files are in `temp`: only the sandbox of the command can
/// have started them.
pub(super) async fn kill_session(session: Pid, name: SpoolName, temp: &Path) -> io::Result<()> {
    for _ in 0..MAX_SCANS {
        let ScanResult { killed, empty_environments, strangers } = off_thread({
            let temp = temp.to_owned();
            move || kill_members(session, name, &temp)
        })
        .await?;
        if killed.is_empty() && empty_environments == 0 {
            if strangers > 0 {
                tracing::warn!(%name, strangers, "processes of a session that lost its runner are left: none of them says that it is its command's");
            }
            return Ok(());
        }
        for process in killed {
            let exit = async { pidfd::watch(process)?.readable().await.map(drop) };
            timeout(KILL_TIMEOUT, exit).await.unwrap_or(Ok(()))?;
        }
        if empty_environments > 0 {
            sleep(RESCAN_DELAY).await;
        }
    }
    tracing::warn!(%name, "processes of a session that lost its runner are left: they do not say that they are its command's");
    Ok(())
}

/// The result of one scan.
#[derive(Debug, Default)]
struct ScanResult {
    killed: Vec<OwnedFd>,
    /// Number of members whose environment reads as empty: they are in the middle of `execve`, or have no variables.
    empty_environments: usize,
    /// Number of members whose environment lacks the attempt's name or cannot be read.
    strangers: usize,
}

/// Whether a member of the POSIX session belongs to the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ownership {
    Attempt,
    Stranger,
    Unclear,
}

impl ScanResult {
    fn of(members: Vec<(OwnedFd, Ownership)>) -> Self {
        let count = |ownership| members.iter().filter(|(_, of)| *of == ownership).count();
        if count(Ownership::Attempt) == 0 {
            return Self {
                empty_environments: count(Ownership::Unclear),
                strangers: count(Ownership::Stranger),
                ..Self::default()
            };
        }
        let killed = killed(members.into_iter().map(|(process, _)| process)).collect();
        Self { killed, ..Self::default() }
    }
}

/// Kills processes. Returns those that were still there.
fn killed(processes: impl IntoIterator<Item = OwnedFd>) -> impl Iterator<Item = OwnedFd> {
    processes.into_iter().filter(|process| pidfd_send_signal(process, Signal::KILL).is_ok())
}

fn kill_members(session: Pid, name: SpoolName, temp: &Path) -> io::Result<ScanResult> {
    let (mut members, mut leavers) = (Vec::new(), Vec::new());
    for entry in fs::read_dir("/proc")? {
        let pid = entry?.file_name().to_str().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else { continue };
        let Some(of) = session_of(pid) else { continue };
        // From here on a reuse of the pid is noticed.
        let Ok(process) = pidfd::open(pid) else { continue };
        match ownership(pid, of, name) {
            Some(ownership) if of == session => members.push((process, ownership)),
            Some(Ownership::Attempt) if has_temp_folder(pid, temp) => leavers.push(process),
            Some(Ownership::Attempt | Ownership::Stranger | Ownership::Unclear) | None => {}
        }
    }
    let mut result = ScanResult::of(members);
    result.killed.extend(killed(leavers));
    Ok(result)
}

/// True if a process is a member of the POSIX session and carries the attempt's name.
pub(super) fn belongs(pid: Pid, session: Pid, name: SpoolName) -> bool {
    ownership(pid, session, name) == Some(Ownership::Attempt)
}

/// Classifies a process. `None` if it has exited, or is no member of the POSIX session.
fn ownership(pid: Pid, session: Pid, name: SpoolName) -> Option<Ownership> {
    let expected = format!("{VARIABLE}={name}");
    let variables = fs::read(format!("/proc/{}/environ", pid.as_raw_pid()));
    // Read after the variables: for a process that has exited by now, they prove nothing.
    ProcessStat::of_living(pid).filter(|stat| stat.session == Some(session))?;
    Some(match variables {
        Ok(variables) if variables.is_empty() => Ownership::Unclear,
        Ok(variables) if variables.split(|byte| *byte == 0).any(|one| one == expected.as_bytes()) => {
            Ownership::Attempt
        }
        // The variables are unreadable or without the name.
        Ok(_) | Err(_) => Ownership::Stranger,
    })
}

/// True if a process has its temporary files in this folder. The name of an attempt is unique only within its state
/// directory: a restored copy has the same ones.
fn has_temp_folder(pid: Pid, folder: &Path) -> bool {
    let variables = fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap_or_default();
    let value = variables.split(|byte| *byte == 0).find_map(|one| one.strip_prefix(b"TMPDIR="));
    value.is_some_and(|path| Path::new(OsStr::from_bytes(path)).starts_with(folder))
}

fn session_of(pid: Pid) -> Option<Pid> {
    ProcessStat::of(pid)?.session
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        process::{Command, Stdio},
    };

    use hermod_actors::model::{CallId, RunId};

    use super::*;

    #[test]
    fn only_what_carries_the_name_in_its_session_belongs() {
        let name =
            |attempt| SpoolName { call: CallId { run: RunId::from_bits(7), iteration: 1, n: 1 }, attempt };
        // In a session of its own, like a runner. The program that it becomes prints the text.
        let mut member = Command::new("setsid")
            .arg("cat")
            .env(VARIABLE, name(1).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        member.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        member.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let pid = Pid::from_child(&member);
        let seen = (session_of(pid), belongs(pid, pid, name(1)), belongs(pid, pid, name(2)));
        let elsewhere = Pid::from_raw(i32::MAX).unwrap();
        let other_session = belongs(pid, elsewhere, name(1));
        member.kill().unwrap();
        member.wait().unwrap();
        assert_eq!(seen, (Some(pid), true, false));
        assert!(!other_session);
        assert!(!belongs(pid, pid, name(1)), "it is gone");
    }
}
