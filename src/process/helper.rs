//! The modes in which this program helps itself: the fork server with its runners, and processes that try out the sandbox.

use std::{env::args_os, process::ExitCode};

use close_fds::set_fds_cloexec;

use super::{runner, sandbox};

/// The lowest number of a descriptor that is no standard stream.
const FIRST_INHERITED: i32 = 3;

/// Does the work of a helper, if this process's arguments are those of one. In any case no descriptor that a caller has left
/// open, such as a shell or a service manager, reaches a process that this one starts.
pub fn helper_main() -> Option<ExitCode> {
    set_fds_cloexec(FIRST_INHERITED, &[]);
    runner::main(args_os())
        .or_else(|| sandbox::probe_main(args_os()))
        .or_else(|| sandbox::trial_main(args_os()))
}
