//! The fork server: a process with one thread that forks a runner for each request of the owner. A fork maps what this
//! process has loaded already, so a runner costs a fraction of a start of the program.
//!
//! It ends when its owner closes the socket. Its runners are in POSIX sessions of their own and go on. It prepares
//! sandboxes before it forks, and keeps them for the next commands.

use std::{
    ffi::{CStr, OsStr, OsString},
    fmt,
    fs::File,
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::PathBuf,
    process::ExitCode,
};

use fork::{Fork, fork};
use hermod_actors::model::Hash;
use memchr::memchr;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, fcntl_dupfd_cloexec},
    process::setsid,
    stdio::{dup2_stdin, stdin},
    thread::set_name,
};

use super::{
    channel::{self, MAX_MESSAGE_BYTES, ReceivedMessage},
    files::SpoolFolder,
    owner_link::OwnerLink,
    runner_process::{self, SandboxPreparation},
};
use crate::process::{Command, descendants::reap, sandbox::SandboxCache};

/// The first argument of the fork server; the second names the spool, for a list of processes. Its standard input is the
/// socket of the owner.
pub const ARGUMENT: &str = "__fork_server";

const SERVER_NAME: &CStr = c"hermod-forks";

/// Time until children that have exited are reaped, if no request comes before.
const REAP_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Lowest number of the descriptor of the socket: the first three are standard streams.
const FIRST_FREE: i32 = 3;

/// A request to run the task of a spool folder.
#[derive(PartialEq, Eq)]
pub(super) struct ForkRequest {
    pub(super) folder: PathBuf,
    /// Further variables of the command. They are not stored: they may be secret.
    pub(super) variables: Vec<(OsString, OsString)>,
}

/// What a process that was forked has to run.
struct RunnerTask {
    folder: SpoolFolder,
    task: io::Result<Command>,
    owner: OwnerLink,
    sandbox: SandboxPreparation,
}

/// Serves, if this process's arguments are those of the fork server. In a runner this returns when its command has
/// ended.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if arguments.nth(1)? != ARGUMENT {
        return None;
    }
    Some(match serve() {
        Ok(Some(RunnerTask { folder, task, owner, sandbox })) => {
            runner_process::main(folder, task, &owner, sandbox)
        }
        Ok(None) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

/// Forks until this process is a runner, or the owner is gone (`None`).
fn serve() -> io::Result<Option<RunnerTask>> {
    set_name(SERVER_NAME)?;
    // From here on neither the terminal nor the owner's process group can signal this process.
    setsid()?;
    let requests = fcntl_dupfd_cloexec(stdin(), FIRST_FREE)?;
    dup2_stdin(File::open("/dev/null")?)?;
    detect_processor();
    let (mut sandboxes, mut buffer) = (SandboxCache::default(), vec![0; MAX_MESSAGE_BYTES]);
    loop {
        wait(&requests)?;
        let (request, length, status) = match channel::receive(&requests, &mut buffer) {
            Ok(Some(ReceivedMessage { bytes, file: Some(status) })) => {
                (ForkRequest::decode(bytes), bytes.len(), status)
            }
            // A request without a socket has no requester.
            Ok(Some(_)) => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Ok(None) => return Ok(None),
            Err(error) => return Err(error),
        };
        // The variables of a command may be secret, and the next runner has a copy of this memory.
        buffer[..length].fill(0);
        let ForkRequest { folder, variables } = request;
        let folder = SpoolFolder::new(folder);
        // Whatever is wrong with it, the runner reports.
        let task = folder.task().map(|task| Command { variables, ..task });
        let spec = task.as_ref().ok().and_then(|task| task.sandbox.as_ref());
        let prepared = spec.map(|spec| sandboxes.prepare(spec)).transpose();
        let owner = OwnerLink::new(status);
        match fork() {
            Ok(Fork::Child) => {
                let sandbox = prepared.map(|position| position.map(|position| sandboxes.take(position)));
                return Ok(Some(RunnerTask { folder, task, owner, sandbox }));
            }
            Ok(Fork::Parent(_)) => {}
            Err(error) => owner.report(&error),
        }
    }
}

/// Has the libraries find out what this processor can do, for all runners: in a virtual machine each question costs tens
/// of microseconds.
fn detect_processor() {
    std::hint::black_box((memchr(0, &[1; 64]), Hash::of(b"")));
}

/// Waits for a request, and reaps children meanwhile.
fn wait(requests: &OwnedFd) -> io::Result<()> {
    loop {
        let timeout = reap()?.then_some(&REAP_INTERVAL);
        match poll(&mut [PollFd::from_borrowed_fd(requests.as_fd(), PollFlags::IN)], timeout) {
            Ok(0) | Err(Errno::INTR) => {}
            ready => return Ok(ready.map(drop)?),
        }
    }
}

impl fmt::Debug for ForkRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForkRequest").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl ForkRequest {
    /// The folder, then each variable, with a zero byte after each.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = [self.folder.as_os_str().as_bytes(), b"\0"].concat();
        for (name, value) in &self.variables {
            bytes.extend([name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Self {
        let mut parts = bytes.split(|byte| *byte == 0).map(OsStr::from_bytes);
        let folder = parts.next().unwrap_or_default().into();
        let variable = |part: &OsStr| {
            let at = part.as_bytes().iter().position(|byte| *byte == b'=')?;
            let (name, value) = part.as_bytes().split_at(at);
            Some((OsStr::from_bytes(name).to_owned(), OsStr::from_bytes(&value[1..]).to_owned()))
        };
        Self { folder, variables: parts.filter_map(variable).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let check = |folder: &[u8], variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let request = ForkRequest { folder: OsStr::from_bytes(folder).into(), variables };
            assert_eq!(ForkRequest::decode(&request.encode()), request);
        };
        check(b"/state/spool/a.1", &[]);
        check(b"/st\xffate/spool/a.1", &[("A", "1"), ("B", ""), ("C", "x=y\nz")]);
    }
}
