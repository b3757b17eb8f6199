//! The runner: a process that runs a command and records its outcome in its spool folder. Steps 2 to 7 of the protocol.
//! Then it may run further commands of the same kind, one after the other.

use std::{io, os::fd::OwnedFd, process::ExitCode, time::Duration};

use rustix::{
    io::Errno,
    process::{Signal, setsid},
    thread::set_name,
};
use tokio::{
    io::unix::AsyncFd,
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    exit::{ExitRecord, OutputExtent, PreallocatedExit},
    files::{Claim, SpoolFolder, VARIABLE},
    fork_server::ForkRequest,
    identity::{IDLE_NAME, NAME, RunnerIdentity},
    output::{KeptOutput, keep_output},
    owner_link::{OwnerLink, receive_request},
};
use crate::{
    files::IoResult as _,
    process::{
        self, Command, CommandError, ExitCause, Tee, descendants,
        sandbox::{CommandSandbox, PreparedSandbox, ProcessLimits, SandboxError, SandboxSpec},
    },
};

/// Commands of one runner. It bounds what a runner gathers.
const MAX_COMMANDS: u32 = 100;
/// Time that a runner waits for its next command.
const IDLE_TIMEOUT: Duration = Duration::from_mins(1);

/// The sandbox of a command, if it has one, or why there is none: then the command is not run.
pub(super) type SandboxPreparation = Result<Option<PreparedSandbox>, SandboxError>;

/// A process that runs one command after the other.
struct Runner<'a> {
    owner: &'a OwnerLink,
    identity: RunnerIdentity,
    /// Fires on SIGTERM.
    stop: CancellationToken,
    /// The sandbox that every command of this process has.
    spec: Option<SandboxSpec>,
    sandbox: Result<CommandSandbox, SandboxError>,
    /// The limits of this process, from its first command on.
    limits: Option<ProcessLimits>,
    /// Further requests; registered before the first wait.
    requests: Option<AsyncFd<OwnedFd>>,
}

/// Runs the command of a folder in a process that was just forked and has one thread, and maybe further ones.
pub(super) fn main(
    folder: SpoolFolder,
    task: io::Result<Command>,
    owner: &OwnerLink,
    sandbox: SandboxPreparation,
) -> ExitCode {
    match run(folder, task, owner, sandbox) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            owner.report(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(
    folder: SpoolFolder,
    task: io::Result<Command>,
    owner: &OwnerLink,
    sandbox: SandboxPreparation,
) -> io::Result<()> {
    set_name(NAME)?;
    owner.announce()?;
    // The number of the POSIX session is the pid, for whatever finds the command without its runner.
    setsid()?;
    descendants::adopt()?;
    let task = task?;
    if let Ok(Some(sandbox)) = &sandbox {
        sandbox.prepare_process()?;
    }
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut runner = Runner {
            owner,
            identity: RunnerIdentity::own()?,
            // Before `started`: from then on a stop must end the command too.
            stop: stop_token()?,
            spec: task.sandbox.clone(),
            sandbox: sandbox.map(CommandSandbox::new),
            limits: None,
            requests: None,
        };
        let (mut next, mut commands) = (Some((folder, task)), 0);
        while let Some((folder, task)) = next {
            commands += 1;
            let may_wait = runner.run(&folder, task).await? && commands < MAX_COMMANDS;
            next = if may_wait { runner.next_command().await } else { None };
        }
        Ok(())
    })
}

/// Fires on SIGTERM. It also handles SIGXFSZ, so that a file that may not grow is an error of its write.
fn stop_token() -> io::Result<CancellationToken> {
    let mut sigterm = signal(SignalKind::terminate())?;
    let _sigxfsz = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        sigterm.recv().await;
        token.cancel();
    });
    Ok(stop)
}

