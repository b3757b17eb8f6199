//! Commands that outlive the process that started them.
//!
//! A detached command does not depend on the life of the owner of the state directory. The owner has a **fork server**, a
//! process of its own binary with one thread. That forks a **runner** for each command, which leads a POSIX session of
//! its own and runs the command. Owner and runner share a folder of files, `spool/<call>.<attempt>/` in the state
//! directory. The order of its writes is the protocol between them:
//!
//! 1. The owner makes the folder and writes `task`: what to run. Then it requests a runner from its fork server.
//! 2. The runner hands the owner its pidfd. It locks `task`, and keeps it locked as long as it lives.
//! 3. It makes `exit`, with its disk space preallocated.
//! 4. It makes `started`, which can be made only once. If the file exists already, that attempt is *revoked*: the
//!    runner ends. Then it enters the attempt and itself into the ledger (`ledger.rs`), outside of the folder. After
//!    that it checks again whether `started` is its own, and notes in `exit` that the command begins.
//! 5. It runs the command, and ends it when its time is up. Output that is long or takes a while goes into `output`.
//! 6. It writes `exit`, with a hash of its content and with a short output. It first restores the files that the command
//!    has removed from the folder. It syncs `output` and `exit` if no owner waits for it, and not after a stop.
//! 7. It ends, which frees the lock, and closes the socket to the owner that requested it. Or it frees the lock, reports
//!    that it is ready, and waits for a further command of the same run with the same sandbox. Such a command begins with
//!    step 1, and the request goes to the runner itself.
//!
//! A fork server ends with its owner, and so does a runner that waits. A runner with a command does not. A server or a
//! waiting runner that ends or hangs before it has accepted a request is replaced, and the request is made again: of two
//! runners of an attempt only one makes `started`.
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
//! was not begun, as long as it is complete and older than the run, and `exit` tells nothing else. A revocation comes before the check of the ledger,
//! and the entry before the runner's second check of `started`. Therefore at most one side proceeds, whatever was
//! removed in between.
//!
//! A runner has at most one command at a time. So an entry of the ledger names a living runner only if no later entry has
//! the same process, and a process that waits has a name of its own. A runner is requested only after its last attempt
//! was seen to end, so no signal for one attempt meets another one.
//!
//! A folder that is no longer needed is renamed before it is emptied: a late runner finds no folder, not one without
//! `started`. After another boot only a complete `exit` counts. A runner is alive as long as the lock is held, whatever
//! its pid says. A process is signalled only through a pidfd that is known to be the right one's: the runner's own, or that
//! of the process which started at the time in the ledger.

mod channel;
mod ended;
mod exit;
mod files;
mod follow;
mod fork_server;
mod forked;
mod identity;
mod idle;
mod launch;
mod ledger;
mod live_runner;
mod orphans;
mod output;
mod owner_link;
mod runner_process;

/// This process's own program, also after its file was replaced.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

pub use exit::{ExitRecord, OutputExtent};
pub use files::{SpoolName, VARIABLE};
pub use follow::follow;
pub use fork_server::{ARGUMENT, main};
pub use launch::{AttachedRunner, Runner};
pub use live_runner::{LiveRunner, RunnerOutcome, STOP_TIMEOUT};
