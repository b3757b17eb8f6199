//! The journal in redb, for one process on one machine.
//!
//! A folder of its own (0700) holds `hermod.redb`, `owner` (the pid of the process that has it open) and `blobs/` (values
//! above 16 KiB, named by their SHA-256). One thread, the committer, does all writing; a batch is one transaction.
//! - Reads run on a snapshot in the calling task as long as they are short (64 KiB of rows and nothing spilled, which is
//!   below 0.2 ms); what is longer begins again on the blocking pool.
//! - A full disk is waited for by the committer and by nobody else (`room.rs`, `disk.rs`): a commit takes longer then.
//! - Fences: the epoch is a row that every opening raises, the incarnations within it are in the committer's memory.
//! - An epoch that ended in order is marked. After any other one the unfinished runs are looked at when the store is opened,
//!   and after another boot of the machine the file as a whole, unless it is large.
//! - A crash between a blob and its row, or a row that is taken from an inbox, leaves a blob behind: [`GarbageCollector`] removes it.

mod accounts;
mod backup;
mod batch;
mod blobs;
mod check;
mod committer;
mod damage;
mod disk_full_wait;
mod engine;
mod error;
mod files;
#[cfg(test)]
mod full_disk_tests;
mod gc;
mod journal;
mod log;
mod migrate;
mod open;
mod pages;
mod preallocated_file;
mod previous_epoch;
mod quick_check;
mod read;
mod repair;
mod substitute_rows;
mod tables;
#[cfg(test)]
mod tests;
mod throttle;
mod vacuum;

pub use backup::{
    CopyError, LockedStateDir, STORE_FOLDERS, Snapshot, StoreContents, inspect, stamp_restored,
};
pub use check::{ArtifactLookup, CheckReport, StoreCounts, check};
pub use damage::Damage;
pub use gc::{GarbageCollector, GcError, GcMode, GcPass, Lookup, RemovedSet, StoreFootprint, Tally, why};
pub use journal::{Durability, RedbJournal};
pub use open::{OpenError, is_in};
pub use repair::{RepairReport, RepairTarget, SET_ASIDE, repair};
pub use throttle::{StoppedError, ThrottleFn};