impl Runner<'_> {
    /// Steps 2 to 6. True if this process may run a further command: nothing of this one is left in it.
    async fn run(&mut self, folder: &SpoolFolder, mut task: Command) -> io::Result<bool> {
        task.variables.push((VARIABLE.into(), folder.name().into()));
        let _lock = folder.lock()?;
        // Step 3. Missing disk space is found before the command runs.
        let exit_file = PreallocatedExit::create(folder)?;
        let claim = Claim::Runner(self.identity);
        if !folder.claim(claim)? {
            return Ok(false);
        }
        // Second half of step 4. Without a ledger there is never a proof that this command was not begun.
        folder.ledger().record_start(folder.name(), self.identity).if_exists()?;
        // An owner that found no entry has revoked this attempt before.
        if folder.read_claim()? != Some(claim) {
            return Err(Errno::NOENT.into());
        }
        exit_file.note_begun();
        let (exit, output, is_clean) = self.run_task(folder, task).await?;
        let has_exited = matches!(&exit.end, Ok(result) if result.cause == ExitCause::Exit);
        record(exit_file, exit, output, self.owner)?;
        Ok(has_exited && is_clean && self.sandbox.as_ref().is_ok_and(CommandSandbox::is_reusable))
    }

    /// Step 5. Its result is still to be recorded. A command that was started and cannot be watched is an error here:
    /// without an outcome its call is in doubt. The last value is true if none of its processes is left.
    async fn run_task(
        &mut self,
        folder: &SpoolFolder,
        task: Command,
    ) -> io::Result<(ExitRecord, KeptOutput, bool)> {
        let (tee, pieces) = Tee::new();
        let limited = self.restrict();
        let Self { sandbox, stop, .. } = self;
        let run = async {
            limited.map_err(CommandError::NotStarted)?;
            let sandbox = sandbox.as_mut().map_err(|error| io::Error::other(error.to_string()));
            let sandbox = sandbox.map_err(CommandError::NotStarted)?;
            process::run_in(task, sandbox, Some(tee), stop).await
        };
        let (end, output) = tokio::join!(run, keep_output(folder, pieces));
        // What has left its group ends too, before the outcome is known.
        let is_clean = descendants::end().await?;
        let output = output?;
        let end = match end {
            Ok(result) => Ok(result),
            Err(CommandError::NotStarted(error)) => Err(error.to_string()),
            Err(CommandError::Unwatched(error)) => return Err(error),
        };
        let exit = ExitRecord { end, output: output.extent(), inline_output: Vec::new() };
        Ok((exit, output, is_clean))
    }

    /// Sets the limits for this process, and so for all its commands.
    fn restrict(&mut self) -> io::Result<()> {
        if let (Some(sandbox), None) = (&self.spec, &self.limits) {
            self.limits = Some(ProcessLimits::restrict_own(&sandbox.rules.limits)?);
        }
        Ok(())
    }

    /// Waits for a further command. `None` if there is none for this process. A request that it does not announce is not
    /// begun: its owner requests another runner, which reports what is wrong with it.
    async fn next_command(&mut self) -> Option<(SpoolFolder, Command)> {
        let requests = match self.requests.take() {
            Some(requests) => requests,
            None => self.owner.register().ok()?,
        };
        set_name(IDLE_NAME).ok()?;
        self.owner.report_ready().ok()?;
        let received = tokio::select! {
            biased;
            () = self.stop.cancelled() => return None,
            received = timeout(IDLE_TIMEOUT, receive_request(&requests)) => received,
        };
        self.requests = Some(requests);
        let ForkRequest { folder, variables } = received.ok()?.ok()??;
        let folder = SpoolFolder::new(folder);
        let task = folder.task().ok().filter(|task| task.sandbox == self.spec)?;
        let is_same = self.sandbox.as_mut().is_ok_and(CommandSandbox::is_unchanged)
            && self.limits.as_ref().is_none_or(ProcessLimits::are_current);
        if !is_same {
            return None;
        }
        set_name(NAME).ok()?;
        self.owner.announce_again().ok()?;
        Some((folder, Command { variables, ..task }))
    }
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
