//! The runner itself: a process that runs one command and says in its folder what became of it.

use std::{
    ffi::OsString,
    io,
    path::Path,
    process::{ExitCode, id},
};

use rustix::{
    io::Errno,
    process::{Pid, setsid},
};
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use super::{
    exit::{ExitRecord, OutputExtent, PreallocatedExit},
    files::{Claim, ClaimResult, RunnerTask, SpoolFolder},
    output::OutputFile,
};
use crate::process::{self, ExitCause, Tee};

/// The first argument of a process that is to be a runner; the second one is its folder.
pub const ARGUMENT: &str = "__runner";

/// Runs the command of a folder, if the arguments of this process say that it is a runner. Where nothing was run, the exit
/// code is the number of the system's error.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if arguments.nth(1)? != ARGUMENT {
        return None;
    }
    let done = match arguments.next() {
        Some(folder) => run(&SpoolFolder::new(Path::new(&folder))),
        None => Err(io::ErrorKind::InvalidInput.into()),
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.raw_os_error().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX).into(),
    })
}

fn run(folder: &SpoolFolder) -> io::Result<()> {
    // From here on no signal of a terminal, nor of the daemon's group, comes.
    setsid()?;
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        // Before `started`: from then on a stop has to end the command too.
        let stop = stop_token()?;
        let task = folder.task()?;
        let _lock = folder.lock()?;
        let (output, room) = create_files(folder)?;
        match folder.claim(Claim::Runner(process_id()))? {
            ClaimResult::AlreadyClaimed => Ok(()),
            ClaimResult::Claimed => {
                claim_start(folder)?;
                record(room, run_task(task, output, &stop).await?)
            }
        }
    })
}

/// Step 4, second half. Without a ledger nothing will ever vouch that this command was not begun.
fn claim_start(folder: &SpoolFolder) -> io::Result<()> {
    let pid = process_id().ok_or(io::ErrorKind::Other)?;
    match folder.ledger().record_start(folder.name(), pid) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // A reviver that found no entry has revoked this attempt before.
    if folder.read_claim()? == Some(Claim::Runner(Some(pid))) { Ok(()) } else { Err(Errno::NOENT.into()) }
}

fn process_id() -> Option<Pid> {
    i32::try_from(id()).ok().and_then(Pid::from_raw)
}

/// Fires when this process is asked to end. A file that may not grow is an error of its write, and no signal.
fn stop_token() -> io::Result<CancellationToken> {
    let mut asked = signal(SignalKind::terminate())?;
    let _no_signal = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?;
    let stop = CancellationToken::new();
    let fires = stop.clone();
    tokio::spawn(async move {
        asked.recv().await;
        fires.cancel();
    });
    Ok(stop)
}

/// Step 3. A disk that has no room for it shows before anything was run.
fn create_files(folder: &SpoolFolder) -> io::Result<(OutputFile, PreallocatedExit)> {
    let room = PreallocatedExit::create(folder)?;
    Ok((OutputFile::create(folder)?, room))
}

/// What step 5 leaves to be recorded.
struct RunnerEnd {
    exit: ExitRecord,
    output: OutputFile,
}

/// Step 5.
async fn run_task(task: RunnerTask, output: OutputFile, stop: &CancellationToken) -> io::Result<RunnerEnd> {
    let (tee, pieces) = Tee::new();
    let (end, output) = tokio::join!(process::run(task.into(), Some(tee), stop), output.write_all(pieces));
    let output = output?;
    let exit = ExitRecord { end: end.map_err(|error| error.to_string()), output: output.extent() };
    Ok(RunnerEnd { exit, output })
}

/// Step 6. The entries of the files are not synced on their own: where one is lost with the power, the call is in doubt.
fn record(mut room: PreallocatedExit, mut ended: RunnerEnd) -> io::Result<()> {
    let is_stopped = matches!(&ended.exit.end, Ok(ran) if ran.cause == ExitCause::Cancel);
    if is_stopped && ended.output.restore_file().is_ok() {
        // Whoever asked for that waits, and has written it down.
        return room.write(&ended.exit);
    }
    if ended.output.restore_file().is_err() || ended.output.sync().is_err() {
        let OutputExtent { bytes, left_out } = ended.exit.output;
        ended.exit.output = OutputExtent { bytes: 0, left_out: bytes + left_out };
    }
    room.write(&ended.exit)?;
    room.sync()
}
