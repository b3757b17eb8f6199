//! Memory of agents across conversations: two small files of entries in a folder of the state directory.

mod additions;
mod edit;
mod entries;
mod files;

pub use additions::add;
pub use edit::{Action, EditError, EditIntent, EditResult, Order, decide};
pub use entries::{MemoryEntries, Target};
pub use files::{FOLDER, LockedMemory, MemoryError, MemoryFiles, folder_of};
