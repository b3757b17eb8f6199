//! The async runtime of the program, and its number of threads.

use std::{io, num::NonZero, thread::available_parallelism};

use tokio::runtime::{Builder, Runtime};

/// Limit of threads for the actors and their tasks. More do not help, because all of them wait for the disk.
const MAX_WORKERS: usize = 4;

/// A tokio runtime with a thread per core, up to `MAX_WORKERS`. With several threads, a blocked one does not block
/// the others.
pub(super) fn runtime() -> io::Result<Runtime> {
    match available_parallelism().map_or(1, NonZero::get).min(MAX_WORKERS) {
        1 => Builder::new_current_thread().enable_all().build(),
        workers => Builder::new_multi_thread().worker_threads(workers).enable_all().build(),
    }
}
