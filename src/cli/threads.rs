//! The async runtime of the program: its number of threads, its start, and its end.

use std::{io, num::NonZero, thread::available_parallelism, time::Duration};

use tokio::runtime::{Builder, Runtime};

use super::CliError;

/// Limit of threads for the actors and their tasks. More do not help, because all of them wait for the disk.
const MAX_WORKERS: usize = 4;
/// Time limit for blocking threads to finish after everything else has ended.
const EXIT_TIMEOUT: Duration = Duration::from_millis(300);

/// Does the work of a command on a runtime of its own, and ends that.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = runtime().map_err(|error| {
        CliError::internal(format!("the operating system gives no event queue, or no threads: {error}"))
    })?;
    let result = runtime.block_on(work);
    // Reads and writes of tools that are still under way are aborted as by a kill: a signal must end the process
    // within a second.
    runtime.shutdown_timeout(EXIT_TIMEOUT);
    result
}

/// A tokio runtime with a thread per core, up to `MAX_WORKERS`. With several threads, a blocked one does not block
/// the others.
fn runtime() -> io::Result<Runtime> {
    match available_parallelism().map_or(1, NonZero::get).min(MAX_WORKERS) {
        1 => Builder::new_current_thread().enable_all().build(),
        workers => Builder::new_multi_thread().worker_threads(workers).enable_all().build(),
    }
}
