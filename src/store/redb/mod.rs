//! The journal in redb, for one process on one machine.
//!
//! A private folder (0700) holds `hermod.redb`, `owner` (the pid of the process that has it open) and `blobs/`. Blobs
//! are values above 16 KiB, and shorter ones that look like a reference to a blob; they are named by their SHA-256.
//! One thread, the committer, does all writing to an open store; a batch is one transaction.
//! - Reads run on a snapshot in the calling task while they are short: 64 KiB of rows and nothing spilled, below 0.2
//!   ms. Longer reads start again on the blocking pool.
//! - Only the committer waits for space on a full disk (`disk_full_wait.rs`, `preallocated_file.rs`): commits then take
//!   longer.
//! - Fencing: the epoch is a row that each opening by an owner increments; its incarnations are in the committer's
//!   memory.
//! - A clean shutdown is recorded. After any other end of an epoch, opening checks the unfinished runs. After another
//!   boot of the machine it checks the whole file, unless that is large.
//! - A crash between a blob and its row, or a row that is taken from an inbox, leaves a blob behind:
//!   [`GarbageCollector`] removes it.

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
mod feed;
mod files;
#[cfg(test)]
mod full_disk_tests;
mod gc;
mod journal;
mod log;
mod open;
mod outbox;
mod pages;
mod preallocated_file;
mod previous_epoch;
mod quick_check;
mod read;
mod repair;
mod schedules;
mod substitute_rows;
mod tables;
#[cfg(test)]
mod tests;
mod vacuum;

pub use backup::{LockedStateDir, STORE_FOLDERS, Snapshot, StoreContents, inspect, stamp_restored};
pub use check::{ArtifactLookup, CheckReport, StoreCounts, check};
pub use damage::Damage;
pub use error::{StoppedError, StoreError, ThrottleFn};
pub use gc::{
    GarbageCollector, GcError, GcMode, GcPass, GcSnapshot, RemovedSet, SessionRemovalResult, StoreFootprint,
    Tally, why,
};
pub use journal::{Durability, RedbJournal};
pub use open::{OpenError, is_in};
pub use repair::{Repair, RepairReport, RepairTarget, SET_ASIDE};
