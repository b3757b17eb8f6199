//! Commands that are refused whatever policy says: a short list of catastrophes that no task asks for.
//!
//! A seat belt against accidents, not a boundary: who wants to can get around it. The boundary is the sandbox.

mod budget;
mod escape;
mod judge;
mod rules;
mod script;
mod target;
mod unwrap;

use judge::Judge;

pub use budget::UNJUDGED;

/// Why a command is refused, as the end of a sentence that begins with "it".
type Reason = &'static str;

/// Why `command`, a shell script, is never run, as the end of a sentence that begins with "it"; `None` if it may be.
///
/// The work is bounded whatever the script is: one that needs more is refused as [`UNJUDGED`].
pub fn refused(command: &str) -> Option<&'static str> {
    Judge::default().script(command).err()
}
