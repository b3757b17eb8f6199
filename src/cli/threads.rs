use std::{io, num::NonZero, thread::available_parallelism};

use tokio::runtime::{Builder, Runtime};

/// Threads that run the actors and their tasks. More are of no use: what they all wait for is the disk.
const MAX_WORKERS: usize = 4;

/// A thread for each core, as far as they are of use: what holds up one does not hold up the others.
pub(super) fn runtime() -> io::Result<Runtime> {
    match available_parallelism().map_or(1, NonZero::get).min(MAX_WORKERS) {
        1 => Builder::new_current_thread().enable_all().build(),
        workers => Builder::new_multi_thread().worker_threads(workers).enable_all().build(),
    }
}
