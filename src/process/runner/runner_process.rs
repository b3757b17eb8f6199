//! The runner: a process that runs one command and records its outcome in its spool folder. Steps 2 to 7 of the
//! protocol.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd as _, OwnedFd},
    process::ExitCode,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{getpid, setsid},
    thread::set_name,
};
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use super::{
    channel::{self, is_closed},
    exit::{ExitRecord, OutputExtent, PreallocatedExit},
    files::{Claim, SpoolFolder, VARIABLE},
    identity::RunnerIdentity,
    output::{KeptOutput, keep_output},
};
use crate::{
    files::IoResult as _,
    process::{
        self, Command, CommandError, ExitCause, Tee, descendants, pidfd,
        sandbox::{PreparedSandbox, SandboxError, restrict_own_process},
    },
};

/// The socket to the owner that requested the runner. The owner sees the end of the runner by its closing.
#[derive(Debug)]
pub(super) struct OwnerLink(OwnedFd);

impl OwnerLink {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Hands the owner the descriptor of this process, for signals.
    fn announce(&self) -> io::Result<()> {
        let process = pidfd::open(getpid())?;
        match channel::send(&self.0, ANNOUNCEMENT, Some(process.as_fd())) {
            // Without its owner the runner goes on. One that lives would request another runner.
            Err(error) if !is_closed(&error) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Reports why nothing was run.
    pub(super) fn report(&self, error: &io::Error) {
        let code = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
        // An owner that is gone needs no report.
        let (Ok(()) | Err(_)) = channel::send(&self.0, &code.to_le_bytes(), None);
    }

    /// True while the owner waits for the end of this runner.
    fn is_attached(&self) -> bool {
        let mut socket = [PollFd::new(&self.0, PollFlags::empty())];
        let ready = poll(&mut socket, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        ready.is_ok() && !socket[0].revents().contains(PollFlags::HUP)
    }
}

/// The sandbox of a command, if it has one, or why there is none: then the command is not run.
pub(super) type SandboxPreparation = Result<Option<PreparedSandbox>, SandboxError>;

/// The name of the process, for a list of processes.
const NAME: &CStr = c"hermod-runner";

/// The first message of a runner, which comes with its pidfd.
pub(super) const ANNOUNCEMENT: &[u8] = b"runner";

/// Runs the command of a folder in a process that was just forked and has one thread.
pub(super) fn main(
    folder: &SpoolFolder,
    task: io::Result<Command>,
    owner: OwnerLink,
    sandbox: SandboxPreparation,
) -> ExitCode {
    match run(folder, task, &owner, sandbox) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            owner.report(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(
    folder: &SpoolFolder,
    task: io::Result<Command>,
    owner: &OwnerLink,
    sandbox: SandboxPreparation,
) -> io::Result<()> {
    set_name(NAME)?;
    owner.announce()?;
    // The number of the POSIX session is the pid, for whatever finds the command without its runner.
    setsid()?;
    descendants::adopt()?;
    let mut task = task?;
    task.variables.push((VARIABLE.into(), folder.name().into()));
    if let Ok(Some(sandbox)) = &sandbox {
        sandbox.prepare_process()?;
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before `started`: from then on a stop must end the command too.
        let stop = stop_token()?;
        let _lock = folder.lock()?;
        // Step 3. Missing disk space is found before the command runs.
        let exit_file = PreallocatedExit::create(folder)?;
        let runner = RunnerIdentity::own()?;
        let claim = Claim::Runner(runner);
        if !folder.claim(claim)? {
            return Ok(());
        }
        // Second half of step 4. Without a ledger there is never a proof that this command was not begun.
        folder.ledger().record_start(folder.name(), runner).if_exists()?;
        // An owner that found no entry has revoked this attempt before.
        if folder.read_claim()? != Some(claim) {
            return Err(Errno::NOENT.into());
        }
        if let Some(sandbox) = &task.sandbox {
            restrict_own_process(&sandbox.rules.limits)?;
        }
        let (exit, output) = run_task(folder, task, sandbox, &stop).await?;
        record(exit_file, exit, output, owner)
    })
}

/// Fires on SIGTERM. It also handles SIGXFSZ, so that a file that may not grow is an error of its write.
fn stop_token() -> io::Result<CancellationToken> {
    let mut sigterm = signal(SignalKind::terminate())?;
    let _sigxfsz = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        sigterm.recv().await;
        token.cancel();
    });
    Ok(stop)
}

/// Step 5. Its result is still to be recorded. A command that was started and cannot be watched is an error here: without
/// an outcome its call is in doubt.
async fn run_task(
    folder: &SpoolFolder,
    task: Command,
    sandbox: SandboxPreparation,
    stop: &CancellationToken,
) -> io::Result<(ExitRecord, KeptOutput)> {
    let (tee, pieces) = Tee::new();
    let run = async {
        let sandbox = sandbox.map_err(|error| CommandError::NotStarted(io::Error::other(error)))?;
        process::run_prepared(task, sandbox, Some(tee), stop).await
    };
    let (end, output) = tokio::join!(run, keep_output(folder, pieces));
    // What has left its group ends too, before the outcome is known.
    descendants::end().await?;
    let output = output?;
    let end = match end {
        Ok(result) => Ok(result),
        Err(CommandError::NotStarted(error)) => Err(error.to_string()),
        Err(CommandError::Unwatched(error)) => return Err(error),
    };
    let exit = ExitRecord { end, output: output.extent(), inline_output: Vec::new() };
    Ok((exit, output))
}

/// Step 6. Folder entries are not synced: if a power loss takes one, the call is in doubt.
///
/// Nothing is synced for an owner that waits: it takes the outcome at once, and makes that durable in its journal.
fn record(
    mut exit_file: PreallocatedExit,
    mut exit: ExitRecord,
    mut output: KeptOutput,
    owner: &OwnerLink,
) -> io::Result<()> {
    let is_stopped = matches!(&exit.end, Ok(result) if result.cause == ExitCause::Cancel);
    let is_synced = !is_stopped && !owner.is_attached();
    if output.restore_file().is_err() || (is_synced && output.sync().is_err()) {
        let OutputExtent { bytes, left_out } = exit.output;
        exit.output = OutputExtent { bytes: 0, left_out: bytes + left_out };
    }
    exit.inline_output = output.into_inline();
    exit_file.write(&exit)?;
    if is_synced { exit_file.sync() } else { Ok(()) }
}
