//! What agents remember from one conversation to the next: two small files of entries, in a folder of the state.

mod entries;
mod files;
mod order;

pub use entries::{Entries, Target};
pub use files::{FOLDER, Fault, Locked, Memory};
pub use order::{Action, Made, Note, Order, Unfit, decide};
