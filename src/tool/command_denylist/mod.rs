//! Commands that are refused whatever policy says: a short list of catastrophes that no task asks for.
//!
//! A seat belt against accidents, not a boundary: who wants to can get around it. The boundary is the sandbox.

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

/// Why `command`, a shell script, is never run, as the end of a sentence that begins with "it"; `None` if it may be.
///
/// The work is bounded whatever the script is: one that needs more is refused as [`TOO_COMPLEX`].
pub fn denial_reason(command: &str) -> Option<&'static str> {
    ScriptChecker::default().check_script(command).err()
}
