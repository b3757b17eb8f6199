//! For tests of whoever builds on this crate.

mod journal_contract;
mod memory;

pub use journal_contract::{CASES, Case, Open, journal_contract};
pub use memory::MemoryJournal;
