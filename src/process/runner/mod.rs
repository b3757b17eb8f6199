//! Commands that outlive whoever started them.
//!
//! A command of the detached runner is no child of the daemon's life. The daemon executes its own binary as the
//! **runner**, in a session of its own, and the runner runs the command. They share nothing but a folder of files,
//! `spool/<call>.<attempt>/` in the state directory, and its order is what everything here rests on:
//!
//! 1. The daemon makes the folder and writes `task`: what to run. Then it starts the runner.
//! 2. The runner locks `lock`, and keeps it locked as long as it lives.
//! 3. It makes what it will need: `output`, and `exit`, whose room on the disk it takes now.
//! 4. It makes `started`, which only one can make. If it is there already, that attempt is *revoked*: it ends. Then it
//!    enters the attempt and its pid into the ledger (`ledger.rs`), which is no part of the folder, and looks once more whether
//!    `started` is its own.
//! 5. It runs the command, ends it when its time is up, and writes what it says into `output`.
//! 6. It syncs `output`, then writes `exit`, with a hash of all that is in it, and syncs that; after a stop it syncs nothing.
//!    What the command has removed of the folder is put back first.
//! 7. It ends, and the lock is free.
//!
//! So a later daemon knows, on the same boot:
//!
//! | what is there | what it means |
//! | --- | --- |
//! | no `started`, and the ledger vouches that it was not begun | it makes `started` itself, as a revocation: that attempt was never begun, and never will be |
//! | the lock is held, or the process of the ledger is this runner | it is under way: wait for it |
//! | neither, and `exit` is whole | that is how it ended |
//! | neither otherwise, but the ledger vouches that it was not begun | the runner ended before step 5 |
//! | anything else | the runner was killed, or its traces were removed: what is left of the command is killed too; the rest is unknown |
//!
//! The command may write where its user may, so a trace that is absent proves nothing: only the ledger tells that a command
//! was not begun, as long as it is whole and older than the run. A revocation comes before the look into the ledger, and
//! the entry before the runner's second look at `started`: so not both go on, whatever was removed in between.
//!
//! A folder that is not needed any more is renamed before it is emptied: a runner that comes late finds none, and not one
//! whose `started` is gone. After another boot only a whole `exit` counts. A runner is alive as long as the lock is held, whatever its pid says;
//! a process is sent a signal only through a pidfd that is known to be the right one's.

mod exit;
mod files;
mod follow;
mod launch;
mod ledger;
mod live_runner;
mod orphans;
mod output;
mod runner_process;

pub use exit::{ExitRecord, OutputExtent};
pub use files::{SpoolName, VARIABLE};
pub use follow::follow;
pub use launch::{AttachedRunner, Runner};
pub use live_runner::{LiveRunner, RunnerOutcome, STOP_TIMEOUT};
pub use runner_process::{ARGUMENT, main};
