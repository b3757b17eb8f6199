//! Commands that outlive the process that started them.
//!
//! A detached command does not depend on the life of the owner of the state directory. The owner executes its own
//! binary as the **runner**, in a POSIX session of its own, and the runner runs the command. They share only a folder
//! of files, `spool/<call>.<attempt>/` in the state directory. The order of its writes is the protocol between them:
//!
//! 1. The owner makes the folder and writes `task`: what to run. Then it starts the runner.
//! 2. The runner locks `lock`, and keeps it locked as long as it lives.
//! 3. It makes the files that it will need: `output`, and `exit` with its disk space preallocated.
//! 4. It makes `started`, which can be made only once. If the file exists already, that attempt is *revoked*: the
//!    runner ends. Then it enters the attempt and its pid into the ledger (`ledger.rs`), outside of the folder. After
//!    that it checks again whether `started` is its own.
//! 5. It runs the command, ends it when its time is up, and writes the command's output into `output`.
//! 6. It syncs `output`, then writes `exit`, with a hash of its content, and syncs that; after a stop it syncs nothing.
//!    It first restores the files that the command has removed from the folder.
//! 7. It ends, which frees the lock.
//!
//! A later owner on the same boot decides by these rules:
//!
//! | state | meaning |
//! | --- | --- |
//! | no `started`, and the ledger proves that the command was not begun | the owner revokes it by making `started` |
//! | the lock is held, or the process of the ledger is this runner | the runner is alive: wait for it |
//! | neither, and `exit` is complete | `exit` has the outcome |
//! | neither otherwise, but the ledger proves that the command was not begun | the runner ended before step 5 |
//! | anything else | the runner was killed or its traces removed: kill the remaining processes; outcome unknown |
//!
//! The command may write where its user may, so a missing file proves nothing. Only the ledger proves that a command
//! was not begun, as long as it is complete and older than the run. A revocation comes before the check of the ledger,
//! and the entry before the runner's second check of `started`. Therefore at most one side proceeds, whatever was
//! removed in between.
//!
//! A folder that is no longer needed is renamed before it is emptied: a late runner finds no folder, not one without
//! `started`. After another boot only a complete `exit` counts. A runner is alive as long as the lock is held, whatever
//! its pid says. A process is signalled only as a child that was not reaped, or through a pidfd that is known to be the
//! right one's.

mod channel;
mod exit;
mod files;
mod follow;
mod fork_server;
mod forked;
mod identity;
mod launch;
mod ledger;
mod live_runner;
mod orphans;
mod output;
mod runner_process;

/// This process's own program, also after its file was replaced.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

pub use exit::{ExitRecord, OutputExtent};
pub use files::{SpoolName, VARIABLE};
pub use follow::follow;
pub use fork_server::{ARGUMENT, main};
pub use launch::{AttachedRunner, Runner};
pub use live_runner::{LiveRunner, RunnerOutcome, STOP_TIMEOUT};
