//! The journal in redb, for one process on one machine.
//!
//! A folder of its own (0700) holds `hermod.redb`, `owner` (the pid of the process that has it open) and `blobs/` (values
//! above 16 KiB, named by their SHA-256). One thread, the committer, does all writing; a batch is one transaction.
//! - Reads run on a snapshot in the calling task as long as they are short (64 KiB of rows and nothing spilled, which is
//!   below 0.2 ms); what is longer begins again on the blocking pool.
//! - A full disk is waited for by the committer and by nobody else (`room.rs`, `disk.rs`): a commit takes longer then.
//! - Fences: the epoch is a row that every opening raises, the incarnations within it are in the committer's memory.
//! - Blobs are never deleted: a crash between a blob and its row, or a row that is taken from an inbox, leaves one behind.

mod accounts;
mod batch;
mod blobs;
mod committer;
mod disk;
mod fault;
mod journal;
mod log;
mod migrate;
mod open;
mod read;
mod room;
mod tables;

#[cfg(test)]
mod full_disk_tests;

pub use journal::{Durability, RedbJournal};
pub use open::OpenError;
