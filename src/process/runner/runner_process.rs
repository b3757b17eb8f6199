//! The runner: a process that runs one command and records its outcome in its spool folder. Steps 2 to 7 of the
//! protocol.

use std::{ffi::OsString, io, path::Path, process::ExitCode, time::Duration};

use rustix::{
    io::Errno,
    process::{getpid, setsid},
};
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    task::spawn_blocking,
};
use tokio_util::sync::CancellationToken;

use super::{
    OWN_PROGRAM,
    exit::{ExitRecord, OutputExtent, PreallocatedExit},
    files::{Claim, SpoolFolder},
    output::OutputFile,
};
use crate::{
    files::IoResult as _,
    process::{
        self, Command, ExitCause, Tee, descendants,
        sandbox::{prepare_process, restrict_own_process},
    },
};

/// The first argument of a runner process; the second is its folder.
pub const ARGUMENT: &str = "__runner";

/// Runs the command of a folder, if this process's arguments are those of a runner. If nothing was run, the exit code
/// is the system's error number.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if arguments.nth(1)? != ARGUMENT {
        return None;
    }
    let result = match arguments.next() {
        Some(folder) => run(&SpoolFolder::new(Path::new(&folder))),
        None => Err(io::ErrorKind::InvalidInput.into()),
    };
    Some(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.raw_os_error().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX).into(),
    })
}

fn run(folder: &SpoolFolder) -> io::Result<()> {
    // From here on neither the terminal nor the owner's process group can signal this process.
    setsid()?;
    descendants::adopt()?;
    let task = folder.task()?;
    if let Some(sandbox) = &task.sandbox {
        prepare_process(Path::new(OWN_PROGRAM), sandbox)?;
    }
    let runtime = Builder::new_current_thread().enable_all().thread_keep_alive(Duration::MAX).build()?;
    runtime.block_on(async {
        // The thread that writes the output: a command that has used up the threads of its user must not keep it from
        // starting.
        spawn_blocking(|| {}).await?;
        // Before `started`: from then on a stop must end the command too.
        let stop = stop_token()?;
        let _lock = folder.lock()?;
        // Step 3. Missing disk space is found before the command runs.
        let (exit_file, output) = (PreallocatedExit::create(folder)?, OutputFile::create(folder)?);
        let pid = getpid();
        let claim = Claim::Runner { pid: pid.as_raw_pid() };
        if !folder.claim(claim)? {
            return Ok(());
        }
        // Second half of step 4. Without a ledger there is never a proof that this command was not begun.
        folder.ledger().record_start(folder.name(), pid).if_exists()?;
        // An owner that found no entry has revoked this attempt before.
        if folder.read_claim()? != Some(claim) {
            return Err(Errno::NOENT.into());
        }
        if let Some(sandbox) = &task.sandbox {
            restrict_own_process(&sandbox.rules.limits)?;
        }
        let (exit, output) = run_task(task, output, &stop).await?;
        record(exit_file, exit, output)
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

/// Step 5. Its result is still to be recorded.
async fn run_task(
    task: Command,
    output: OutputFile,
    stop: &CancellationToken,
) -> io::Result<(ExitRecord, OutputFile)> {
    let (tee, pieces) = Tee::new();
    let (end, output) = tokio::join!(process::run(task, Some(tee), stop), output.write_all(pieces));
    // What has left its group ends too, before the outcome is known.
    descendants::end().await?;
    let output = output?;
    let exit = ExitRecord { end: end.map_err(|error| error.to_string()), output: output.extent() };
    Ok((exit, output))
}

/// Step 6. Folder entries are not synced: if a power loss takes one, the call is in doubt.
fn record(mut exit_file: PreallocatedExit, mut exit: ExitRecord, mut output: OutputFile) -> io::Result<()> {
    let is_stopped = matches!(&exit.end, Ok(result) if result.cause == ExitCause::Cancel);
    if is_stopped && output.restore_file().is_ok() {
        // The requester of the stop waits for the outcome and has recorded the stop.
        return exit_file.write(&exit);
    }
    if output.restore_file().is_err() || output.sync().is_err() {
        let OutputExtent { bytes, left_out } = exit.output;
        exit.output = OutputExtent { bytes: 0, left_out: bytes + left_out };
    }
    exit_file.write(&exit)?;
    exit_file.sync()
}
