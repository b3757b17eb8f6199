//! What is on disk: backups, damage, full disks, garbage collection, versions, the contract of journals.
#![allow(clippy::unwrap_used)] // a test ends where it fails

mod backup;
mod damage;
mod damaged;
mod full_disk;
mod gc;
mod journal_contract;
#[path = "../common/own_process.rs"]
mod own_process;
#[path = "../common/pictures.rs"]
mod pictures;
mod quarantine;
#[path = "../common/running.rs"]
mod running;
mod versions;
#[path = "../common/world.rs"]
mod world;
