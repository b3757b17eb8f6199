//! The denylist of shell commands: refuses what would wipe a system or a disk or stop the machine, whatever the policy
//! says.
//!
//! It protects against accidents and is no security boundary, since it can be evaded on purpose. The boundary is the
//! sandbox.

mod budget;
mod checker;
mod escape;
mod rules;
mod script;
mod target;
mod unwrap;

use checker::ScriptChecker;

pub use budget::TOO_COMPLEX;

/// Why a command is refused, as the end of a sentence that begins with "it".
type DenyReason = &'static str;

/// Why `command`, a shell script, is never run, as the end of a sentence that begins with "it"; `None` if it may run.
///
/// The work is bounded for any script: one that needs more is refused as [`TOO_COMPLEX`].
pub fn denial_reason(command: &str) -> Option<&'static str> {
    ScriptChecker::default().check_script(command).err()
}
