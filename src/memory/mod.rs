//! What agents remember from one conversation to the next: two small files of entries, in a folder of the state.

mod edit;
mod entries;
mod files;

pub use edit::{Action, EditError, EditIntent, EditResult, Order, decide};
pub use entries::{MemoryEntries, Target};
pub use files::{FOLDER, LockedMemory, MemoryError, MemoryFiles};
