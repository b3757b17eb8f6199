//! The modes in which this program helps itself: the fork server with its runners, and processes that try out the sandbox.

use std::{env::args_os, process::ExitCode};

use super::{runner, sandbox};

/// Does the work of a helper, if this process's arguments are those of one.
pub fn helper_main() -> Option<ExitCode> {
    runner::main(args_os())
        .or_else(|| sandbox::probe_main(args_os()))
        .or_else(|| sandbox::namespace_main(args_os()))
}
